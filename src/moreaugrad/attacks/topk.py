"""The top-k attack: takes saliency away from the entries that were the most salient."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from moreaugrad.attacks import checks as rules
from moreaugrad.attacks.base import MapAttack
from moreaugrad.attacks.space import Space
from moreaugrad.attacks.victim import Victim
from moreaugrad.batch import spread, total
from moreaugrad.metrics.similarity import count_top, require_top, top_entries
from moreaugrad.types import Images, PerImage


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


def largest(size: Float[Tensor, "n d"], k: float | int | None) -> Tensor:
    """A mask of the k largest entries of each row, as the metric takes them."""
    require_top("k", k, size.shape[1])
    return top_entries(size, count_top(k, size)).to(size.dtype)
