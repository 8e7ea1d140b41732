"""Tiny-ImageNet in its published layout, of 200 classes or of those that `wnids.txt` names.

wnids.txt; words.txt; train/<wnid>/images/*.JPEG; val/images/*.JPEG; val/val_annotations.txt with a line
file, wnid, x0, y0, x1, y1 for each image, separated by tabs. Lists files, opens no image.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from pathlib import Path

import numpy as np

from moreaugrad.data.labelled import LabelledImages, check_present
from moreaugrad.files import first_names, read_text

NAME = "tiny-imagenet-200"
SOURCE = f"cs231n.stanford.edu/{NAME}.zip"
SPLITS = ("train", "val")
IMAGES = "*.JPEG"
ANNOTATIONS = "val_annotations.txt"


def read_tiny_imagenet(folder: str | Path, split: str) -> LabelledImages:
    """List the images of Tiny-ImageNet in its published layout. Opens no image.

    Args:
        folder: `tiny-imagenet-200`, or the folder above it.
        split: "train" or "val".

    Returns:
        The images of the split. A label is the position of its wnid among the sorted ones. "val" has boxes: the
        last column and row of an annotation belong to the object, so right = x1 + 1 and bottom = y1 + 1.

    Raises:
        ValueError: the folder is incomplete, or an annotation is malformed; the message says where.

    Example:
        >>> import pathlib, shutil
        >>> pathlib.Path("train/n01443537/images").mkdir(parents=True)
        >>> _ = pathlib.Path("wnids.txt").write_text("n01443537")
        >>> _ = shutil.copy(photo, "train/n01443537/images/n01443537_0.JPEG")
        >>> mg.read_tiny_imagenet(".", "train").keys
        ['n01443537_0']
    """
    if split not in SPLITS:
        raise ValueError(f"split must be one of {list(SPLITS)}, got {split!r}; the test split has no labels")
    root = _find_root(Path(folder))
    wnids, path = read_wnids(root), root / "words.txt"
    words = read_text(path, "the names of the classes") if path.is_file() else ""
    names = {wnid: name.strip() for wnid, _, name in (line.partition("\t") for line in words.splitlines())}
    listing = _list_train if split == "train" else _list_val
    return listing(root, wnids, [names.get(wnid) or wnid for wnid in wnids])


def read_wnids(folder: str | Path) -> list[str]:
    """The sorted WordNet identifiers of the classes; a label is a position among them."""
    path = _find_root(Path(folder)) / "wnids.txt"
    found = read_text(path, "the list of classes").split()
    _check_once(found, "class", path)
    if not found:
        raise ValueError(f"{str(path)!r} must name the classes, one wnid in each line, got none; fetch {SOURCE} again")
    return sorted(found)


def _find_root(folder: Path) -> Path:
    for place in (folder, folder / NAME):
        if (place / "wnids.txt").is_file():
            return place
    came = ": nothing there"
    if folder.is_dir():
        came = f" with {first_names(sorted(each.name for each in folder.iterdir())) or 'nothing'} in it"
    raise ValueError(
        f"the data must be the folder {NAME} with wnids.txt, train/ and val/, or the one above it, got "
        f"{str(folder)!r}{came}; unpack {SOURCE}"
    )


def _list_train(root: Path, wnids: list[str], names: list[str]) -> LabelledImages:
    place = root / "train"
    if not place.is_dir():
        raise _incomplete(root, "the folder train/", "no such folder")
    if unknown := sorted(each.name for each in place.iterdir() if each.is_dir() and each.name not in set(wnids)):
        raise ValueError(
            f"each folder of {str(place)!r} must be a class of wnids.txt, got {first_names(unknown)}; complete "
            "wnids.txt, or remove what does not belong there"
        )
    by_class = [_images(place / wnid / "images") for wnid in wnids]
    if empty := [wnid for wnid, files in zip(wnids, by_class, strict=True) if not files]:
        raise _incomplete(root, f"images ({IMAGES}) in train/<wnid>/images", f"none for {_of(empty, wnids)}")
    files = [file for group in by_class for file in group]
    labels = np.repeat(np.arange(len(wnids)), [len(each) for each in by_class])
    return LabelledImages(files, labels.astype(np.int64), [file.stem for file in files], names)


def _list_val(root: Path, wnids: list[str], names: list[str]) -> LabelledImages:
    place = root / "val"
    path = place / ANNOTATIONS
    if not path.is_file():
        raise _incomplete(root, f"val/{ANNOTATIONS}", "no such file")
    lines = [line.split("\t") for line in read_text(path, "the annotations").splitlines() if line.strip()]
    position = {wnid: label for label, wnid in enumerate(wnids)}
    for number, line in enumerate(lines, 1):
        _check_annotation(line, position, f"line {number} of {str(path)!r}")
    _check_once((line[0] for line in lines), "image", path)
    files = [place / "images" / line[0] for line in lines]
    check_present(files, f"{str(path)!r} names them")
    if nameless := sorted({file.name for file in _images(place / "images")} - {file.name for file in files}):
        raise _incomplete(root, f"a line in val/{ANNOTATIONS} for each image", f"none for {first_names(nameless)}")
    labels = np.array([position[line[1]] for line in lines], np.int64)
    if empty := [wnid for wnid, label in position.items() if label not in set(labels.tolist())]:
        raise _incomplete(root, f"each class in val/{ANNOTATIONS}", f"no image of {_of(empty, wnids)}")
    boxes = np.array([line[2:] for line in lines], np.float64) + np.array([0, 0, 1, 1])
    return LabelledImages(files, labels, [file.stem for file in files], names, boxes)


def _check_annotation(line: list[str], position: dict[str, int], where: str) -> None:
    if len(line) != 6 or not all(each.strip().isdecimal() for each in line[2:]):
        raise ValueError(
            f"an annotation must be a file, a wnid and the four whole numbers of a box, separated by tabs, got {line} "
            f"in {where}; fetch {SOURCE} again"
        )
    if line[1] not in position:
        raise ValueError(
            f"an annotation must have a class of wnids.txt, got {line[1]!r} in {where}; complete wnids.txt"
        )
    left, top, right, bottom = map(int, line[2:])
    if left > right or top > bottom:
        raise ValueError(f"a box must have x0 <= x1 and y0 <= y1, got {line[2:]} in {where}")


def _images(folder: Path) -> list[Path]:
    """In the order of their numbers: n01443537_2 before n01443537_10."""
    return sorted(folder.glob(IMAGES), key=lambda file: (len(file.name), file.name))


def _check_once(names: Iterable[str], what: str, path: Path) -> None:
    if twice := [name for name, times in Counter(names).items() if times > 1]:
        raise ValueError(f"{str(path)!r} must name each {what} once, got {first_names(twice)} more than once")


def _of(empty: list[str], wnids: list[str]) -> str:
    return f"{len(empty)} of {len(wnids)} classes ({first_names(empty)})"


def _incomplete(root: Path, what: str, came: str) -> ValueError:
    return ValueError(f"{str(root)!r} must hold {what}, got {came}; it may be half unpacked: fetch {SOURCE} again")
