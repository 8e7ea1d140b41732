"""The absent prior."""

from __future__ import annotations

from dataclasses import dataclass

from jaxtyping import Float, Int
from torch import Tensor

from moreaugrad.contracts import Images, PerImage


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

    def take(self, which: Int[Tensor, "k"]) -> Zero:
        return self
