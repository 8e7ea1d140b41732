"""The L1 prior and the quantile that chooses a share of units."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from moreaugrad.batch import spread, total
from moreaugrad.types import Images, PerImage


def keep_largest(units: Float[Tensor, "n m"], keep: float) -> PerImage:
    """The bound that exactly round(keep * m) units of each row exceed (fewer where units tie)."""
    total = units.shape[1]
    kept = max(1, round(keep * total))
    if kept >= total:
        return units.new_zeros(len(units))
    return units.kthvalue(total - kept, dim=1).values


@dataclass(frozen=True, slots=True)
class L1:
    """|delta|_1: keeps single entries."""

    def value(self, delta: Images) -> PerImage:
        return total(delta.abs())

    def prox(self, delta: Images, amount: PerImage) -> Images:
        bound = spread(amount, delta)
        return delta - delta.clamp(-bound, bound)  # exact zeros, no mask, no division

    def level(self, u: Images, keep: float) -> PerImage:
        return keep_largest(self.units(u), keep)

    def units(self, delta: Images) -> Float[Tensor, "n m"]:
        return delta.abs().flatten(1)

    def active(self, delta: Images) -> Bool[Tensor, "n *shape"]:
        return delta != 0

    def bend(self, delta: Images, q: Images) -> Images:
        return torch.zeros_like(q)  # straight wherever it has a derivative

    def stiffness(self, delta: Images) -> Images:
        return torch.zeros_like(delta)

    def take(self, which: Int[Tensor, "k"]) -> L1:
        return self
