"""The operations between a batch and one number per image that everyone needs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields
from typing import Any, TypeVar

import torch
from torch import Tensor

from moreaugrad.contracts import Flags, Images, PerImage

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


def joined(parts: Sequence[Record]) -> Record:
    """The record of a batch from the records of its parts: every tensor put together, image by image."""
    first: Any = parts[0]
    columns = {each.name: [getattr(part, each.name) for part in parts] for each in fields(first)}
    whole: Record = type(first)(**{name: None if got[0] is None else torch.cat(got) for name, got in columns.items()})
    return whole


def taken(whole: Record, which: Tensor) -> Record:
    """The record of some of the images."""
    record: Any = whole
    columns = {each.name: getattr(record, each.name) for each in fields(record)}
    some: Record = type(record)(**{name: None if got is None else got[which] for name, got in columns.items()})
    return some
