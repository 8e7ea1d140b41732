"""CIFAR-10 and Tiny-ImageNet in a few large files: strips of images, zip archives. Reads the chosen images, no more."""

from __future__ import annotations

import csv
import zipfile
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image, UnidentifiedImageError

import moreaugrad as mg

SIDE = 32  # of an image of CIFAR-10


@dataclass(frozen=True)
class Strips(Sequence[Any]):
    """Images of 32 x 32 that lie below each other in strips of equal length."""

    paths: tuple[Path, ...]
    each: int  # images in a strip
    count: int

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, index: Any) -> NDArray[np.uint8]:
        strip, row = divmod(range(self.count)[index], self.each)
        return _strip(self.paths[strip], self.each)[row]


@dataclass(frozen=True)
class Members(Sequence[Any]):
    """Image files in an archive."""

    archive: Path
    names: tuple[str, ...]

    def __len__(self) -> int:
        return len(self.names)

    def __getitem__(self, index: Any) -> NDArray[np.uint8]:
        name = self.names[index]
        try:
            with zipfile.ZipFile(self.archive) as archive, Image.open(BytesIO(archive.read(name))) as picture:
                return np.asarray(picture.convert("RGB"))
        except (KeyError, OSError, zipfile.BadZipFile, UnidentifiedImageError) as error:
            raise ValueError(
                f"{str(self.archive)!r} must hold the image {name!r}, got {error}; fetch the archive again"
            ) from None


def read_strips(folder: Path) -> mg.LabelledImages:
    """Test images of CIFAR-10: test/000.webp ..., test_labels.npy, and test_index.npy (places in the original)."""
    paths = tuple(sorted((folder / "test").glob("*.webp")))
    if not paths:
        raise ValueError(f"{str(folder / 'test')!r} must hold strips of images (*.webp), got none")
    labels, places = (_array(folder / f"test_{name}.npy") for name in ("labels", "index"))
    count = len(labels)
    if len(places) != count or count % len(paths):
        raise ValueError(
            f"{str(folder)!r} must have a label and a place for each test image and as many images in each of its "
            f"{len(paths)} strips, got {count} labels and {len(places)} places; fetch it again"
        )
    names = (folder / "classes.txt").read_text().split()
    return mg.LabelledImages(
        Strips(paths, count // len(paths), count), labels.astype(np.int64), [f"test_{each}" for each in places], names
    )


def read_archive(folder: Path) -> mg.LabelledImages:
    """Validation images of Tiny-ImageNet: val.zip, labels.csv (with boxes) and classes.csv."""
    rows = _table(folder / "labels.csv", ("file", "class_index", "box_x0", "box_y0", "box_x1", "box_y1"))
    classes = _table(folder / "classes.csv", ("class_index", "wnid", "name"))
    labels = np.array([int(row["class_index"]) for row in rows], dtype=np.int64)
    # the annotations name the last pixel of an object; what lies right of it, and below, is where the box ends
    ends = [(("box_x0", 0), ("box_y0", 0), ("box_x1", 1), ("box_y1", 1))] * len(rows)
    boxes = np.array([[float(row[name]) + more for name, more in end] for row, end in zip(rows, ends, strict=True)])
    names = [row["name"] for row in sorted(classes, key=lambda row: int(row["class_index"]))]
    files = tuple(row["file"] for row in rows)
    return mg.LabelledImages(Members(folder / "val.zip", files), labels, [Path(file).stem for file in files], names, boxes)


@lru_cache(maxsize=12)
def _strip(path: Path, count: int) -> NDArray[np.uint8]:
    try:
        with Image.open(path) as picture:
            pixels = np.asarray(picture.convert("RGB"))
    except (OSError, UnidentifiedImageError) as error:
        raise ValueError(f"{str(path)!r} must be a strip of images, got {error}; fetch it again") from None
    if pixels.shape[:2] != (count * SIDE, SIDE):
        size = f"{pixels.shape[1]} x {pixels.shape[0]}"
        raise ValueError(
            f"{str(path)!r} must hold {count} images below each other, {SIDE} x {count * SIDE}, got {size}"
        )
    return pixels.reshape(-1, SIDE, SIDE, 3)


def _array(path: Path) -> NDArray[Any]:
    try:
        found: NDArray[Any] = np.load(path, allow_pickle=False)
    except (OSError, ValueError, EOFError) as error:
        raise ValueError(f"{str(path)!r} must be an array in numpy's format, got {error}; fetch it again") from None
    return found


def _table(path: Path, columns: tuple[str, ...]) -> list[dict[str, str]]:
    with path.open(newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    if not rows or (missing := [name for name in columns if name not in rows[0]]):
        lacks = f"without {missing}" if rows else "without a row"
        raise ValueError(f"{str(path)!r} must have the columns {list(columns)}, got a table {lacks}")
    return rows
