"""Images of a study, a block at a time: tensors, files, or arrays of pixels. Each has a key, and all a digest, as the
weights of a model have."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from moreaugrad import validate
from moreaugrad.data.images import read_image
from moreaugrad.models.classifier import Classifier
from moreaugrad.types import Images


@runtime_checkable
class Source(Protocol):
    """Preprocessed images, of one shape."""

    @property
    def keys(self) -> Sequence[str]: ...

    def load(self, some: slice) -> Images: ...

    def digest(self) -> str:
        """The same for the same images in the same order."""
        ...


@dataclass(frozen=True, eq=False)
class Tensors:
    """Images that are in memory, and preprocessed."""

    x: Images
    names: Sequence[str] = field(default=())

    def __post_init__(self) -> None:
        (x,) = validate.inputs(self.x)
        if self.names and len(self.names) != len(x):
            raise ValueError(f"names must be one per image, got {len(self.names)} for {len(x)} images")

    @property
    def keys(self) -> Sequence[str]:
        return self.names or [str(number) for number in range(len(self.x))]

    def load(self, some: slice) -> Images:
        return self.x[some]

    def digest(self) -> str:
        found = sha256(str((tuple(self.x.shape), self.x.dtype)).encode())
        for row in self.x:
            found.update(row.detach().cpu().contiguous().view(torch.uint8).numpy())
        return found.hexdigest()[:16]


@dataclass(frozen=True, eq=False)
class Files:
    """Image files, as a classifier sees them; every one is opened here, so that a bad one is told at once."""

    paths: Sequence[Path]
    keys: Sequence[str]
    classifier: Classifier

    def __post_init__(self) -> None:
        for path in self.paths:
            read_image(path)

    def load(self, some: slice) -> Images:
        rows = [self.classifier.preprocess(read_image(path)) for path in self.paths[some]]
        if len({row.shape for row in rows}) > 1:
            raise ValueError(
                f"images must have one size after preprocess, got {sorted({tuple(r.shape) for r in rows})}"
            )
        return torch.stack(rows)

    def digest(self) -> str:
        found = sha256()
        for path in self.paths:
            found.update(sha256(path.read_bytes()).digest())
        return found.hexdigest()[:16]


@dataclass(frozen=True, eq=False)
class Pixels:
    """8-bit pixels (N, H, W, 3), as a classifier sees them."""

    values: NDArray[np.uint8]
    classifier: Classifier

    @property
    def keys(self) -> Sequence[str]:
        return [str(number) for number in range(len(self.values))]

    def load(self, some: slice) -> Images:
        return torch.stack([self.classifier.preprocess(read_image(row)) for row in self.values[some]])

    def digest(self) -> str:
        return sha256(np.ascontiguousarray(self.values).tobytes()).hexdigest()[:16]


def fingerprint(model: Any) -> str | None:
    """Of the weights, bit by bit; None for a plain function."""
    if not isinstance(model, nn.Module):
        return None
    found = sha256()
    for name, tensor in model.state_dict().items():
        found.update(name.encode())
        found.update(tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy())
    return found.hexdigest()[:16]
