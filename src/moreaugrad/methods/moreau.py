"""MoreauGrad, plain, sparse and group-sparse: the map is -delta/rho at the minimiser of the envelope's objective."""

from __future__ import annotations

import logging
from dataclasses import dataclass, field, replace
from typing import Any

import torch

from moreaugrad import checks
from moreaugrad.contracts import Images, Outcome, Prior, Solver
from moreaugrad.core.envelope import Envelope
from moreaugrad.core.noise import Smoothing
from moreaugrad.core.solvers import SOLVERS
from moreaugrad.methods import QUALITY
from moreaugrad.methods.base import Call, Method
from moreaugrad.priors.groups import make_groups
from moreaugrad.priors.l1 import L1
from moreaugrad.priors.zero import Zero

log = logging.getLogger("moreaugrad")


@dataclass(frozen=True, eq=False)
class MoreauGrad(Method):
    """The gradient of the Moreau envelope of the class score, -delta*/rho, with
    delta* = argmin E f_c(x + delta + z) + |delta|^2 / (2 rho).

    As rho goes to 0 it goes to the plain gradient of the smoothed score.
    """

    rho: float = 1.0  # envelope radius, in squared units of the input
    smoothing: Smoothing | None = field(default_factory=Smoothing, kw_only=True)  # None: the score as it is
    budget: int | str = field(default=800, kw_only=True)  # sample-gradients per image, or fast | balanced | best
    seed: int | torch.Generator | None = field(default=0, kw_only=True)
    solver: Solver | str | None = field(default=None, kw_only=True)  # None: chosen by the smoothing

    def __post_init__(self) -> None:
        Method.__post_init__(self)
        checks.positive("rho", self.rho)
        checks.smooth(self.smoothing, Smoothing)
        checks.seed(self.seed)
        if isinstance(self.budget, str):
            checks.one_of("budget", self.budget, QUALITY)
        checks.solver(self.solver, SOLVERS)
        checks.steps(self.spendable, self.smoothing.samples if self.smoothing else 1)
        checks.weights(self.weight, self.share)

    @property
    def noise(self) -> Smoothing | None:
        return self.smoothing

    @property
    def spendable(self) -> int:
        return QUALITY[self.budget] if isinstance(self.budget, str) else self.budget

    @property
    def weight(self) -> float | torch.Tensor | None:
        """eta, where the prior has one."""
        return None

    @property
    def share(self) -> float | None:
        """The share of units to keep, where it was asked for."""
        return None

    def prior(self, x: Images) -> Prior:
        return Zero()

    def _solver(self, random: bool) -> Solver:
        chosen = self.solver or ("dual_averaging" if random else "proximal_gradient")
        solver: Any = SOLVERS[chosen]() if isinstance(chosen, str) else chosen
        # a solver that was given no budget of its own takes the method's
        return replace(solver, budget=self.spendable) if getattr(solver, "budget", 0) is None else solver  # type: ignore[no-any-return]

    def has_convergence_delta(self) -> bool:
        return True

    def compute(self, call: Call) -> Outcome:
        score = call.score if self.smoothing is None else call.smoothed(self.smoothing)
        eta = 0.0 if self.weight is None else self.weight
        checks.one_each("eta", eta, len(call.x))
        problem = Envelope(score, self.prior(call.x), self.rho, call.x, eta, self.share)
        solution = self._solver(score.random).run(problem, call.watch)
        _mention_zero_maps(solution.delta, solution.eta)
        return Outcome(
            problem.map(solution.delta),
            solution.gradients,
            delta=solution.delta,
            eta=solution.eta,
            envelope=solution.value + problem.penalty(solution.delta, solution.eta),
            residual=solution.residual,
            converged=solution.converged,
            stderr=solution.stderr,
        )


@dataclass(frozen=True, eq=False)
class SparseMoreauGrad(MoreauGrad):
    """MoreauGrad with eta |delta|_1: the map is the envelope's gradient, soft-thresholded at eta.

    The envelope's own gradient, grad f(x + delta*), is not sparse and not what is returned. `sparsity`
    keeps that share of each map's entries by choosing eta per image, which seldom transfers between images.
    """

    eta: float | torch.Tensor | None = None  # in units of the gradient, also one per image; default 0.005
    sparsity: float | None = None  # share of entries (groups) to keep

    @property
    def weight(self) -> float | torch.Tensor | None:
        return 0.005 if self.eta is None and self.sparsity is None else self.eta

    @property
    def share(self) -> float | None:
        return self.sparsity

    def prior(self, x: Images) -> Prior:
        return L1()


@dataclass(frozen=True, eq=False)
class GroupSparseMoreauGrad(SparseMoreauGrad):
    """MoreauGrad with eta sum_S |delta_S|_2: whole groups S are kept or dropped, `sparsity` counts groups.

    Groups: a number of cells per side (all channels pooled), "superpixels", "channels", or integer labels of
    shape (d,), (H, W) or (N, H, W).
    """

    groups: Any = 16

    @property
    def weight(self) -> float | torch.Tensor | None:
        return 0.05 if self.eta is None and self.sparsity is None else self.eta

    def prior(self, x: Images) -> Prior:
        return make_groups(self.groups, x)


def _mention_zero_maps(delta: Images, eta: torch.Tensor) -> None:
    zero = (delta == 0).flatten(1).all(1) & (eta > 0)
    if bool(zero.any()):
        log.warning(
            "%d of %d maps are all zero: eta is above every gradient entry (or group norm), or all are equal; "
            "lower it or use sparsity=",
            int(zero.sum()),
            len(delta),
        )
