"""How far a point is from optimal, and what is near enough: shared by the solvers."""

from __future__ import annotations

from typing import NamedTuple, cast

import torch

from moreaugrad.batch import norm
from moreaugrad.envelope.envelope import Envelope
from moreaugrad.types import Images, NoisyScore, PerImage


class Verdict(NamedTuple):
    """A residual and what to hold it against."""

    residual: PerImage
    tol: PerImage  # twice the residual's own standard error
    value: PerImage


def unjudged(delta: Images) -> Verdict:
    """No budget left to look: NaN, which is never called converged."""
    unknown = delta.new_full((len(delta),), float("nan"))
    return Verdict(unknown, unknown, unknown)


def judge(problem: Envelope, delta: Images, eta: PerImage, draws: range) -> Verdict:
    """Residual on the given draws. An exact optimum would show about one standard error of it."""
    if not problem.score.random:
        value, grad = problem.score.value_and_grad(problem.x + delta)
        return Verdict(problem.residual(delta, grad, eta), tolerance(None, grad), value)
    score = cast(NoisyScore, problem.score)
    found = [score.parts(problem.x + delta, draw, most=max(1, 16 // len(draws))) for draw in draws]
    value, grads = torch.cat([values for values, _ in found]), torch.cat([each for _, each in found])
    mean, count = grads.mean(0), len(grads)
    there = problem.prox(-problem.rho * mean, eta)
    # each part deviates sqrt(count) times as much as their mean: shrunk so, the prox sees the mean's own noise
    moved = (problem.prox(-problem.rho * (mean + (part - mean) / count**0.5), eta) - there for part in grads)
    total = torch.stack([norm(move).square() for move in moved]).sum(0)
    error = (total / (count - 1)).sqrt() if count > 1 else unjudged(delta).tol
    # a score without noise (a linear one, say) has no standard error: rounding then sets the measure
    tol = torch.maximum(2 * error / problem.rho, tolerance(None, mean))
    return Verdict(norm(delta - there) / problem.rho, tol, value.mean(0))


def tolerance(tol: float | None, grad: Images) -> PerImage:
    """What counts as solved for a deterministic score: `tol`, or what the precision of x lets one reach."""
    size = norm(grad)
    if tol is not None:
        return torch.full_like(size, tol)
    return size.clamp_min(1) * (1e-11 if grad.dtype == torch.float64 else 1e-4)
