"""Pictures with their true classes. `read_photos` takes a folder of image files with a table; opens none of them."""

from __future__ import annotations

import csv
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from moreaugrad.data.collect import keys
from moreaugrad.data.read import read

IMAGENET = 1000  # classes
NEEDED = ("file", "class_index")  # columns; wnid and name are taken where they are


@dataclass(frozen=True, slots=True, eq=False)
class Labelled:
    """N pictures in a fixed order. `boxes` are edges in pixels: right and bottom are the first ones outside."""

    pictures: Sequence[Any]  # files, or arrays (H, W, 3) of uint8
    labels: NDArray[np.int64]  # (N,)
    keys: Sequence[str]  # a name of its own for each
    classes: Sequence[str]  # names by label
    boxes: NDArray[np.float64] | None = None  # (N, 4): left, top, right, bottom of the object

    def __len__(self) -> int:
        return len(self.pictures)

    def pixels(self) -> NDArray[np.uint8]:
        """All pictures as one array (N, H, W, 3); they must have one size."""
        if not len(self):
            raise ValueError("there must be pictures to read, got none")
        first = _pixels(self.pictures[0])
        found = np.empty((len(self), *first.shape), np.uint8)
        with ThreadPoolExecutor() as pool:
            for place, each in enumerate(pool.map(_pixels, self.pictures)):
                if each.shape != first.shape:
                    raise ValueError(
                        f"all pictures must have the size of the first, {_size(first)}, got {_size(each)} in "
                        f"{self.keys[place]!r}; resize it, or leave it out"
                    )
                found[place] = each
        return found


def read_photos(folder: str | Path, labels: str | Path | None = None) -> Labelled:
    """A folder of image files and a table `labels.csv` (or `labels`): file, class_index and, where known, wnid, name.

    class_index is ImageNet's, 0..999. A class that no row names is called by its number.
    """
    place = Path(folder)
    if not place.is_dir():
        raise ValueError(f"the photos must lie in a folder, got {str(folder)!r}, which is none; check the path")
    table = place / "labels.csv" if labels is None else Path(labels)
    rows = _rows(table)
    known: dict[int, str] = {}
    for number, row in enumerate(rows, 2):
        index = _class(row["class_index"], f"line {number} of {str(table)!r}")
        name = row.get("name") or row.get("wnid") or str(index)
        if known.setdefault(index, name) != name:
            raise ValueError(
                f"a class must have one name, got {known[index]!r} and {name!r} for class {index} in {str(table)!r}"
            )
    files = [place / row["file"] for row in rows]
    present(files, f"{str(table)!r} names them")
    classes = [known.get(index, str(index)) for index in range(IMAGENET)]
    return Labelled(files, np.array([int(row["class_index"]) for row in rows], np.int64), keys(files), classes)


def present(files: Sequence[Path], why: str) -> None:
    """Every file is there."""
    if missing := [file for file in files if not file.is_file()]:
        raise ValueError(
            f"all {len(files)} image files must be there, since {why}, got {len(missing)} missing "
            f"({some(file.name for file in missing)}); fetch or unpack them again"
        )


def some(names: Iterable[object]) -> str:
    """The first few, for a message."""
    every = list(map(str, names))
    return ", ".join(every[:3]) + (", ..." if len(every) > 3 else "")


def read_text(path: Path, what: str) -> str:
    """A small text file, or one sentence on why not."""
    try:
        return path.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        reason = "nothing there" if isinstance(error, FileNotFoundError) else error
        raise ValueError(f"{what} must be a readable text file, got {str(path)!r}: {reason}") from None


def _rows(table: Path) -> list[dict[str, str]]:
    what = "the table of the photos (columns file, wnid, class_index, name)"
    rows = list(csv.DictReader(read_text(table, what).splitlines()))
    if not rows:
        raise ValueError(f"{what} must have a row for each photo, got none in {str(table)!r}")
    if missing := [name for name in NEEDED if rows[0].get(name) is None]:
        raise ValueError(
            f"{what} must have the columns {list(NEEDED)}, got {str(table)!r} without {missing}: it has "
            f"{[name for name in rows[0] if name]}"
        )
    for number, row in enumerate(rows, 2):
        if not all(row[name] for name in NEEDED):
            raise ValueError(
                f"each row of {str(table)!r} must have a file and a class_index, got {row} in line {number}"
            )
    return rows


def _class(given: str, where: str) -> int:
    if not given.strip().isdecimal() or int(given) >= IMAGENET:
        raise ValueError(f"class_index must be a whole number in 0..{IMAGENET - 1}, got {given!r} in {where}")
    return int(given)


def _pixels(picture: Any) -> NDArray[np.uint8]:
    return np.asarray(read(picture).pixels)


def _size(pixels: NDArray[np.uint8]) -> str:
    return f"{pixels.shape[1]} x {pixels.shape[0]}"
