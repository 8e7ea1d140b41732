"""Solutions to be certified: how they are found does not matter, how they are judged does.

Everything that a method chose from the input (eta of an asked sparsity, superpixels) is frozen here.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, TypeAlias, cast

import torch
from torch import Tensor

from moreaugrad.certificates import checks_certify as rules
from moreaugrad.certificates import checks_units as units_rules
from moreaugrad.certificates.monte_carlo import Estimate
from moreaugrad.certificates.subspace import Grid, Whole, space_of
from moreaugrad.envelope.envelope import Envelope
from moreaugrad.envelope.priors import L1, Group, Zero
from moreaugrad.methods.moreau import GroupSparseMoreauGrad, MoreauGrad, SparseMoreauGrad
from moreaugrad.model.smoothing import SmoothedScore, draw_seed
from moreaugrad.types import Images, Prior

Estimator: TypeAlias = Callable[[Images, int, Whole | Grid], Estimate]  # of the gradient at a point, on fresh noise

ROUNDS = 4  # of the fixed point; each forgets 1 - rho * lam of the error of the last


@dataclass(frozen=True, eq=False, slots=True)
class Judged:
    """A solution, and the gradient of the score there."""

    problem: Envelope  # with the prior and rho; its score and x are not used any more
    gradient: Images
    eta: Tensor
    residual: float
    reach: float  # |delta|
    sampling: float
    method: Any  # frozen
    interval: tuple[float, float] | None = None


def exactly(method: MoreauGrad, x: Images, target: Any, score: Any) -> Judged:
    """The method's own solution of a deterministic problem, judged by its gradient."""
    precision = "float32" if x.dtype == torch.float32 else None
    method = replace(
        method, seed=draw_seed(method.seed), precision=precision
    )  # the noise is part of the function: the same at x and at x'
    found = method.explain(x, target)
    prior = _prior(method, x, Whole(tuple(x.shape[1:])))
    noise = method.smoothing
    if noise is not None:
        score = SmoothedScore(score, noise, noise.scale(x), cast(int, method.seed))
    with torch.no_grad():
        value, gradient = score.value_and_grad(x + found.delta)
    sure = Estimate(gradient.double(), 0.0, float(value))
    problem = Envelope(None, prior, method.rho, x, found.eta)  # type: ignore[arg-type]
    return _judged(problem, found.delta, sure, found.eta.double(), _frozen(method, prior, found.eta))


def on_noise(method: MoreauGrad, x: Images, samples: int, estimate: Estimator, grid: int | None = None) -> Judged:
    """The fixed point delta = prox(-rho gradient), a few rounds of it; the last estimate, the largest, judges it."""
    space = space_of(x, grid)
    delta = torch.zeros((1, *space.shape), dtype=torch.float64, device=x.device)
    prior = _prior(method, x, space)
    problem = Envelope(None, prior, method.rho, delta, method.weight or 0.0, method.share)  # type: ignore[arg-type]
    few, eta = max(2, samples // (4 * ROUNDS)), delta.new_zeros(1)
    for _ in range(ROUNDS):
        u = -method.rho * estimate(_moved(x, delta, space), few, space).gradient
        eta = problem.weight(u)
        delta = problem.prox(u, eta)
    fresh = estimate(_moved(x, delta, space), max(2, samples - ROUNDS * few), space)
    eta = problem.weight(-method.rho * fresh.gradient)  # a share is that of the map which is told
    return _judged(replace(problem, eta=eta, keep=None), delta, fresh, eta, _frozen(method, prior, eta))


def _moved(x: Images, delta: Tensor, space: Whole | Grid) -> Images:
    return x + space.embed(delta).to(x.dtype)


def _judged(problem: Envelope, delta: Images, fresh: Estimate, eta: Tensor, method: MoreauGrad) -> Judged:
    units_rules.finite_map(fresh.gradient)
    residual = float(problem.residual(delta.double(), fresh.gradient, eta))
    return Judged(problem, fresh.gradient, eta, residual, float(delta.double().norm()), fresh.error, method)


def _frozen(method: MoreauGrad, prior: Prior, eta: Tensor) -> MoreauGrad:
    """The method with the eta and the groups of this input."""
    told: dict[str, Any] = {"eta": float(eta), "sparsity": None} if isinstance(method, SparseMoreauGrad) else {}
    if isinstance(prior, Group):
        told["groups"] = None if prior.labels is None else prior.labels[0]
    return replace(method, **told)


def _prior(method: MoreauGrad, x: Images, space: Whole | Grid) -> Prior:
    if isinstance(method, GroupSparseMoreauGrad):
        if isinstance(space, Grid):
            rules.one_group_each(not (isinstance(method.groups, int) and method.groups == space.cells))
            return Group(space.cells).for_batch(x.new_zeros(1, *space.shape))
        return Group(method.groups).for_batch(x)
    return L1() if isinstance(method, SparseMoreauGrad) else Zero()
