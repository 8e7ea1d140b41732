"""The absent prior."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from moreaugrad.types import Images, PerImage


@dataclass(frozen=True, slots=True)
class Zero:
    """0: the prox is the identity, and every entry is kept."""

    def value(self, delta: Images) -> PerImage:
        return delta.new_zeros(len(delta))

    def prox(self, delta: Images, amount: PerImage) -> Images:
        return delta

    def level(self, u: Images, keep: float) -> PerImage:
        return u.new_zeros(len(u))

    def units(self, delta: Images) -> Float[Tensor, "n m"]:
        return delta.abs().flatten(1)

    def active(self, delta: Images) -> Bool[Tensor, "n *shape"]:
        return torch.ones_like(delta, dtype=torch.bool)

    def bend(self, delta: Images, q: Images) -> Images:
        return torch.zeros_like(q)

    def stiffness(self, delta: Images) -> Images:
        return torch.zeros_like(delta)

    def take(self, which: Int[Tensor, "k"]) -> Zero:
        return self
