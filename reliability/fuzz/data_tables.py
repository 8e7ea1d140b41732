"""Data sets whose tables or arrays are damaged: photos with labels, Tiny-ImageNet, CIFAR-10, and names of classes."""

from __future__ import annotations

import random
from functools import cache
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np

import moreaugrad as mg
from moreaugrad.models.labels import read_labels
from reliability.fuzz.case import Case
from reliability.fuzz.damage import VALUES, spoil
from reliability.fuzz.image_files import list_samples

LABELS = b"file,class_index,wnid,name\na.png,281,n02123045,tabby\nb.png,0,n01440764,tench\n"
WNIDS, WORDS = b"n02123045\nn01440764\n", b"n02123045\ttabby, tabby cat\nn01440764\ttench\n"
BOXES = b"v0.JPEG\tn02123045\t0\t1\t3\t4\nv1.JPEG\tn01440764\t2\t2\t2\t2\n"
NAMES = (b"cat\ndog\nbird\n", b'["cat", "dog", "bird"]', b'{"0": "cat", "1": ["n1", "dog"], "2": "bird"}')
CELLS = (
    *(
        b"",
        b"-1",
        b"1e3",
        b"99999",
        b"9" * 5000,
        "\u0663".encode(),
        b"nan",
        b"../../x",
        b"/etc/hostname",
        b"a\0b",
        b".",
    ),
    *(b'"', b'"\n"', b"x" * 200_000, b"\xff\xfe", b",,,,", b"\t\t\t", b"\r", b"\xef\xbb\xbf", b"\n\n\n", b"[" * 5000),
)


def make_table_case(chance: random.Random) -> Case:
    make = chance.choice((_make_photos, _make_tiny_imagenet, _make_cifar10, _make_labels))
    return make(chance)


def _spoil_table(chance: random.Random, content: bytes) -> bytes:
    """Damage anywhere, or another word in place of one."""
    if chance.random() < 0.4:
        return spoil(chance, content)
    words = content.split()
    return content.replace(chance.choice(words), chance.choice(CELLS), 1)


def _make_photos(chance: random.Random) -> Case:
    table = _spoil_table(chance, LABELS)

    def run(folder: Path) -> object:
        for name in ("a.png", "b.png"):
            (folder / name).write_bytes(list_samples()["png"].content)
        (folder / "labels.csv").write_bytes(table)
        return mg.read_photos(folder)

    return Case(f"a table of photos: {table[:60]!r}", run, _check_listing)


def _make_tiny_imagenet(chance: random.Random) -> Case:
    files = {"wnids.txt": WNIDS, "words.txt": WORDS, "val/val_annotations.txt": BOXES}
    spoilt = chance.choice(list(files))
    files[spoilt] = _spoil_table(chance, files[spoilt])
    split = chance.choice(("train", "val", "val"))

    def run(folder: Path) -> object:
        photo = list_samples()["jpeg"].content
        pictures = {f"val/images/v{number}.JPEG": photo for number in range(2)}
        pictures |= {f"train/{wnid}/images/{wnid}_0.JPEG": photo for wnid in WNIDS.decode().split()}
        for name, content in (files | pictures).items():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).write_bytes(content)
        return mg.read_tiny_imagenet(folder, split)

    return Case(f"Tiny-ImageNet with another {spoilt}, {split}", run, _check_listing)


def _check_listing(found: Any) -> str | None:
    if not len(found) == len(found.labels) == len(found.keys) or len(set(found.keys)) != len(found.keys):
        return "keys or labels that do not fit the images"
    if not all(0 <= label < len(found.classes) for label in found.labels.tolist()):
        return f"labels {found.labels} for {len(found.classes)} classes"
    whole = found.boxes is None or bool(np.isfinite(found.boxes).all())
    return None if whole else f"boxes that are not finite: {found.boxes}"


@cache
def _pack_cifar10() -> bytes:
    images, labels = np.zeros((3, 32, 32, 3), np.uint8), np.arange(3)
    np.savez_compressed(stored := BytesIO(), x_train=images, y_train=labels, x_test=images, y_test=labels)
    return stored.getvalue()


def _make_cifar10(chance: random.Random) -> Case:
    content = spoil(chance, _pack_cifar10())
    if chance.random() < 0.3:
        content = _pack_odd_arrays(chance)

    def run(folder: Path) -> object:
        (path := folder / "cifar10.npz").write_bytes(content)
        return mg.read_cifar10(path)

    return Case("CIFAR-10 that is damaged", run, _check_arrays)


def _pack_odd_arrays(chance: random.Random) -> bytes:
    images, labels = np.zeros((3, 32, 32, 3), np.uint8), np.arange(3)
    arrays: dict[str, Any] = {"x_train": images, "y_train": labels, "x_test": images, "y_test": labels}
    odd = chance.choice((*VALUES, images[:0], images.astype(float), labels + 0.5, labels - 9, labels[:, None], 3j))
    arrays[chance.choice(list(arrays))] = np.array(odd, object) if chance.random() < 0.2 else odd
    try:
        np.savez(stored := BytesIO(), **arrays)
    except (ValueError, TypeError, OverflowError):  # ragged, or too large for NumPy
        return b""
    return stored.getvalue()


def _check_arrays(found: Any) -> str | None:
    right = found.x_train.shape[1:] == (32, 32, 3) and len(found.x_train) == len(found.y_train)
    return None if right and int(found.y_train.max()) < 10 else "arrays of other shapes"


def _make_labels(chance: random.Random) -> Case:
    content = _spoil_table(chance, chance.choice(NAMES))

    def run(folder: Path) -> object:
        (path := folder / "labels.txt").write_bytes(content)
        return read_labels(path)

    def check(found: Any) -> str | None:
        return None if found and all(isinstance(each, str) for each in found) else f"labels {found!r}"

    return Case(f"names of classes: {content[:60]!r}", run, check)
