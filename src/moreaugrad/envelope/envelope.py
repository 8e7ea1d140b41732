"""The problem that every map solves, and the one home of the sign and of rho.

    E(delta) = score(x + delta) + |delta|^2 / (2 rho) + eta * prior(delta)

x input, delta displacement, rho envelope radius, eta prior weight, u = -rho * gradient (the dual
variable), delta = prox_{rho eta}(u) at the optimum, map = -delta / rho. Knows no algorithm.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import NamedTuple, Protocol, cast

import torch
from jaxtyping import Int
from torch import Tensor

from moreaugrad.batch import norm, spread
from moreaugrad.envelope.priors import find_level, take_prior
from moreaugrad.model.statistics import Stack, count_votes
from moreaugrad.types import (
    Counts,
    Images,
    NoisyScore,
    PerImage,
    Prior,
    Score,
    TwiceDifferentiablePrior,
    Watch,
    ignore_progress,
)


class Optimality(NamedTuple):
    """A residual, the largest that its own noise explains (twice its standard error), and the score there."""

    residual: PerImage
    tol: PerImage
    value: PerImage


@dataclass(frozen=True, slots=True)
class Solution:
    """Where a solve stopped, and how far from optimal that point is."""

    delta: Images
    residual: PerImage  # |delta - prox(-rho * grad(x + delta))| / rho, at delta itself; NaN: not measured
    tol: PerImage  # the largest residual that its own noise or rounding explains
    value: PerImage  # the score at x + delta, on the noise of the residual
    eta: PerImage  # weight of the prior: as given, or as the requested sparsity made it
    gradients: Counts  # sample-gradients spent, the residual's included
    stderr: Images | None = None  # of each entry before the threshold; None: not measured, or no noise
    moments: Stack | None = None  # means of the gradients at x + delta, of their squares and of their votes


@dataclass(frozen=True, eq=False)
class Envelope:
    """One batch of problems. eta is a number, one per image, or chosen from u to keep a share of the units."""

    score: Score
    prior: Prior
    rho: float
    x: Images
    eta: float | Tensor = 0.0
    keep: float | None = None  # requested share of units; then eta is ignored and follows u
    statistic: str = "mean"  # taken of the gradients around the solution, for the map and its standard error
    tau: float | None = None  # share of the entries that a gradient votes for, 0: none; None: no moments are kept
    threshold: Envelope | None = None  # makes the map of that statistic, with rho = 1; None: the solution is the map

    @property
    def voted(self) -> int:
        """How many entries of each gradient get a vote."""
        if not self.tau:
            return 0
        return count_votes(self.tau, self.x[0].numel(), least=int(self.statistic != "votes"))

    def take(self, which: Int[Tensor, "k"]) -> Envelope:
        """The problems of some images."""
        eta = self.eta
        if isinstance(eta, Tensor) and eta.numel() > 1:
            eta = eta.reshape(-1)[which]
        score, prior = self.score.take(which), take_prior(self.prior, which, self.x)
        threshold = None if self.threshold is None else self.threshold.take(which)
        return replace(self, score=score, prior=prior, x=self.x[which], eta=eta, threshold=threshold)

    def weight(self, u: Images) -> PerImage:
        """eta of each image: as given, or such that the prox of u keeps the requested share."""
        if self.keep is None:
            if isinstance(self.eta, Tensor):
                return self.eta.to(u).reshape(-1).expand(len(u))
            return u.new_full((len(u),), self.eta)  # filled on the device: a copy from the host would wait for it
        # a hair more, lest rounding of rho * eta let the first unit below the level through
        return find_level(self.prior, u, self.keep) / self.rho * (1 + 4 * torch.finfo(u.dtype).eps)

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

    def thresholded(self, dense: Images, error: Images | None) -> tuple[Images, PerImage, Images | None]:
        """The map that the prior makes of a statistic, the weight that it took, and the error of the map."""
        eta = self.weight(-dense)
        delta = self.prox(-dense, eta)
        return self.map(delta), eta, None if error is None else self.error_of_map(error, delta, eta)

    def error_of_map(self, error: Images, delta: Images, eta: PerImage) -> Images:
        """The standard error of each entry after the prox: a curved prior, such as that of groups, shrinks it too."""
        if not isinstance(self.prior, TwiceDifferentiablePrior):
            return error
        return error / (1 + spread(self.rho * eta, delta) * self.prior.stiffness(delta))

    def measure(self, delta: Images, eta: PerImage, draws: range) -> Optimality:
        """How far a point is from optimal, on the given draws. An exact optimum would show about one standard error.

        Without a draw nothing is known: NaN, which is never called converged.
        """
        unknown = delta.new_full((len(delta),), float("nan"))
        if not len(draws):
            return Optimality(unknown, unknown, unknown)
        if not self.score.random:
            value, grad = self.score.value_and_grad(self.x + delta)
            return Optimality(self.residual(delta, grad, eta), tolerance(None, grad), value)
        score = cast(NoisyScore, self.score)
        found = [score.parts(self.x + delta, draw, most=max(1, 16 // len(draws))) for draw in draws]
        value, grads = torch.cat([values for values, _ in found]), torch.cat([each for _, each in found])
        mean, count = grads.mean(0), len(grads)
        there = self.prox(-self.rho * mean, eta)
        # each part deviates sqrt(count) times as much as their mean: shrunk so, the prox sees the mean's own noise
        moved = (self.prox(-self.rho * (mean + (part - mean) / count**0.5), eta) - there for part in grads)
        total = torch.stack([norm(move).square() for move in moved]).sum(0)
        error = (total / (count - 1)).sqrt() if count > 1 else unknown
        # a score without noise (a linear one, say) has no standard error: rounding then sets the measure
        tol = torch.maximum(2 * error / self.rho, tolerance(None, mean))
        return Optimality(norm(delta - there) / self.rho, tol, value.mean(0))


class Solver(Protocol):
    """An algorithm that minimises an envelope's objective."""

    def run(self, problem: Envelope, watch: Watch = ignore_progress) -> Solution:
        """Solves the problems of a batch; one that did not converge is data, not an exception."""
        ...


def tolerance(tol: float | None, grad: Images) -> PerImage:
    """What counts as solved for a deterministic score: `tol`, or what the precision of x can reach."""
    size = norm(grad)
    if tol is not None:
        return torch.full_like(size, float(tol))
    return size * (1e-11 if grad.dtype == torch.float64 else 1e-4)


def range_curvature(low: float, high: float, sigma: float) -> float:
    """2 phi(1) (high - low)/sigma^2: the largest curvature of any score in [low, high] under noise of that sigma."""
    return 2 * math.exp(-0.5) / math.sqrt(2 * math.pi) * (high - low) / sigma**2
