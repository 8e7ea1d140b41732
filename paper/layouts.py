"""Where each data set lies below --data, in all the forms that are accepted, and what to say where it does not.

Finds by looking at names; opens no image.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

import moreaugrad as mg
from paper import compact
from paper.names import dataset as title
from paper.settings import Settings

BATCHES = ("batches.meta", "test_batch", *(f"data_batch_{number}" for number in range(1, 6)))
LISTED = 8  # names of a folder that a message tells


@dataclass(frozen=True)
class Layout:
    """One form of a data set: the files that must be there, and who reads them."""

    words: str
    marks: tuple[str, ...]  # seen from the folder that holds it
    read: Callable[[Path], Any]
    without: str = ""  # a file that makes it another data set

    def here(self, folder: Path) -> bool:
        return not self.missing(folder) and not (self.without and (folder / self.without).exists())

    def missing(self, folder: Path) -> list[str]:
        return [mark for mark in self.marks if not (folder / mark).exists()]


def _arrays(path: Path) -> Any:
    """The test images of CIFAR-10 as an .npz file or torchvision's folder has them."""
    found = mg.read_cifar10(path)
    names = ["airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck"]
    keys = [f"test_{number}" for number in range(len(found.x_test))]
    return mg.LabelledImages(found.x_test, found.y_test.astype(np.int64), keys, names, None)


LAYOUTS = {
    "cifar10": (
        Layout(
            "torchvision's folder cifar-10-batches-py",
            tuple(f"cifar-10-batches-py/{name}" for name in BATCHES),
            _arrays,
        ),
        Layout("that folder itself", BATCHES, lambda folder: _arrays(folder.parent)),
        Layout(
            "cifar10.npz with the arrays x_train, y_train, x_test, y_test",
            ("cifar10.npz",),
            lambda folder: _arrays(folder / "cifar10.npz"),
        ),
        Layout(
            "strips of images: test/*.webp, test_labels.npy, test_index.npy, classes.txt",
            ("test", "test_labels.npy", "test_index.npy", "classes.txt"),
            compact.read_strips,
        ),
    ),
    "tiny_imagenet": (
        Layout(
            "the published tiny-imagenet-200 (wnids.txt, words.txt, val/images, val/val_annotations.txt)",
            ("wnids.txt", "words.txt", "val/images", "val/val_annotations.txt"),
            lambda folder: mg.read_tiny_imagenet(folder, "val"),
        ),
        Layout(
            "an archive: val.zip, labels.csv, classes.csv",
            ("val.zip", "labels.csv", "classes.csv"),
            compact.read_archive,
        ),
    ),
    "imagenet": (
        Layout(
            "a folder of photos with labels.csv (columns file, wnid, class_index, name)",
            ("labels.csv",),
            mg.read_photos,
            without="val.zip",
        ),
    ),
}
GET = {
    "cifar10": "fetch it with torchvision.datasets.CIFAR10(DIR, download=True), or make cifar10.npz of strips with "
    "tools/cifar10_npz.py",
    "tiny_imagenet": "fetch the published archive tiny-imagenet-200.zip and unpack it in DIR "
    "(tools/tiny_imagenet_folder.py makes that layout of zip files)",
    "imagenet": "put any photos in a folder of DIR, with a labels.csv that names the class of each",
}


def find(name: str, settings: Settings) -> tuple[Path, Layout]:
    """The folder of a data set and its layout; of several the first by name."""
    if not settings.data.is_dir():
        raise ValueError(f"--data must be a folder with the data sets, got {str(settings.data)!r}, which is no folder")
    for folder in _folders(settings.data):
        for layout in LAYOUTS[name]:
            if layout.here(folder):
                return folder, layout
    raise ValueError(_absent(name, settings.data))


def _folders(data: Path) -> Iterator[Path]:
    """The folder itself and those in it."""
    yield data
    yield from sorted(each for each in data.iterdir() if each.is_dir() and not each.name.startswith("."))


def _absent(name: str, data: Path) -> str:
    forms = "\n".join(f"  - {layout.words}" for layout in LAYOUTS[name])
    halves = [
        f"\n{folder} looks like {layout.words}, but lacks {_some(lacks)}."
        for folder in _folders(data)
        for layout in LAYOUTS[name]
        if len(lacks := layout.missing(folder)) < len(layout.marks) and lacks and not _other(name, folder)
    ]
    names = sorted(each.name + "/" * each.is_dir() for each in data.iterdir() if not each.name.startswith("."))
    return (
        f"{title(name)} must lie in {data} or in a folder of it, as one of\n{forms}\n"
        f"got none of these; {data} holds {_some(names)}.{''.join(halves)}\n"
        f"To get it: {GET[name]}. To do without it: --datasets with the others."
    )


def _other(name: str, folder: Path) -> bool:
    """Whether the folder is known to hold another data set: files may have the same names there."""
    return any(layout.here(folder) for other, forms in LAYOUTS.items() if other != name for layout in forms)


def _some(names: list[str]) -> str:
    return (", ".join(names[:LISTED]) or "nothing") + (
        f" and {len(names) - LISTED} more" if len(names) > LISTED else ""
    )
