"""Operations between a batch and one number per image, and on records of one row per image."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import fields, replace
from typing import Any, TypeVar

import torch
from torch import Tensor

from moreaugrad.types import Flags, Images, PerImage

Record = TypeVar("Record")


NO_DOUBLE = ("mps",)  # devices without float64


def widest(x: Tensor) -> torch.dtype:
    """The type in which sums over x are exact for all purposes: float64, or that of x where the device has none."""
    return x.dtype if x.device.type in NO_DOUBLE else torch.float64


def total(x: Images) -> PerImage:
    """Sum of each image, the same whatever else is in the batch.

    How a sum is split over threads depends on the shape of the batch; added up in float64 and rounded once,
    the order no longer shows. A last digit would: the kinks of a network amplify it.
    """
    return x.flatten(1).sum(1, dtype=widest(x)).to(x.dtype)


def norm(x: Images) -> PerImage:
    """Euclidean norm of each image."""
    return total(x.square()).sqrt()


def relative_error(map: Images, stderr: Images) -> PerImage:
    """Standard error of each map over the entries that it keeps, as a share of its norm; 0 for a map of zeros."""
    most = spread(map.flatten(1).abs().amax(1).clamp_min(torch.finfo(map.dtype).tiny), map)  # lest squares underflow
    error, size = norm(torch.where(map != 0, stderr / most, 0.0)), norm(map / most)
    return torch.where(size > 0, error / size, error)


def spread(number: PerImage | Flags, over: Images | Flags) -> Tensor:
    """One number per image, shaped to broadcast over a batch."""
    return number.view(-1, *[1] * (over.ndim - 1))


def allocate(part: Record, length: int) -> Record:
    """A record with room for `length` images, to be filled by `write_rows`, so that parts need not be kept."""
    made: Record = _change(part, lambda got: got.new_empty(length, *got.shape[1:]))
    return made


def write_rows(part: Record, into: Record, some: slice | Tensor) -> None:
    """Writes the record of some images where it belongs."""
    record: Any = part
    for each in fields(record):
        if isinstance(getattr(record, each.name), Tensor):
            getattr(into, each.name)[some] = getattr(record, each.name)


def take_rows(whole: Record, which: Tensor) -> Record:
    """The record of some of the images."""
    some: Record = _change(whole, lambda got: got[which])
    return some


def join_rows(values: Sequence[Any]) -> Any:
    """A field of several records: tensors, or tuples of them, one below the other; else what all agree on, or None."""
    kinds = {type(value) for value in values}
    if kinds == {Tensor}:
        return torch.cat(list(values))
    if kinds == {tuple} and all(isinstance(part, Tensor) for value in values for part in value):
        return tuple(map(torch.cat, zip(*values, strict=True)))
    return values[0] if Tensor not in kinds and all(value == values[0] for value in values) else None


def _change(record: Any, change: Callable[[Tensor], Tensor]) -> Any:
    values = {each.name: getattr(record, each.name) for each in fields(record)}
    return replace(record, **{name: change(got) for name, got in values.items() if isinstance(got, Tensor)})
