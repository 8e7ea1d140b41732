"""MoreauGrad, plain, sparse and group-sparse: the map is -delta/rho at the minimiser of the envelope's objective."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch

from moreaugrad import validate
from moreaugrad.certificates.theory import certified_rho, lam_range
from moreaugrad.envelope.derivative import Slope, Solved
from moreaugrad.envelope.envelope import Envelope
from moreaugrad.envelope.groups import make_groups
from moreaugrad.envelope.priors_l1 import L1
from moreaugrad.envelope.priors_zero import Zero
from moreaugrad.envelope.solvers import SOLVERS, DualAveraging
from moreaugrad.envelope.solvers.path import PathAveraging
from moreaugrad.methods import QUALITY
from moreaugrad.methods.base import Method
from moreaugrad.methods.call import Call
from moreaugrad.model.bounded import Bounded
from moreaugrad.model.hessian import Given
from moreaugrad.model.noise import Smoothing
from moreaugrad.types import Counts, Images, Outcome, Prior, Solution, Solver

log = logging.getLogger("moreaugrad")


@dataclass(frozen=True, eq=False)
class MoreauGrad(Method):
    """The gradient of the Moreau envelope of the class score, -delta*/rho, with
    delta* = argmin E f_c(x + delta + z) + |delta|^2 / (2 rho).

    As rho goes to 0 it goes to the plain gradient of the smoothed score.
    """

    rho: float = 1.0  # envelope radius, in squared units of the input; "certified": half of the largest sound one
    smoothing: Smoothing | None = field(default_factory=Smoothing, kw_only=True)  # None: the score as it is
    budget: int | str = field(default=800, kw_only=True)  # sample-gradients per image, or fast | balanced | best
    seed: int | torch.Generator | None = field(default=0, kw_only=True)
    relative_error: float | None = field(default=None, kw_only=True)  # stop an image when its map is known so well
    solver: Solver | str | None = field(default=None, kw_only=True)  # None: chosen by the smoothing
    grad_mode: Slope | str = field(default="implicit", kw_only=True)  # of create_graph; or covariance, unrolled, frozen

    def __post_init__(self) -> None:
        Method.__post_init__(self)
        validate.smooth(self.smoothing, Smoothing)
        told: Any = self.rho
        if told == "certified":
            object.__setattr__(self, "rho", self._certified())
        validate.positive("rho", self.rho)
        validate.seed(self.seed)
        if self.relative_error is not None:
            validate.positive("relative_error", self.relative_error)
        validate.solver(self.solver, SOLVERS)
        validate.steps(self.spendable, self.smoothing.samples if self.smoothing else 1)
        validate.weights(self.weight, self.share)
        if self.slope.mode == "covariance":
            validate.under_noise(self.smoothing is not None)

    def _certified(self) -> float:
        """theta/lam with theta = 1/2, where a range and sigma are known; `certify` knows more ways."""
        bounds = (0.0, 1.0) if self.score == "prob" else None
        if isinstance(self.forward_func, Bounded) and self.score == "logit":
            bounds = self.forward_func.bounds
        sigma = self.smoothing.sigma if self.smoothing is not None and not self.smoothing.fixed else None
        validate.certifiable(bounds, sigma)
        assert sigma is not None
        assert bounds is not None
        return certified_rho(lam_range(bounds[0], bounds[1], sigma))

    @property
    def slope(self) -> Slope:
        """How the map is differentiated where a graph is asked for."""
        return self.grad_mode if isinstance(self.grad_mode, Slope) else Slope(self.grad_mode)

    @property
    def differentiable(self) -> bool:
        return self.several is None

    @property
    def derived(self) -> bool:
        return True

    @property
    def second_order(self) -> bool:
        return self.slope.mode != "covariance"

    def slope_cost(self, gradients: Counts) -> Counts:
        noise = self.smoothing
        cost = self.slope.cost(noise.samples if noise else 1, noise is not None and not noise.fixed)
        return torch.full_like(gradients, cost)

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

    def prior(self, call: Call) -> Prior:
        return Zero()

    def _solver(self, random: bool) -> Solver:
        chosen = self.solver or ("dual_averaging" if random else "proximal_gradient")
        solver: Any = SOLVERS[chosen]() if isinstance(chosen, str) else chosen
        # what a solver was not told itself it takes from the method
        told = {"budget": self.spendable, "relative_error": self.relative_error}
        return replace(solver, **{key: value for key, value in told.items() if getattr(solver, key, 0) is None})  # type: ignore[no-any-return]

    def has_convergence_delta(self) -> bool:
        return True

    def compute(self, call: Call) -> Outcome:
        x = call.x
        with torch.no_grad():
            problem = self._problem(replace(call, x=x.detach()), self.weight, self.share)
            solution = self._solver(problem.score.random).run(problem, call.watch)
        found = self._outcome(problem, solution)
        if not call.graph:
            return found
        solved = Solved(problem, solution.delta, solution.eta, self.slope)
        return replace(found, map=Given.apply(x, found.map, solved.pull))

    def _problem(self, call: Call, weight: Any, share: float | None) -> Envelope:
        score = call.score if self.smoothing is None else call.smoothed(self.smoothing)
        eta = 0.0 if weight is None else weight
        validate.one_each("eta", eta, call.images)
        return Envelope(score, self.prior(call), self.rho, call.x, call.part(eta), share)

    def _outcome(self, problem: Envelope, solution: Solution) -> Outcome:
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

    eta: float | torch.Tensor | Sequence[float] | None = None  # in units of the gradient, also one per image; 0.005
    sparsity: float | Sequence[float] | None = None  # share of entries (groups) to keep

    @property
    def weight(self) -> Any:
        return 0.005 if self.eta is None and self.sparsity is None else self.eta

    @property
    def share(self) -> Any:
        return self.sparsity

    @property
    def several(self) -> Sequence[Mapping[str, Any]] | None:
        if isinstance(self.eta, Sequence):
            return [{"eta": each} for each in self.eta]
        return [{"sparsity": each} for each in self.sparsity] if isinstance(self.sparsity, Sequence) else None

    def compute_several(self, call: Call) -> list[Outcome]:
        """A path is solved as one where its gradients are noisy; else point by point."""
        if self.several is None:
            return [self.compute(call)]
        points = [(point.get("eta"), point.get("sparsity")) for point in self.several]
        problem = self._problem(call, *points[0])
        solver = self._solver(problem.score.random)
        if isinstance(solver, DualAveraging) and problem.score.random:
            together = PathAveraging(solver.budget).run(problem, points, call.watch)
            if together is not None:
                return [self._outcome(problem, solution) for solution in together]
        return [self._outcome(each, solver.run(each)) for each in (self._problem(call, *point) for point in points)]

    def prior(self, call: Call) -> Prior:
        return L1()


@dataclass(frozen=True, eq=False)
class GroupSparseMoreauGrad(SparseMoreauGrad):
    """MoreauGrad with eta sum_S |delta_S|_2: whole groups S are kept or dropped, `sparsity` counts groups.

    Groups: a number of cells per side (all channels pooled), "superpixels", "channels", or integer labels of
    shape (d,), (H, W) or (N, H, W).
    """

    groups: Any = 16

    @property
    def weight(self) -> Any:
        return 0.05 if self.eta is None and self.sparsity is None else self.eta

    def prior(self, call: Call) -> Prior:
        return make_groups(call.part(self.groups), call.x)


def _mention_zero_maps(delta: Images, eta: torch.Tensor) -> None:
    zero = (delta == 0).flatten(1).all(1) & (eta > 0)
    if bool(zero.any()):
        log.warning(
            "%d of %d maps are all zero: eta is above every gradient entry (or group norm), or all are equal; "
            "lower it or use sparsity=",
            int(zero.sum()),
            len(delta),
        )
