"""Sparsified SmoothGrad: the average, over noisy copies, of where the largest gradients are.

Owns the sparse maps of one copy; certificates of their average are made elsewhere.
"""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from functools import partial

import torch
from jaxtyping import Float
from torch import Tensor

from moreaugrad import validate
from moreaugrad.methods.base import Call, Method, NoisyMethod
from moreaugrad.methods.smoothgrad import SmoothGrad, average
from moreaugrad.model.smoothing import Smoothing
from moreaugrad.model.statistics import count_votes, floor_share, largest, rank_value
from moreaugrad.results import Explanation

VARIANTS = dict.fromkeys(("basic", "relaxed", "scaled"))


@dataclass(frozen=True, eq=False)
class SparsifiedSmoothGrad(NoisyMethod):
    """How often, and how clearly, an entry of the gradient is among the largest: mean over z of h(|grad f_c(x + z)|).

    h is 0 but for the share `tau` of the largest entries. The average is dense and lies in [0, 1], which lets its top
    entries be certified (Levine et al., 2019). A relative noise level counts as a constant where it is differentiated.

    Args:
        forward_func: a module in evaluation mode, any callable that returns scores of shape (N, classes), or what
            `prepare` returns.
        variant: h of the kept entries: 1 ("basic", which has no derivative), the entry over the one that ends the
            share `gamma`, at most 1 ("relaxed"); or "scaled", which keeps all entries, over the largest.
        tau: share of the entries that a copy keeps; not for "scaled".
        gamma: share of the entries that "relaxed" makes 1, at least one.
        smoothing: the noise, as one object.
        noise_level: standard deviation of the noise, relative to the range of each image; 0.1 by default.
        sigma: absolute standard deviation, instead of `noise_level`.
        samples: noisy copies per image, 256 by default; the cost is one gradient for each.
        seed: of the noise; a torch.Generator draws one, None takes a fresh one.
        **further: `score`, `precision`, `compile` and `hessian_step`, as in `Method`.

    Example:
        >>> found = mg.SparsifiedSmoothGrad(net, samples=8).attribute(x, target=3)
        >>> bool(((found >= 0) & (found <= 1)).all())
        True
    """

    needs_noise = True

    variant: str = "relaxed"
    tau: float = 0.1
    gamma: float = 0.01
    smoothing: Smoothing = field(default_factory=lambda: Smoothing(noise_level=0.1, samples=256), kw_only=True)

    def __post_init__(self, noise_level: float | None, sigma: float | None, samples: int | None) -> None:
        super().__post_init__(noise_level, sigma, samples)
        validate.one_of("variant", self.variant, VARIANTS)
        tau, gamma = self.tau, self.gamma
        validate.number("tau", tau)
        validate.number("gamma", gamma)
        if not 0 < tau <= 1:
            raise ValueError(
                f"tau must be in (0, 1], the share of entries to keep, got {tau!r}; 0.1 is the usual choice"
            )
        if not 0 <= gamma <= 1:
            raise ValueError(f"gamma must be in [0, 1], the share of entries made 1, got {gamma!r}; 0.01 is usual")
        if self.variant == "relaxed" and gamma > tau:
            raise ValueError(
                f"gamma must not exceed tau, for only kept entries are made 1, got gamma={gamma} and tau={tau}; "
                "lower gamma or raise tau"
            )

    @property
    def differentiable(self) -> bool:
        return self.variant != "basic"

    @property
    def counts_votes(self) -> bool:
        return self.variant == "basic"

    def with_statistic(self, name: str) -> SmoothGrad:
        shared = {each.name: getattr(self, each.name) for each in fields(Method)}
        return SmoothGrad(**shared, smoothing=self.smoothing, seed=self.seed, statistic=name, tau=min(self.tau, 0.99))

    def compute(self, call: Call) -> Explanation:
        n = call.x[0].numel()
        keep = n if self.variant == "scaled" else count_votes(self.tau, n)
        flat = 1 if self.variant == "scaled" else max(1, floor_share(self.gamma, n))
        of_copy = partial(sparsify, keep=keep, flat=None if self.variant == "basic" else flat)
        found, error = average(call, self.smoothing, of_copy)
        # rounding may leave [0, 1], on which certificates rest; a derivative must not end there
        found = found if call.graph else found.clamp(0, 1)
        return Explanation(map=found, gradients=call.each(self.smoothing.samples), stderr=error)


def sparsify(grads: Float[Tensor, "n m *shape"], keep: int, flat: int | None) -> Float[Tensor, "n m *shape"]:
    """h of each copy: the `keep` largest as 1, or over the one of rank `flat`; zero where that one is zero."""
    sizes = grads.abs().flatten(2)
    kept = largest(sizes.detach(), keep)
    if flat is None:
        return kept.to(grads.dtype).view(grads.shape)
    top = rank_value(sizes, flat)
    ratio = torch.minimum(sizes, top) / torch.where(top > 0, top, 1)
    return torch.where(kept & (top > 0), ratio, 0).view(grads.shape)
