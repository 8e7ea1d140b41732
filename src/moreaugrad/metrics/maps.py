"""Maps as metrics see them: wide, finite, and with a note of what must come out as NaN.

Sums are made in float64 (float32 on Apple GPUs, which have no more). Figures of float64 maps are float64, those of
all others float32. Nothing here is differentiable: a metric judges maps, it does not train them.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from moreaugrad.batch import spread
from moreaugrad.metrics import checks
from moreaugrad.types import Flags, Images, PerImage

Flat = Float[Tensor, "n d"]
Planes = Float[Tensor, "n h w"]


@dataclass(frozen=True, eq=False)
class Batch:
    """Maps that can be computed with."""

    values: Images  # zero where a map is not sound
    sound: Flags  # no NaN or infinity in the map
    dtype: torch.dtype  # of the figures

    def answer(self, figures: PerImage, undefined: Flags | None = None) -> PerImage:
        """The figures, NaN where they say nothing."""
        bad = ~self.sound if undefined is None else ~self.sound | undefined
        return figures.masked_fill(bad, torch.nan).to(self.dtype)


@dataclass(frozen=True, eq=False)
class Pair:
    """Two batches of maps of one shape."""

    a: Images
    b: Images
    sound: Flags
    same: Flags  # the two maps are equal, entry by entry
    dtype: torch.dtype

    def answer(self, figures: PerImage, itself: float, undefined: Flags | None = None) -> PerImage:
        """The figures; `itself` for equal maps, of which the formula may be 0/0 or a rounding error off."""
        if undefined is not None:
            figures = figures.masked_fill(undefined, torch.nan)
        return figures.masked_fill(self.same, itself).masked_fill(~self.sound, torch.nan).to(self.dtype)


def wide(x: Tensor) -> Tensor:
    return x.detach().to(torch.float32 if x.device.type == "mps" else torch.float64)


def read(maps: Tensor, name: str = "maps") -> Batch:
    checks.maps(name, maps)
    values = wide(maps)
    sound = values.isfinite().flatten(1).all(1)
    dtype = torch.float64 if maps.dtype == torch.float64 and values.dtype == torch.float64 else torch.float32
    return Batch(values.masked_fill(spread(~sound, values), 0), sound, dtype)


def read_pair(a: Tensor, b: Tensor, signed: bool = False) -> Pair:
    checks.maps("a", a)
    checks.maps("b", b)
    checks.alike(a, b)
    checks.yes_or_no("signed", signed)
    first, second = read(a), read(b)
    left, right = (each.values if signed else each.values.abs() for each in (first, second))
    same = (left == right).flatten(1).all(1)
    return Pair(left, right, first.sound & second.sound, same, torch.promote_types(first.dtype, second.dtype))


def scaled(x: Images) -> Images:
    """Each map divided by its largest size, so that squares and sums neither overflow nor vanish; zero stays zero."""
    top = x.flatten(1).abs().amax(1)
    return x / spread(top.masked_fill(top == 0, 1), x)


def zero(x: Images) -> Flags:
    return ~x.flatten(1).any(1)


def planes(x: Images, signed: bool = False) -> Planes:
    """One number per pixel: the channels of (N, C, H, W) summed, in size or as they are, up to a factor per map."""
    checks.pictures(tuple(x.shape))
    x = scaled(x) if signed else scaled(x).abs()
    return x.sum(1) if x.ndim == 4 else x
