"""Images of a study, a block at a time: tensors, files, or arrays of pixels; and fingerprints of images and weights."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

import numpy as np
import torch
from torch import Tensor, nn

from moreaugrad import validate
from moreaugrad.data.images import read_image
from moreaugrad.models.classifier import Classifier
from moreaugrad.types import Images


@runtime_checkable
class Source(Protocol):
    """Preprocessed images of one shape, loaded a block at a time.

    Implement these three members to study images that do not fit in memory.
    """

    @property
    def keys(self) -> Sequence[str]:
        """One name per image, as the rows of a study report it."""
        ...

    def load(self, some: slice) -> Images:
        """Load a block of images.

        Args:
            some: which images, by their places in `keys`.

        Returns:
            The images as the network takes them, (n, C, H, W).
        """
        ...

    def digest(self) -> str:
        """The same for the same images in the same order."""
        ...


@dataclass(frozen=True, eq=False)
class TensorSource:
    """Preprocessed images in memory, for `run_study`.

    Args:
        x: images as the network takes them, (N, C, H, W).
        names: one name per image for the rows of the study; default: their numbers.

    Raises:
        ValueError: if there are names, but not one per image.

    Example:
        >>> source = mg.TensorSource(x, names=["cat", "dog"])
        >>> source.keys, source.load(slice(0, 1)).shape
        (['cat', 'dog'], torch.Size([1, 3, 16, 16]))
    """

    x: Images
    names: Sequence[str] = ()

    def __post_init__(self) -> None:
        x = validate.one_input(self.x)
        if not isinstance(self.names, Sequence) or isinstance(self.names, str):
            raise TypeError(f"names must be a list with one name per image, got {self.names!r}")
        if self.names and len(self.names) != len(x):
            raise ValueError(f"names must be one per image, got {len(self.names)} for {len(x)} images")

    @property
    def keys(self) -> Sequence[str]:
        return self.names or [str(number) for number in range(len(self.x))]

    def load(self, some: slice) -> Images:
        """Load a block of images.

        Args:
            some: which images.

        Returns:
            The images, (n, C, H, W).
        """
        return self.x[some]

    def digest(self) -> str:
        return _digest([str((tuple(self.x.shape), self.x.dtype)).encode(), *map(_bytes, self.x)])


@dataclass(frozen=True, eq=False)
class PictureSource:
    """Pictures as a classifier sees them. All are read once here, so unreadable ones are reported before work starts.

    Args:
        pictures: files, or arrays of 8-bit pixels (H, W, 3).
        keys: one name per picture.
        classifier: the model whose preprocessing is used.
    """

    pictures: Sequence[Any]
    keys: Sequence[str]
    classifier: Classifier

    def __post_init__(self) -> None:
        for each in self.pictures:
            read_image(each)

    def load(self, some: slice) -> Images:
        rows = [self.classifier.preprocess(read_image(each)) for each in self.pictures[some]]
        if len({row.shape for row in rows}) > 1:
            raise ValueError(
                f"images must have one size after preprocess, got {sorted({tuple(r.shape) for r in rows})}"
            )
        return torch.stack(rows)

    def digest(self) -> str:
        return _digest(
            sha256(each.read_bytes()).digest() if isinstance(each, Path) else np.ascontiguousarray(each).tobytes()
            for each in self.pictures
        )


def fingerprint(model: Any) -> str | None:
    """A digest of the weights, bit by bit; None for a plain function."""
    if not isinstance(model, nn.Module):
        return None
    return _digest(part for name, each in model.state_dict().items() for part in (name.encode(), _bytes(each)))


def _bytes(tensor: Tensor) -> Any:
    return tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy()


def _digest(parts: Iterable[Any]) -> str:
    found = sha256()
    for part in parts:
        found.update(part)
    return found.hexdigest()[:16]
