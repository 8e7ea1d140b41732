"""The top-k attack: takes saliency away from the entries that were the most salient."""

from __future__ import annotations

from dataclasses import dataclass, field
from numbers import Integral
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from moreaugrad.attacks.base import MapAttack
from moreaugrad.attacks.space import Space
from moreaugrad.attacks.victim import Victim
from moreaugrad.checks import attacks as rules
from moreaugrad.contracts import Images, PerImage
from moreaugrad.shapes import spread, total


@dataclass(frozen=True, eq=False)
class TopK(MapAttack):
    """Makes the share of |map| that lies on the k largest entries of the clean map small.

    k: None is 40 % of the clean map's non-zeros, as in the metric; a share of the entries, or their number.
    """

    k: float | int | None = field(default=None, kw_only=True)
    per_pixel: bool = field(default=False, kw_only=True)  # sum |map| over channels first

    def __post_init__(self) -> None:
        MapAttack.__post_init__(self)
        rules.top(self.k)

    def reference(self, clean: Images, victim: Victim, space: Space) -> Tensor:
        """Which entries were the largest, zeros never among them."""
        size = salience(clean, self.per_pixel).flatten(1)
        return largest(size, self.k)

    def objective(self, maps: Images, fixed: Any) -> PerImage:
        share = shares(salience(maps, self.per_pixel)).flatten(1)
        return total(share * fixed)


def salience(maps: Images, per_pixel: bool = True) -> Float[Tensor, "n *places"]:
    """|map|, summed over channels where pixels are meant."""
    size = maps.abs()
    return size.sum(1, keepdim=True) if per_pixel and size.ndim == 4 else size


def shares(size: Images) -> Images:
    """Scaled to sum 1; a map of zeros stays one."""
    return size / spread(total(size).clamp_min(torch.finfo(size.dtype).tiny), size)


def largest(size: Tensor, k: float | int | None) -> Tensor:
    """A mask of the k largest entries of each row (ties by index)."""
    alive = (size > 0).sum(1)
    if k is None:
        count = (0.4 * alive).long().clamp_min(1)
    else:
        count = torch.full_like(alive, max(1, int(k) if isinstance(k, Integral) else int(k * size.shape[1])))
    rank = torch.empty_like(size, dtype=torch.long)
    order = size.argsort(dim=1, descending=True, stable=True)
    rank.scatter_(1, order, torch.arange(size.shape[1], device=size.device).expand_as(order))
    return (rank < torch.minimum(count, alive)[:, None]).to(size.dtype)
