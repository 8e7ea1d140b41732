"""Which output of a network is explained: every target form of Captum, for any subset of rows."""

from __future__ import annotations

from typing import Any

import torch
from jaxtyping import Int
from torch import Tensor

from moreaugrad.types import Target

Owners = Int[Tensor, "r"]


def shared_by_all(target: Target) -> bool:
    """Whether one target serves every image (None, an int, a tuple, or a one-element tensor)."""
    return target is None or isinstance(target, int | tuple) or (isinstance(target, Tensor) and target.numel() == 1)


def placed(target: Target, x: Tensor) -> Target:
    """The same target where the images are: once, for in every step the host would wait for the device."""
    if isinstance(target, Tensor) and target.numel() == 1:
        return int(target)
    if isinstance(target, list) and isinstance(target[0], int):
        return torch.tensor(target, device=x.device)
    return target


def take(target: Target, owners: Owners) -> Target:
    """The targets of the images `owners`, one per row."""
    if shared_by_all(target):
        return target
    if isinstance(target, Tensor):
        return target.to(owners.device)[owners]
    return [target[i] for i in owners.tolist()]


def select(output: Tensor, target: Target) -> Tensor:
    """One number per row of the output."""
    if target is None:
        return output.reshape(len(output))
    if isinstance(target, Tensor) and target.numel() == 1:
        target = int(target.item())
    if isinstance(target, int):
        return output[:, target]
    if isinstance(target, tuple):
        return output[(slice(None), *target)]
    if isinstance(target, list) and isinstance(target[0], tuple):
        return torch.stack([output[(row, *index)] for row, index in enumerate(target)])
    columns = torch.as_tensor(target, device=output.device, dtype=torch.long) % output.shape[1]
    return output.gather(1, columns.view(-1, 1)).squeeze(1)


def row_of(argument: Any, owners: Owners, images: int) -> Any:
    """An additional forward argument for the rows of `owners`: tensors with one row per image follow it."""
    if isinstance(argument, Tensor) and argument.ndim >= 1 and len(argument) == images:
        return argument[owners.to(argument.device)]
    return argument
