"""Checks of maps that are measured, and of what metrics are told."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from numbers import Integral
from typing import Any

import torch
from torch import Tensor, nn

from moreaugrad import validate as options
from moreaugrad.envelope.groups import check_groups
from moreaugrad.registry import unknown


def maps(name: str, given: Any) -> None:
    """A batch of real maps."""
    if not isinstance(given, Tensor):
        way = (
            "pass explanation.map"
            if hasattr(given, "map")
            else "use torch.as_tensor, and measure parts of a tuple apart"
        )
        raise TypeError(f"{name} must be a tensor of maps (N, ...), got {type(given).__name__}; {way}")
    if given.is_complex():
        raise TypeError(f"{name} must hold real numbers, got {given.dtype}; measure its .abs() or .real")
    if given.ndim < 2 or given.numel() == 0:
        raise ValueError(
            f"{name} must hold at least one map behind a batch axis, got shape {tuple(given.shape)}; "
            "add the batch axis of a single map with map.unsqueeze(0)"
        )


def alike(a: Tensor, b: Tensor) -> None:
    """Two batches that can be compared entry by entry."""
    if a.shape != b.shape:
        raise ValueError(
            f"maps must have one shape to be compared, got {tuple(a.shape)} and {tuple(b.shape)}; "
            "sum the channels (map.abs().sum(1, keepdim=True)) or resize the smaller one first"
        )
    one_device(a, b)


def one_device(a: Tensor, b: Tensor) -> None:
    if a.device != b.device:
        raise ValueError(f"maps and what they are held against must be on one device, got {a.device} and {b.device}")


def pictures(shape: tuple[int, ...]) -> None:
    if len(shape) not in (3, 4):
        raise ValueError(f"maps must be pictures (N, C, H, W) or (N, H, W) for this metric, got shape {shape}")


def large(shape: tuple[int, ...], least: int) -> None:
    if min(shape[-2:]) < least:
        raise ValueError(
            f"maps must be at least {least} x {least} for a window of that size, got {shape[-2]} x {shape[-1]}; "
            "enlarge them first: torch.nn.functional.interpolate(map, size=(224, 224), mode='bilinear')"
        )


def yes_or_no(name: str, given: object) -> None:
    if not isinstance(given, bool):
        raise TypeError(f"{name} must be True or False, got {given!r}")


def top(name: str, k: Any, entries: int) -> None:
    """How many entries count as the top ones: a share, a number, or None."""
    if k is None:
        return
    options.number(name, k)
    if isinstance(k, Integral):
        if not 1 <= int(k) <= entries:
            raise ValueError(
                f"{name} must be 1 to {entries}, the number of entries of a map, got {k}; a share is written as a "
                f"float: {name}=0.25"
            )
    elif not 0 < k <= 1:
        raise ValueError(
            f"{name} must be in (0, 1] as a share of the entries, got {k!r}; a number is written as an int"
        )


def tolerance(tol: Any) -> None:
    options.number("tol", tol)
    if not 0 <= tol < 1:
        raise ValueError(f"tol must be in [0, 1), a share of the largest entry, got {tol!r}; 0 counts exact zeros")


def groups(given: Any, shape: tuple[int, ...]) -> None:
    if isinstance(given, str) and given != "channels":
        raise ValueError(
            f"groups must be a number of cells per side, 'channels' or a label map, got {given!r}; superpixels are "
            "those of the image, which a map does not show: pass their label map"
        )
    check_groups(given, shape)


def fits(maps: tuple[int, ...], x: tuple[int, ...]) -> None:
    """Maps that say something of each pixel of these images."""
    if len(x) != 4:
        raise ValueError(f"x must be images (N, C, H, W), got shape {x}")
    pictures(maps)
    if maps[0] != x[0] or maps[-2:] != x[-2:]:
        raise ValueError(
            f"maps must have one number or more per pixel of x, got maps of shape {maps} for images of shape {x}; "
            "resize small maps with torch.nn.functional.interpolate"
        )


def known(given: Iterable[str], names: Sequence[str]) -> None:
    for name in given:
        if name not in names:
            raise unknown("option", name, list(names))


def seeds(given: Any) -> None:
    if not isinstance(given, tuple | list | range) or not given:
        raise TypeError(f"seeds must be a tuple of at least one whole number, got {given!r}")
    for each in given:
        options.at_least("seeds", each, 0)


def function(name: str, given: Any, takes: str, gives: str) -> None:
    if not callable(given):
        raise TypeError(f"{name} must be a function of {takes} that returns {gives}, got {type(given).__name__}")


def explained(found: Any, shape: tuple[int, ...] | None, images: int) -> Tensor:
    """What an explainer returned: one map per image, of the same shape at every call."""
    if not isinstance(found, Tensor):
        way = "; return its .map" if hasattr(found, "map") else ""
        raise TypeError(f"the explainer must return a tensor of maps, got {type(found).__name__}{way}")
    maps("the explainer's result", found)
    wanted = (images, "...") if shape is None else shape
    if len(found) != images or (shape is not None and tuple(found.shape) != shape):
        raise ValueError(f"the explainer must return maps of shape {wanted}, got {tuple(found.shape)}")
    return found


def module(model: Any) -> None:
    if not isinstance(model, nn.Module):
        raise TypeError(
            f"model must be a torch.nn.Module, whose weights can be made random in a copy, got {type(model).__name__}"
        )


def parametrised(layers: Sequence[Any]) -> None:
    if not layers:
        raise ValueError("model must have parameters to be made random, got none; quantised weights cannot be drawn")


def pair_metric(name: str, needs: str) -> None:
    if needs != "pair":
        raise ValueError(f"metric must compare two maps, got {name!r}, which needs {needs}; take 'spearman' or 'ssim'")


def mask(given: Tensor, shape: tuple[int, ...]) -> None:
    if tuple(given.shape) != (shape[0], *shape[-2:]):
        raise ValueError(f"a mask of objects must have shape {(shape[0], *shape[-2:])}, got {tuple(given.shape)}")


def boxes(given: Any, images: int) -> list[Tensor]:
    """One tensor (M, 4) per image: left, top, right, bottom."""
    ways = (
        "a tensor (N, 4) of left, top, right, bottom, a boolean mask (N, H, W), or a list with the boxes of each image"
    )
    if not isinstance(given, Tensor | list | tuple):
        raise TypeError(f"boxes must be {ways}, got {type(given).__name__}")
    if len(given) != images:
        raise ValueError(f"boxes must be given for each image, got {len(given)} for {images} images")
    return [_boxes(each, ways) for each in given]


def _boxes(given: Any, ways: str) -> Tensor:
    try:
        found = torch.as_tensor(given, dtype=torch.float32, device="cpu")
    except (TypeError, ValueError, RuntimeError):
        raise TypeError(f"boxes must be {ways}, got {given!r} for an image") from None
    if found.numel() == 0:
        return found.reshape(0, 4)
    if found.shape[-1] != 4 or found.ndim > 2:
        raise ValueError(f"boxes must be {ways}, got shape {tuple(found.shape)} for an image")
    found = found.reshape(-1, 4)
    for left, upper, right, lower in found.tolist():
        if not (left < right and upper < lower):
            raise ValueError(
                f"a box must be left, top, right, bottom with left < right and top < bottom, "
                f"got {(left, upper, right, lower)}; of x, y, width, height make x, y, x + width, y + height"
            )
    return found
