"""Maps as numbers to be drawn: what is summed, and the size that gets full colour."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray

Array: TypeAlias = NDArray[np.float64]

ALL_ZERO = (
    "map is all zero: eta is above every gradient entry; lower it or use sparsity= "
    "(without a prior: the score does not change with the input)"
)


@dataclass(frozen=True, slots=True)
class ScaledMap:
    """One number per pixel, and the size that gets full colour.

    That size is the 99th percentile of all pixels, or the 90th of those that are not zero where that is
    larger: in a very sparse map the first is zero, or paints nearly all that was kept in one colour.
    """

    values: Array
    top: float  # 0 for a map of zeros
    signed: bool

    @property
    def heat(self) -> Array:
        """In [0, 1], signed in [-1, 1]: a multiple of the values, clipped; zero stays zero."""
        return np.clip(self.values / self.top, -1, 1) if self.top else np.zeros_like(self.values)

    @property
    def shape(self) -> tuple[int, ...]:
        return self.values.shape

    @property
    def limits(self) -> tuple[float, float]:
        top = self.top or 1.0
        return (-top if self.signed else 0.0, top)


def scale_map(drawing: Any, signed: bool = False) -> ScaledMap:
    """A map (C, H, W) or (H, W) with its channels summed, in size or, signed, as they are."""
    found = to_array(drawing)
    if found.ndim not in (2, 3):
        raise ValueError(f"a map must be (C, H, W) or (H, W) to be drawn, got {found.shape}; take one image, map[i]")
    return sum_and_scale(found if found.ndim == 3 else found[None], (0,), signed)


def to_array(drawing: Any) -> Array:
    """A map as float64 on the CPU, where the smallest half-precision sums survive."""
    tensor = torch.as_tensor(drawing)
    if tensor.numel() == 0 or tensor.ndim == 0 or tensor.is_complex():
        raise ValueError(f"a map must hold real numbers to be drawn, got shape {tuple(tensor.shape)}, {tensor.dtype}")
    return np.asarray(tensor.double().numpy(force=True))


def sum_and_scale(found: Array, axes: tuple[int, ...], signed: bool) -> ScaledMap:
    """The sum over some axes, in size or, signed, as it is; what is not finite counts as zero."""
    bad = ~np.isfinite(found)
    if bad.any():
        _warn(f"map holds NaN or infinity in {bad.sum()} of {found.size} entries; they are drawn as zero")
        found = np.where(bad, 0.0, found)
    elif not found.any():
        _warn(ALL_ZERO)
    values: Array = (found if signed else np.abs(found)).sum(axis=axes)
    if signed and found.any() and not values.any():
        _warn("the channels of the map cancel in their signed sum; draw it with signed=False")
    sizes = np.abs(values)
    kept = sizes[sizes > 0]
    top = float(max(np.percentile(sizes, 99), np.percentile(kept, 90))) if kept.size else 0.0
    return ScaledMap(values, top, signed)


def _warn(text: str) -> None:
    warnings.warn(text, UserWarning, stacklevel=5)  # the caller of heat
