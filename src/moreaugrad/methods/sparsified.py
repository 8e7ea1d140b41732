"""Sparsified SmoothGrad: the average, over noisy copies, of where the largest gradients are.

Owns the sparse maps of one copy; certificates of their average are made elsewhere.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from functools import partial

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from moreaugrad import validate
from moreaugrad.methods.base import Method
from moreaugrad.methods.call import Call
from moreaugrad.methods.checks_sparsified import kept_something, shares
from moreaugrad.methods.smoothgrad import averaged
from moreaugrad.model.noise import Smoothing
from moreaugrad.types import Outcome

VARIANTS = dict.fromkeys(("basic", "relaxed", "scaled"))


@dataclass(frozen=True, eq=False)
class SparsifiedSmoothGrad(Method):
    """mean over z of h(|grad f_c(x + z)|), in [0, 1]: how often, and how clearly, an entry is among the largest.

    h is 0 but for the share `tau` of the largest entries. There it is 1 (`basic`), or the entry over the one that
    ends the share `gamma`, at most 1 (`relaxed`); `scaled` keeps all entries, over the largest. The average is
    dense, and bounded, which lets its top entries be certified. `basic` has a derivative of zero, so it refuses
    create_graph; a relative noise level counts as a constant where the others are differentiated.
    """

    variant: str = "relaxed"
    tau: float = 0.1  # share of the entries that a copy keeps; not for scaled
    gamma: float = 0.01  # share that relaxed makes 1: of it at least one entry
    smoothing: Smoothing = field(default_factory=lambda: Smoothing(noise_level=0.1, samples=256), kw_only=True)
    seed: int | torch.Generator | None = field(default=0, kw_only=True)

    def __post_init__(self) -> None:
        Method.__post_init__(self)
        validate.one_of("variant", self.variant, VARIANTS)
        shares(self.tau, self.gamma, ordered=self.variant == "relaxed")
        validate.smooth(self.smoothing, Smoothing, needed=True)
        validate.seed(self.seed)

    @property
    def noise(self) -> Smoothing:
        return self.smoothing

    @property
    def differentiable(self) -> bool:
        return self.variant != "basic"

    def compute(self, call: Call) -> Outcome:
        n = call.x[0].numel()
        keep = n if self.variant == "scaled" else share_of(self.tau, n)
        kept_something(keep, self.tau, n)
        flat = 1 if self.variant == "scaled" else max(1, share_of(self.gamma, n))
        of_copy = partial(sparsified, keep=keep, flat=None if self.variant == "basic" else flat)
        found, error = averaged(call, self.smoothing, of_copy)
        # rounding may leave [0, 1], on which certificates rest; a derivative must not end there
        found = found if call.graph else found.clamp(0, 1)
        return Outcome(found, gradients=call.each(self.smoothing.samples), stderr=error)


def share_of(share: float, n: int) -> int:
    """floor(share * n), for the share as written: 0.29 of 100 is 29."""
    return math.floor(round(share * n, 6))


def sparsified(grads: Float[Tensor, "n m *shape"], keep: int, flat: int | None) -> Float[Tensor, "n m *shape"]:
    """h of each copy: the `keep` largest as 1, or over the one of rank `flat`; zero where that one is zero."""
    sizes = grads.abs().flatten(2)
    kept = largest(sizes.detach(), keep)
    if flat is None:
        return kept.to(grads.dtype).view(grads.shape)
    top = _ranked(sizes, flat)
    ratio = torch.minimum(sizes, top) / torch.where(top > 0, top, 1)
    return torch.where(kept & (top > 0), ratio, 0).view(grads.shape)


def largest(sizes: Float[Tensor, "n m d"], keep: int) -> Bool[Tensor, "n m d"]:
    """Exactly `keep` entries of each row; of equal ones the first."""
    bound = _ranked(sizes, keep)
    above, equal = sizes > bound, sizes == bound
    room = keep - above.sum(2, keepdim=True)
    if bool((equal.sum(2, keepdim=True) == room).all()):  # no entry too many: nothing to count out
        return above | equal
    return above | (equal & (equal.cumsum(2) <= room))


def _ranked(sizes: Float[Tensor, "n m d"], rank: int) -> Float[Tensor, "n m 1"]:
    """The entry of each row that `rank` entries, itself among them, are not below."""
    return sizes.kthvalue(sizes.shape[2] - rank + 1, dim=2, keepdim=True).values
