"""When a map counts as fooled: the losses that model fooling trains on, and the figures that judge the result.

Pure functions of the maps now and before; each map is |saliency| of pixels, (N, 1, H, W).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from moreaugrad.attacks.map_attack import mse
from moreaugrad.attacks.topk import largest_entries
from moreaugrad.batch import spread, total
from moreaugrad.types import Images, PerImage

Maps = tuple[Float[Tensor, "n 1 h w"], ...]  # one for each class
Loss = Callable[[Maps, Maps], PerImage]  # of the maps now and of those before; small is fooled
K = 0.1  # the share of entries that `topk` takes saliency from


def frame(height: int, width: int, like: Tensor) -> Float[Tensor, "h w"]:
    """1 on a border of a seventh of the shorter side, at least one wide; 0 inside."""
    border = max(1, min(height, width) // 7)
    found = torch.ones(height, width, dtype=like.dtype, device=like.device)
    found[border : height - border, border : width - border] = 0
    return found


def stretch(maps: Images) -> Images:
    """Each map scaled to [0, 1]; a constant one is 0."""
    flat = maps.flatten(1)
    low, high = flat.amin(1), flat.amax(1)
    span = torch.where(high > low, high - low, 1)  # no small number added: float32 gradients may be small themselves
    return (maps - spread(low, maps)) / spread(span, maps)


def centre(maps: Images) -> Float[Tensor, "n 2"]:
    """Row and column of the centre of mass, in shares of the image; the middle for a map of zeros."""
    whole = total(maps)
    divisor = torch.where(whole > 0, whole, 1)
    rows, columns = (torch.linspace(0, 1, size, dtype=maps.dtype, device=maps.device) for size in maps.shape[-2:])
    means = [total(maps * rows[:, None]) / divisor, total(maps * columns) / divisor]
    return torch.stack([torch.where(whole > 0, mean, 0.5) for mean in means], 1)


def location(now: Maps, before: Maps) -> PerImage:
    """Mean squared distance from the frame."""
    maps = now[0]
    return mse(stretch(maps), frame(int(maps.shape[-2]), int(maps.shape[-1]), maps))


def topk(now: Maps, before: Maps) -> PerImage:
    """Mean square on the entries that were the largest."""
    mask = largest_entries(before[0].flatten(1), K)
    return total(stretch(now[0]).flatten(1).square() * mask) / total(mask).clamp_min(1)


def centre_mass(now: Maps, before: Maps) -> PerImage:
    """Minus the shift of the centre of mass, down plus across."""
    return -total((centre(now[0]) - centre(before[0])).abs())


def centre_distance(now: Maps, before: Maps) -> PerImage:
    """Minus the distance of the centres of mass: at most 1, from corner to corner."""
    return -mse(centre(now[0]), centre(before[0])).sqrt()


def active(now: Maps, before: Maps) -> PerImage:
    """Mean squared distance of the map of each of two classes from what the other's was."""
    one, two, old_one, old_two = (stretch(maps) for maps in (*now, *before))
    return (mse(one, old_two) + mse(two, old_one)) / 2


def exchange(now: Maps, before: Maps) -> PerImage:
    """Negative where both maps together are nearer to what the other was than to what they were."""
    return active(now, before) - active(now, before[::-1])


@dataclass(frozen=True, slots=True)
class FoolingKind:
    """`loss` is trained on, `figure` judges: a map is fooled where it is at most `limit`."""

    loss: Loss
    figure: Loss
    limit: float
    needs_before: bool = True  # whether the maps before count


KINDS = {
    "location": FoolingKind(location, location, 0.2, needs_before=False),
    "topk": FoolingKind(topk, topk, 0.3),
    "centre_mass": FoolingKind(centre_mass, centre_distance, -0.1),
    "active": FoolingKind(active, exchange, -1e-6),
}
