"""Names of classes: from files, and those of the data sets that networks were trained on."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from moreaugrad.files import parse_json, read_text

CIFAR10 = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")


def read_labels(source: str | Path | Sequence[str]) -> list[str]:
    """One label per line, a JSON list, or a JSON object from index to name (or from name to index)."""
    if not isinstance(source, str | Path):
        try:
            return [str(label) for label in source]
        except TypeError:
            raise TypeError(f"labels must be a list of names, or a file with them, got {source!r}") from None
    text = read_text(source, "labels")
    if text.lstrip()[:1] in ("[", "{"):
        try:
            found = _labels_from_json(parse_json(text))
        except (ValueError, TypeError, KeyError) as error:
            raise ValueError(
                f"labels in JSON must be a list of names, or an object with every index from 0, got {str(source)!r}: "
                f"{error}"
            ) from None
    else:
        found = [line.strip() for line in text.rstrip().splitlines()]
    if not found:
        raise ValueError(f"labels must name at least one class, got the empty file {str(source)!r}")
    return found


def cifar10_labels(classes: int) -> Sequence[str] | None:
    """The names of CIFAR-10's classes, where there are as many."""
    return CIFAR10 if classes == len(CIFAR10) else None


def imagenet_labels(classes: int) -> list[str] | None:
    """The names of ImageNet-1K, or of the larger set that has this many classes."""
    if classes == 1000:
        from torchvision.models import ResNet18_Weights

        return list(ResNet18_Weights.DEFAULT.meta["categories"])
    from timm.data import ImageNetInfo, infer_imagenet_subset

    subset = infer_imagenet_subset({"num_classes": classes})
    return list(ImageNetInfo(subset).label_descriptions()) if subset else None


def _labels_from_json(found: Any) -> list[str]:
    if isinstance(found, list):
        return [str(name) for name in found]
    if all(isinstance(value, int) for value in found.values()):
        found = {index: name for name, index in found.items()}
    by_index = {int(index): name for index, name in found.items()}
    if sorted(by_index) != list(range(len(by_index))):
        raise ValueError(f"indices {sorted(by_index)[:5]}... have gaps")
    names = (by_index[index] for index in range(len(by_index)))
    return [str(name[-1] if isinstance(name, list) else name) for name in names]  # ["n01440764", "tench"]
