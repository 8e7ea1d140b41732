"""Tensors and photos as the arrays that are drawn: planes (H, W) of numbers, photos (H, W, 3) in [0, 1].

Owns the scaling of maps and every check of what is to be drawn; draws nothing.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray

from moreaugrad import validate

Array: TypeAlias = NDArray[np.float64]

ALL_ZERO = (
    "map is all zero: eta is above every gradient entry; lower it or use sparsity= "
    "(without a prior: the score does not change with the input)"
)


@dataclass(frozen=True, slots=True)
class Plane:
    """One number per place, and the size that gets full colour.

    That size is the 99th percentile of all places, or the 90th of those that are not zero where that is
    larger: in a very sparse map the first is zero, or paints nearly all that was kept in one colour.
    """

    values: Array
    top: float  # 0 for a plane of zeros
    signed: bool

    @property
    def heat(self) -> Array:
        """In [0, 1], signed in [-1, 1]: a multiple of the values, clipped; zero stays zero."""
        return np.clip(self.values / self.top, -1, 1) if self.top else np.zeros_like(self.values)

    @property
    def clipped(self) -> bool:
        return bool((np.abs(self.values) > self.top).any())


def plane(drawing: Any, scale: float | None = None, signed: bool = False) -> Plane:
    """A map (C, H, W) or (H, W) with its channels summed, in size or, signed, as they are."""
    found = numbers(drawing)
    if found.ndim not in (2, 3):
        raise ValueError(f"a map must be (C, H, W) or (H, W) to be drawn, got {found.shape}; take one image, map[i]")
    return _scaled(found if found.ndim == 3 else found[None], (0,), scale, signed)


def row(drawing: Any, signed: bool = False) -> Plane:
    """A map (D,) or (T, ...) as one number per position; what lies behind the first axis is summed."""
    found = numbers(drawing)
    return _scaled(found, tuple(range(1, found.ndim)), None, signed)


def numbers(drawing: Any) -> Array:
    """As float64 on the CPU, where the smallest half-precision sums survive."""
    tensor = torch.as_tensor(drawing).detach().cpu()
    if tensor.numel() == 0 or tensor.ndim == 0 or tensor.is_complex():
        raise ValueError(f"a map must hold real numbers to be drawn, got shape {tuple(tensor.shape)}, {tensor.dtype}")
    found: Array = tensor.double().numpy()
    return found


def photo(image: Any) -> Array:
    """An RGB or grey picture: PIL, an array (H, W, 3), (H, W), or a tensor (3, H, W); 8-bit or in [0, 1]."""
    if hasattr(image, "convert"):  # PIL, without importing it
        image = np.asarray(image.convert("RGB"))
    found = torch.as_tensor(np.array(image) if isinstance(image, np.ndarray) else image).detach().cpu()
    first = isinstance(image, torch.Tensor)  # where each library keeps the channels
    if found.ndim == 2:
        found = found.unsqueeze(-1)
    elif found.ndim == 3 and found.shape[0] in (1, 3) and (first or found.shape[-1] not in (1, 3)):
        found = found.permute(1, 2, 0)
    if found.ndim != 3 or found.shape[-1] not in (1, 3):
        raise ValueError(
            f"an image must be (H, W, 3), (3, H, W) or (H, W), got {tuple(found.shape)}; convert it to RGB"
        )
    pixels: Array = found.double().numpy() / (255 if found.dtype == torch.uint8 else 1)
    _in_range("an image", pixels, "pass the photo itself, or undo the normalisation: x * std + mean")
    return np.clip(np.broadcast_to(pixels, (*pixels.shape[:2], 3)), 0, 1)


def mask(values: Any) -> Array:
    """A plane that is scaled already."""
    found = numbers(values)
    if found.ndim != 2:
        raise ValueError(f"a mask must be (H, W), got {found.shape}; make one with heat(map)")
    _in_range("a mask", found, "make one with heat(map)")
    return np.clip(found, 0, 1)


def same_size(image: Array, shape: tuple[int, ...]) -> None:
    if image.shape[:2] != shape:
        raise ValueError(
            f"an image must have the height and width of its map, {shape}, got {image.shape[:2]}; "
            "pass the picture as the model saw it, after resizing and cropping"
        )


def _scaled(found: Array, axes: tuple[int, ...], scale: float | None, signed: bool) -> Plane:
    if scale is not None:
        validate.positive("scale", scale)
    found = _drawable(found)
    values: Array = (found if signed else np.abs(found)).sum(axis=axes)
    if signed and found.any() and not values.any():
        _warn("the channels of the map cancel in their signed sum; draw it with signed=False")
    return Plane(values, _top(values) if scale is None else scale, signed)


def _drawable(found: Array) -> Array:
    bad = ~np.isfinite(found)
    if bad.any():
        _warn(f"map holds NaN or infinity in {bad.sum()} of {found.size} entries; they are drawn as zero")
        return np.where(bad, 0.0, found)
    if not found.any():
        _warn(ALL_ZERO)
    return found


def _warn(text: str) -> None:
    warnings.warn(text, UserWarning, stacklevel=6)  # the caller of heat


def _top(values: Array) -> float:
    sizes = np.abs(values)
    kept = sizes[sizes > 0]
    return float(max(np.percentile(sizes, 99), np.percentile(kept, 90))) if kept.size else 0.0


def _in_range(what: str, values: Array, way_out: str) -> None:
    low, high = float(values.min()), float(values.max())
    if not (low >= -0.01 and high <= 1.01):  # a little beyond, as undoing a normalisation leaves it; NaN is refused
        raise ValueError(f"{what} must lie in [0, 1], got values from {low:.3g} to {high:.3g}; {way_out}")
