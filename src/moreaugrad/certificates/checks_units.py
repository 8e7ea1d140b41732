"""Checks of what a certificate speaks of: the units of a map, the top of them, the grid, another map."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from moreaugrad.validate import at_least, one_of

UNITS = dict.fromkeys(("pixels", "entries", "groups"))


def ranked_by(units: str | None, grouped: bool, pixels: bool, grid: bool) -> str:
    """What is ranked; by itself groups where there are some, else pixels where there are some."""
    if units is None:
        return "groups" if grouped and not grid else "pixels" if pixels else "entries"
    one_of("units", units, UNITS)
    if (units == "groups" and (not grouped or grid)) or (units == "pixels" and not pixels):
        raise ValueError(
            f"units must be groups for methods with groups and no grid, pixels for images, or entries, got {units!r}"
        )
    return units


def share_of_top(k: Any, units: int) -> int:
    """How many units are the top: a tenth unless told."""
    if k is None:
        return max(1, round(units / 10))
    at_least("k", k, 1)
    if k > units:
        raise ValueError(f"k must be at most the number of units, got {k} of {units}")
    return int(k)


def finite_map(found: Tensor) -> None:
    if not bool(torch.isfinite(found).all()):
        raise ValueError("the map must be finite to be certified, got NaN or infinity; check the network's outputs")


def like_map(other: Tensor, found: Tensor) -> Tensor:
    other = torch.as_tensor(other).detach()
    if other.numel() != found.numel():
        raise ValueError(
            f"the other map must have the shape of the certified one, {tuple(found.shape)}, got {tuple(other.shape)}"
        )
    return other.reshape(found.shape).to(found)


def grid(cells: int, image: tuple[int, ...]) -> None:
    at_least("grid", cells, 1)
    if len(image) != 3 or image[1] % cells or image[2] % cells:
        raise ValueError(f"grid must divide the height and width of (channels, height, width), got {cells} for {image}")
