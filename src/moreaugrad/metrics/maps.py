"""Maps as metrics use them: in float64, finite, and with a note of which results must be NaN.

Sums are made in float64 (float32 on Apple GPUs, which have no more). Results for float64 maps are float64, for all
others float32. Nothing here is differentiable: a metric measures maps, it does not train them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from moreaugrad import validate
from moreaugrad.batch import spread
from moreaugrad.types import Flags, Images, PerImage

Flat = Float[Tensor, "n d"]
Planes = Float[Tensor, "n h w"]


@dataclass(frozen=True, eq=False)
class Batch:
    """Maps that can be computed with: zero where a map is not finite."""

    values: Images
    finite: Flags  # no NaN or infinity in the map
    dtype: torch.dtype  # of the results

    def result(self, numbers: PerImage, undefined: Flags | None = None) -> PerImage:
        """The numbers, NaN where they are not defined."""
        bad = ~self.finite if undefined is None else ~self.finite | undefined
        return numbers.masked_fill(bad, torch.nan).to(self.dtype)


@dataclass(frozen=True, eq=False)
class Pair:
    """Two batches of maps of one shape."""

    a: Images
    b: Images
    both: Batch  # finite where both are

    def result(self, numbers: PerImage, equal: float, undefined: Flags | None = None) -> PerImage:
        """The numbers; `equal` for equal maps, for which the formula may be 0/0 or a rounding error off."""
        same = (self.a == self.b).flatten(1).all(1)
        if undefined is not None:
            numbers = numbers.masked_fill(undefined, torch.nan)
        return self.both.result(numbers.masked_fill(same, equal))


def to_float64(x: Tensor) -> Tensor:
    """Without a graph, in the widest type of the device."""
    return x.detach().to(torch.float32 if x.device.type == "mps" else torch.float64)


def read_maps(maps: Any, name: str = "maps") -> Batch:
    """Checks a batch of real maps, and makes it ready to be measured."""
    require_maps(maps, name)
    values = to_float64(maps)
    finite = values.isfinite().flatten(1).all(1)
    dtype = torch.float64 if maps.dtype == values.dtype == torch.float64 else torch.float32
    return Batch(values.masked_fill(spread(~finite, values), 0), finite, dtype)


def require_maps(maps: Any, name: str) -> None:
    if not isinstance(maps, Tensor):
        way = "use torch.as_tensor, and measure the parts of a tuple separately"
        way = "pass explanation.map" if hasattr(maps, "map") else way
        raise TypeError(f"{name} must be a tensor of maps (N, ...), got {type(maps).__name__}; {way}")
    validate.dense(name, maps)
    if maps.is_complex():
        raise TypeError(f"{name} must hold real numbers, got {maps.dtype}; measure its .abs() or .real")
    if maps.ndim < 2 or maps.numel() == 0:
        raise ValueError(
            f"{name} must hold at least one map behind a batch axis, got shape {tuple(maps.shape)}; "
            "add the batch axis of a single map with map.unsqueeze(0)"
        )


def read_pair(a: Any, b: Any, signed: bool = False) -> Pair:
    """Checks two batches that are compared entry by entry, as |map| unless signed."""
    first, second = read_maps(a, "a"), read_maps(b, "b")
    if a.shape != b.shape:
        raise ValueError(
            f"maps must have one shape to be compared, got {tuple(a.shape)} and {tuple(b.shape)}; "
            "sum the channels (map.abs().sum(1, keepdim=True)) or resize the smaller one first"
        )
    require_one_device(a, b)
    require_boolean("signed", signed)
    left, right = (each.values if signed else each.values.abs() for each in (first, second))
    dtype = torch.promote_types(first.dtype, second.dtype)
    return Pair(left, right, Batch(left, first.finite & second.finite, dtype))


def require_one_device(a: Tensor, b: Tensor) -> None:
    if a.device != b.device:
        raise ValueError(f"maps and what they are compared with must be on one device, got {a.device} and {b.device}")


def require_pictures(shape: tuple[int, ...]) -> None:
    if len(shape) not in (3, 4):
        raise ValueError(f"maps must be pictures (N, C, H, W) or (N, H, W) for this metric, got shape {shape}")


def require_boolean(name: str, given: object) -> None:
    if not isinstance(given, bool):
        raise TypeError(f"{name} must be True or False, got {given!r}")


def require_function(name: str, given: object, takes: str, gives: str) -> None:
    if not callable(given):
        raise TypeError(f"{name} must be a function of {takes} that returns {gives}, got {type(given).__name__}")


def unit_scale(x: Images) -> Images:
    """Each map divided by its largest size, so that squares and sums neither overflow nor vanish; zero stays zero."""
    top = x.flatten(1).abs().amax(1)
    return x / spread(top.masked_fill(top == 0, 1), x)


def is_zero(x: Images) -> Flags:
    return ~x.flatten(1).any(1)


def sum_channels(x: Images, signed: bool = False) -> Planes:
    """One number per pixel: the channels of (N, C, H, W) summed, in size or signed, up to a factor per map."""
    require_pictures(tuple(x.shape))
    x = unit_scale(x) if signed else unit_scale(x).abs()
    return x.sum(1) if x.ndim == 4 else x
