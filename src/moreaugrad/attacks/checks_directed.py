"""Checks of the regions and maps that an attack is led to, and of the pictures that have them."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from moreaugrad.validate import not_negative, positive

_REGIONS = "a boolean mask (H, W) or (N, H, W), or a box of left, top, right, bottom in pixels, one or one per image"
_MAPS = "(H, W), (N, H, W) or (N, C, H, W)"


def pictures(x: Tensor) -> None:
    """Inputs whose maps have places."""
    if x.ndim != 4:
        raise ValueError(f"this attack needs images (N, C, H, W), got inputs of shape {tuple(x.shape)}; use 'topk'")


def region(given: Any) -> Tensor:
    """A mask or boxes, as a tensor."""
    try:
        found = torch.as_tensor(given)
    except (TypeError, ValueError, RuntimeError):
        raise TypeError(f"region must be {_REGIONS}, got {type(given).__name__}") from None
    mask = found.dtype == torch.bool
    if (mask and found.ndim not in (2, 3)) or (not mask and (found.ndim not in (1, 2) or found.shape[-1] != 4)):
        raise ValueError(f"region must be {_REGIONS}, got a {found.dtype} tensor of shape {tuple(found.shape)}")
    return found


def region_fits(given: Tensor, x: Tensor) -> None:
    """A mask or boxes for these images."""
    plane = tuple(x.shape[-2:])
    if given.dtype == torch.bool and tuple(given.shape) not in (plane, (len(x), *plane)):
        raise ValueError(
            f"a mask must have the shape of the images, {plane} or {(len(x), *plane)}, got {tuple(given.shape)}"
        )
    if given.dtype != torch.bool and given.ndim == 2 and len(given) != len(x):
        raise ValueError(f"boxes must be one, or one per image, got {len(given)} for {len(x)} images")


def partial(inside: Tensor) -> None:
    """A region that holds some of each image, and not all of it."""
    share = inside.flatten(1).double().mean(1)
    if bool(((share == 0) | (share == 1)).any()):
        raise ValueError(
            f"region must hold some pixels of each image and not all, got {int((share == 0).sum())} empty and "
            f"{int((share == 1).sum())} whole ones for images of {inside.shape[-2]} x {inside.shape[-1]} pixels"
        )


def one_target(target_map: Any, target_image: Any) -> None:
    if (target_map is None) == (target_image is None):
        raise ValueError(
            "give either target_map, the map that is wanted, or target_image, whose own map is wanted, got "
            + ("none of them" if target_map is None else "both")
        )


def picture(name: str, given: Any) -> Tensor:
    """Finite numbers in a tensor."""
    try:
        found = torch.as_tensor(given)
    except (TypeError, ValueError, RuntimeError):
        raise TypeError(f"{name} must be a tensor or an array of numbers, got {type(given).__name__}") from None
    if found.is_complex() or not bool(found.isfinite().all()):
        raise ValueError(f"{name} must hold finite real numbers, got NaN, infinity or {found.dtype}")
    return found


def map_fits(given: Tensor, x: Tensor) -> None:
    """A map for these images, or one for all of them, with something in it."""
    plane = tuple(x.shape[-2:])
    rows = (1, len(x))
    if given.ndim not in (2, 3, 4) or tuple(given.shape[-2:]) != plane or (given.ndim > 2 and len(given) not in rows):
        raise ValueError(
            f"target_map must be {_MAPS} with one row or {len(x)} and {plane[0]} x {plane[1]} pixels as the images, "
            f"got shape {tuple(given.shape)}; resize it with torch.nn.functional.interpolate"
        )
    if not bool((given != 0).reshape(len(given) if given.ndim > 2 else 1, -1).any(1).all()):
        raise ValueError("target_map must have an entry that is not zero, got a map of zeros: it has no shares")


def image_fits(given: Tensor, x: Tensor) -> None:
    if tuple(given.shape) not in (tuple(x.shape), (1, *x.shape[1:]), tuple(x.shape[1:])):
        raise ValueError(
            f"target_image must have the shape of the inputs, {tuple(x.shape)}, or of one of them, "
            f"got {tuple(given.shape)}"
        )


def target_alive(h: Tensor) -> None:
    if not bool(h.flatten(1).any(1).all()):
        raise ValueError("the map of target_image must not be zero everywhere, got one that is; take another image")


def pair(name: str, given: Any, zero: bool) -> None:
    """Two numbers, positive or (zero) not negative."""
    if not isinstance(given, tuple | list) or len(given) != 2:
        raise ValueError(f"{name} must be two numbers, got {given!r}")
    for each in given:
        (not_negative if zero else positive)(name, each)
