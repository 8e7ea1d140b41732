"""The operations between a batch and one number per image that everyone needs."""

from __future__ import annotations

from dataclasses import fields
from typing import Any, TypeVar

import torch
from torch import Tensor

from moreaugrad.types import Flags, Images, PerImage

Record = TypeVar("Record")


def total(x: Images) -> PerImage:
    """Sum of each image, the same in any company.

    How a sum is split over threads depends on the shape of the batch; added up in float64 and rounded once,
    the order no longer shows. A last digit would: the kinks of a network amplify it.
    """
    wide = x.dtype if x.device.type == "mps" else torch.float64
    return x.flatten(1).sum(1, dtype=wide).to(x.dtype)


def norm(x: Images) -> PerImage:
    """Euclidean norm of each image."""
    return total(x.square()).sqrt()


def spread(number: PerImage | Flags, over: Images | Flags) -> Tensor:
    """One number per image, shaped to broadcast over a batch."""
    return number.view(-1, *[1] * (over.ndim - 1))


def roomy(part: Record, length: int) -> Record:
    """A record with room for `length` images, to be filled by `put`: parts need not be kept until all are there."""
    record: Any = part
    columns = {each.name: getattr(record, each.name) for each in fields(record)}
    room: Record = type(record)(
        **{name: None if got is None else got.new_empty(length, *got.shape[1:]) for name, got in columns.items()}
    )
    return room


def put(part: Record, into: Record, some: slice | Tensor) -> None:
    """Writes the record of some images where it belongs."""
    record: Any = part
    for each in fields(record):
        if getattr(record, each.name) is not None:
            getattr(into, each.name)[some] = getattr(record, each.name)


def taken(whole: Record, which: Tensor) -> Record:
    """The record of some of the images."""
    record: Any = whole
    columns = {each.name: getattr(record, each.name) for each in fields(record)}
    some: Record = type(record)(**{name: None if got is None else got[which] for name, got in columns.items()})
    return some
