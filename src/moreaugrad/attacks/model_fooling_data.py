"""The images and classes that model fooling trains on: pairs of tensors, or iterables of such pairs."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import torch
from jaxtyping import Int
from torch import Tensor

from moreaugrad.attacks.base import check_batch, read_classes
from moreaugrad.types import Images

Classes = Int[Tensor, "n"]
Pair = tuple[Images, Classes]
_FORM = "(x, y), images and their classes as two tensors, or an iterable of such pairs, as a DataLoader is"


def is_pair(name: str, given: Any) -> bool:
    """Whether data is one pair of tensors; refuses what is neither that nor an iterable."""
    if isinstance(given, tuple | list) and len(given) == 2 and all(isinstance(each, Tensor) for each in given):
        return True
    if isinstance(given, Tensor | str | dict) or not isinstance(given, Iterable):
        raise TypeError(f"{name} must be {_FORM}, got {type(given).__name__}")
    return False


def read_pairs(name: str, given: Any, device: torch.device, count: int = 2**31) -> Iterator[Pair]:
    """The pairs of the data on a device, with one of `count` classes for each image."""
    for each in [given] if is_pair(name, given) else given:
        if not isinstance(each, tuple | list) or len(each) != 2:
            raise TypeError(f"{name} must be {_FORM}, got {type(each).__name__} in it")
        x = check_batch(each[0])
        if each[1] is None:
            raise ValueError(f"{name} must hold a class for each image, got None")
        y = read_classes(each[1], torch.empty(1, 1, device=x.device).expand(len(x), count))
        yield x.detach().to(device), y.to(device)


def repeat_batches(
    name: str, given: Any, count: int, device: torch.device, batch_size: int, seed: int
) -> Iterator[Pair]:
    """Batches without end: tensors in random order, an iterable as it comes. One that can be read only once ends."""
    if is_pair(name, given):
        generator = torch.Generator().manual_seed(seed)
        ((x, y),) = read_pairs(name, given, given[0].device, count)
        while True:
            for some in torch.randperm(len(x), generator=generator).split(batch_size):
                yield x[some].to(device), y[some].to(device)
    more = True
    while more:
        more = False
        for each in read_pairs(name, given, device, count):
            more = True
            yield each
