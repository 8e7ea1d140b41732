"""CIFAR-10 as four arrays of 8-bit pixels and labels, from torchvision's folder or from an .npz file."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from moreaugrad.files import first_line

CLASSES = 10
NAMES = ("x_train", "y_train", "x_test", "y_test")


@dataclass(frozen=True, slots=True, eq=False)
class Arrays:
    """Training and test images of a data set in memory.

    Args:
        x_train: pixels of the training images, (N, H, W, 3), uint8.
        y_train: their labels, (N,), uint8.
        x_test: pixels of the test images, (M, H, W, 3), uint8.
        y_test: their labels, (M,), uint8.

    Example:
        >>> import numpy as np
        >>> images, labels = np.zeros((5, 32, 32, 3), np.uint8), np.arange(5, dtype=np.uint8)
        >>> mg.Arrays(images, labels, images[:2], labels[:2]).x_test.shape
        (2, 32, 32, 3)
    """

    x_train: NDArray[np.uint8]
    y_train: NDArray[np.uint8]
    x_test: NDArray[np.uint8]
    y_test: NDArray[np.uint8]

    def digest(self) -> str:
        return digest(*(getattr(self, name) for name in NAMES))


def digest(*arrays: NDArray[Any]) -> str:
    """Hash that is the same for the same images and labels in the same order."""
    found = sha256()
    for array in arrays:
        found.update(array.tobytes())
    return found.hexdigest()[:16]


def read_cifar10(path: str | Path) -> Arrays:
    """Read CIFAR-10 into memory.

    Args:
        path: a folder as torchvision keeps it, or an .npz file with x_train, y_train, x_test, y_test.

    Returns:
        `Arrays`: pixels (N, 32, 32, 3) and labels (N,), uint8.

    Example:
        >>> import numpy as np
        >>> images, labels = np.zeros((5, 32, 32, 3), np.uint8), np.arange(5)
        >>> np.savez("cifar10.npz", x_train=images, y_train=labels, x_test=images, y_test=labels)
        >>> mg.read_cifar10("cifar10.npz").x_train.shape
        (5, 32, 32, 3)
    """
    place = Path(path)
    if place.is_dir():
        return _read_folder(place)
    if not place.is_file():
        raise ValueError(
            f"data must be torchvision's CIFAR-10 folder or an .npz file, got {str(path)!r}: nothing there"
        )
    return _check_arrays(_read_npz(place), place)


def _check_arrays(found: Mapping[str, NDArray[Any]], source: object) -> Arrays:
    for half in ("train", "test"):
        x, y = found[f"x_{half}"], found[f"y_{half}"]
        where = f"{half} of {str(source)!r} must"
        if x.dtype != np.uint8 or x.shape[1:] != (32, 32, 3) or not len(x):
            raise ValueError(
                f"x_{where} be uint8 of shape (N, 32, 32, 3), N > 0, got {x.dtype} of shape {x.shape}; put the "
                "channels last, and leave the values at 0..255"
            )
        if y.dtype.kind not in "iu" or y.shape != x.shape[:1]:
            came = f"{y.dtype} of shape {y.shape}"
            raise ValueError(f"y_{where} be whole numbers of shape ({len(x)},), one per image, got {came}")
        if y.min() < 0 or y.max() >= CLASSES:
            raise ValueError(f"y_{where} lie in 0..{CLASSES - 1}, got labels from {y.min()} to {y.max()}")
    return Arrays(**{name: np.ascontiguousarray(found[name].astype(np.uint8, copy=False)) for name in NAMES})


def _read_npz(path: Path) -> dict[str, NDArray[Any]]:
    try:
        with path.open("rb") as handle, np.load(handle, allow_pickle=False) as file:
            names = list(getattr(file, "files", ()))
            found = {name: file[name] for name in NAMES if name in names}
    except Exception as error:  # whatever damage makes numpy or zip raise
        raise ValueError(f"data must be a readable .npz file, got {str(path)!r}: {first_line(error)}") from None
    if missing := [name for name in NAMES if name not in found]:
        raise ValueError(f"data must hold the arrays {list(NAMES)}, got {str(path)!r} without {missing}")
    return found


def _read_folder(folder: Path) -> Arrays:
    from torchvision.datasets import CIFAR10

    try:
        halves = {half: CIFAR10(str(folder), train=half == "train", download=False) for half in ("train", "test")}
    except RuntimeError:  # torchvision's word for files that are missing or damaged
        raise ValueError(
            f"data must be a folder that holds torchvision's CIFAR-10 (cifar-10-batches-py), got {str(folder)!r} "
            f"without it; fetch it with torchvision.datasets.CIFAR10({str(folder)!r}, download=True)"
        ) from None
    found = {f"x_{half}": one.data for half, one in halves.items()}
    return _check_arrays(found | {f"y_{half}": np.asarray(one.targets) for half, one in halves.items()}, folder)
