"""SmoothGrad: the gradient averaged over Gaussian noise."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import torch

from moreaugrad import checks
from moreaugrad.contracts import Outcome
from moreaugrad.core.noise import Smoothing
from moreaugrad.methods.base import Method
from moreaugrad.methods.call import Call

DRAW = 128  # noise vectors held at a time
PARTS = 16  # independent parts of a draw, from which the standard error comes


@dataclass(frozen=True, eq=False)
class SmoothGrad(Method):
    """mean over z of grad f_c(x + z), signed: the gradient of the smoothed score, E f_c(x + z)."""

    smoothing: Smoothing = field(default_factory=lambda: Smoothing(noise_level=0.15, samples=64))
    seed: int | torch.Generator | None = field(default=0, kw_only=True)

    def __post_init__(self) -> None:
        Method.__post_init__(self)
        checks.smooth(self.smoothing, Smoothing, needed=True)
        checks.seed(self.seed)

    @property
    def noise(self) -> Smoothing:
        return self.smoothing

    def compute(self, call: Call) -> Outcome:
        total, weight = torch.zeros_like(call.x), 0.0
        square, parts = torch.zeros_like(call.x), 0
        samples = self.smoothing.samples
        sizes = [min(DRAW, samples - start) for start in range(0, samples, DRAW)]
        for draw, size in enumerate(sizes):
            _, grads = call.smoothed(replace(self.smoothing, samples=size)).parts(call.x, draw, PARTS)
            for grad in grads:  # weighted by samples, so that a short last draw counts as what it is
                share = size / len(grads)
                weight, before = weight + share, grad - total
                total = total + before * (share / weight)
                square, parts = square + share * before * (grad - total), parts + 1
            call.watch(draw + 1, len(sizes), {})
        error = (square / weight / (parts - 1)).sqrt() if parts > 1 else torch.full_like(total, float("nan"))
        return Outcome(total, gradients=call.each(samples), stderr=error)
