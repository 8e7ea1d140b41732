"""CIFAR-10 in strips -> one .npz file for `moreaugrad train cifar10 --data`.

    python tools/cifar10_npz.py FOLDER OUT.npz

FOLDER holds train/*.webp and test/*.webp, each a lossless strip of 32 x 32 images stacked top to bottom, and
train_labels.npy and test_labels.npy, the labels in the order of the sorted strips. Needs Pillow with WebP.
"""

from __future__ import annotations

import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PIL import Image


def strip(path: Path) -> NDArray[np.uint8]:
    """The images of one strip."""
    with Image.open(path) as picture:
        pixels = np.asarray(picture.convert("RGB"))
    if pixels.shape[1] != 32 or pixels.shape[0] % 32:
        raise SystemExit(f"{path} must be 32 pixels wide and a multiple of 32 high, got {pixels.shape[1::-1]}")
    return pixels.reshape(-1, 32, 32, 3)


def half(folder: Path, name: str) -> tuple[NDArray[np.uint8], NDArray[np.uint8]]:
    """Images and labels of "train" or "test"."""
    paths = sorted((folder / name).glob("*.webp"))
    if not paths:
        raise SystemExit(f"{folder / name} must hold strips (*.webp), got none")
    with ThreadPoolExecutor() as pool:
        x = np.concatenate(list(pool.map(strip, paths)))
    y = np.load(folder / f"{name}_labels.npy", allow_pickle=False).astype(np.uint8)
    if len(x) != len(y):
        raise SystemExit(f"{name} must have one label per image, got {len(x)} images and {len(y)} labels")
    return x, y


def main(arguments: list[str]) -> None:
    if len(arguments) != 2:
        raise SystemExit("usage: python tools/cifar10_npz.py FOLDER OUT.npz")
    folder, out = map(Path, arguments)
    (x_train, y_train), (x_test, y_test) = half(folder, "train"), half(folder, "test")
    with out.open("wb") as file:  # a handle: savez would add an ending of its own
        np.savez(file, x_train=x_train, y_train=y_train, x_test=x_test, y_test=y_test)


if __name__ == "__main__":
    main(sys.argv[1:])
