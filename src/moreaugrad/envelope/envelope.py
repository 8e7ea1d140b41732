"""The problem that every map solves, and the one home of the sign and of rho.

    E(delta) = score(x + delta) + |delta|^2 / (2 rho) + eta * prior(delta)

x input, delta displacement, rho envelope radius, eta prior weight, u = -rho * gradient (the dual
variable), delta = prox_{rho eta}(u) at the optimum, map = -delta / rho. Knows no algorithm.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from jaxtyping import Int
from torch import Tensor

from moreaugrad.batch import norm
from moreaugrad.types import Images, PerImage, Prior, Score


@dataclass(frozen=True, eq=False)
class Envelope:
    """One batch of problems. eta is a number, one per image, or chosen from u to keep a share of the units."""

    score: Score
    prior: Prior
    rho: float
    x: Images
    eta: float | Tensor = 0.0
    keep: float | None = None  # asked share of units; then eta is ignored and follows u

    def take(self, which: Int[Tensor, "k"]) -> Envelope:
        """The problems of some images."""
        eta = self.eta
        if isinstance(eta, Tensor) and eta.numel() > 1:
            eta = eta.reshape(-1)[which]
        score, prior = self.score.take(which), self.prior.take(which)
        return replace(self, score=score, prior=prior, x=self.x[which], eta=eta)

    def weight(self, u: Images) -> PerImage:
        """eta of each image: as given, or such that the prox of u keeps the asked share."""
        if self.keep is None:
            if isinstance(self.eta, Tensor):
                return self.eta.to(u).reshape(-1).expand(len(u))
            return u.new_full((len(u),), self.eta)  # filled on the device: a copy from the host would wait for it
        # a hair more, lest rounding of rho * eta let the first unit below the level through
        return self.prior.level(u, self.keep) / self.rho * (1 + 4 * torch.finfo(u.dtype).eps)

    def prox(self, u: Images, eta: PerImage) -> Images:
        """The displacement that belongs to the dual variable u."""
        return self.prior.prox(u, self.rho * eta)

    def penalty(self, delta: Images, eta: PerImage) -> PerImage:
        """Everything of the objective but the score."""
        return norm(delta).square() / (2 * self.rho) + eta * self.prior.value(delta)

    def residual(self, delta: Images, grad: Images, eta: PerImage) -> PerImage:
        """|delta - prox(-rho grad)| / rho: zero exactly at the optimum; in units of the gradient."""
        return norm(delta - self.prox(-self.rho * grad, eta)) / self.rho

    def map(self, delta: Images) -> Images:
        """-delta / rho. Without a prior this is the envelope's gradient; with one it is that gradient,
        thresholded (the envelope's own gradient, grad f(x + delta), is not sparse)."""
        return -delta / self.rho
