"""Pictures with their true classes, and folders of photos with a table of labels."""

from __future__ import annotations

import csv
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from moreaugrad.data.images import read_image
from moreaugrad.data.sources import unique_names
from moreaugrad.files import first_names, read_text

IMAGENET = 1000  # classes
NEEDED = ("file", "class_index")  # columns; wnid and name are taken where they are


@dataclass(frozen=True, slots=True, eq=False)
class LabelledImages:
    """N images in a fixed order with their true classes, read on use.

    Args:
        pictures: image files, or arrays (H, W, 3) of uint8.
        labels: class of each image, (N,).
        keys: a distinct name for each image.
        classes: class names, by label.
        boxes: left, top, right and bottom edge of the object in pixels, (N, 4); right and bottom are the first
            column and row outside. None where they are not known.

    Example:
        >>> import numpy as np
        >>> images = np.zeros((2, 8, 8, 3), np.uint8)
        >>> data = mg.LabelledImages(images, np.array([0, 1]), ["a", "b"], ["cat", "dog"])
        >>> len(data), data.pixels().shape
        (2, (2, 8, 8, 3))
    """

    pictures: Sequence[Any]
    labels: NDArray[np.int64]
    keys: Sequence[str]
    classes: Sequence[str]
    boxes: NDArray[np.float64] | None = None

    def __len__(self) -> int:
        return len(self.pictures)

    def pixels(self) -> NDArray[np.uint8]:
        """Read all images into one array.

        Returns:
            Array (N, H, W, 3); all images must have one size.
        """
        if not len(self):
            raise ValueError("there must be pictures to read, got none")
        first = np.asarray(read_image(self.pictures[0]))
        found = np.empty((len(self), *first.shape), np.uint8)
        with ThreadPoolExecutor() as pool:
            for place, each in enumerate(map(np.asarray, pool.map(read_image, self.pictures))):
                if each.shape != first.shape:
                    raise ValueError(
                        f"all pictures must have the size of the first, {first.shape[1]} x {first.shape[0]}, got "
                        f"{each.shape[1]} x {each.shape[0]} in {self.keys[place]!r}; resize it, or leave it out"
                    )
                found[place] = each
        return found


def read_photos(folder: str | Path, labels: str | Path | None = None) -> LabelledImages:
    """List a folder of photos with ImageNet classes. Opens no image.

    Args:
        folder: holds the image files.
        labels: CSV file with the columns file, class_index (0..999) and, where known, wnid and name;
            None: `labels.csv` in the folder.

    Returns:
        The photos in the order of the table; a class that no row names is called by its number.

    Example:
        >>> import pathlib
        >>> table = pathlib.Path(photo).with_name("labels.csv")
        >>> _ = table.write_text("file,class_index,name\\nphoto.jpg,281,tabby")
        >>> mg.read_photos(table.parent).classes[281]
        'tabby'
    """
    place = Path(folder)
    if not place.is_dir():
        raise ValueError(f"the photos must lie in a folder, got {str(folder)!r}, which is none; check the path")
    table = place / "labels.csv" if labels is None else Path(labels)
    rows = _read_table(table)
    names: dict[int, str] = {}
    for row in rows:
        index = int(row["class_index"])
        name = row.get("name") or row.get("wnid") or str(index)
        if names.setdefault(index, name) != name:
            raise ValueError(
                f"a class must have one name, got {names[index]!r} and {name!r} for class {index} in {str(table)!r}"
            )
    files = [place / row["file"] for row in rows]
    check_present(files, f"{str(table)!r} names them")
    classes = [names.get(index, str(index)) for index in range(IMAGENET)]
    indices = np.array([int(row["class_index"]) for row in rows], np.int64)
    return LabelledImages(files, indices, unique_names(files), classes)


def check_present(files: Sequence[Path], why: str) -> None:
    """Raise unless every file is there."""
    if missing := [file for file in files if not file.is_file()]:
        raise ValueError(
            f"all {len(files)} image files must be there, since {why}, got {len(missing)} missing "
            f"({first_names(file.name for file in missing)}); fetch or unpack them again"
        )


def _read_table(table: Path) -> list[dict[str, str]]:
    what = "the table of the photos (columns file, wnid, class_index, name)"
    try:
        rows = list(csv.DictReader(read_text(table, what).splitlines()))
    except csv.Error as error:
        raise ValueError(f"{what} must be in CSV, got {str(table)!r}: {error}") from error
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
        index = row["class_index"].strip()
        if not (index.isdecimal() and len(index) <= len(str(IMAGENET))) or int(index) >= IMAGENET:
            raise ValueError(
                f"class_index must be a whole number in 0..{IMAGENET - 1}, got {index!r:.80} in line {number} "
                f"of {str(table)!r}"
            )
    return rows
