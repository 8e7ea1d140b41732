"""MoreauGrad, plain, sparse and group-sparse: the map is -delta/rho at the minimiser of the envelope's objective."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, cast

import torch
from torch import Tensor

from moreaugrad import limits, validate
from moreaugrad.batch import norm, relative_error
from moreaugrad.envelope.derivative import Derivative, Implicit, Sized, parse_derivative
from moreaugrad.envelope.envelope import Envelope, Solution, Solver, range_curvature
from moreaugrad.envelope.groups import take_groups
from moreaugrad.envelope.priors import L1, PRIORS, Group, Zero
from moreaugrad.envelope.solvers import SOLVERS, AtInput, DualAveraging
from moreaugrad.envelope.solvers.path import PathAveraging
from moreaugrad.envelope.statistic_slope import pull_statistic, pull_threshold
from moreaugrad.methods import PRESETS, QUALITY
from moreaugrad.methods.base import Call, NoisyMethod
from moreaugrad.methods.smoothgrad import TAU, check_statistic
from moreaugrad.model.bounded import Bounded
from moreaugrad.model.hessian import Given
from moreaugrad.model.statistics import read_statistic, voting_share
from moreaugrad.results import Explanation, Option
from moreaugrad.types import Counts, Images, PerImage, Prior, Watch
from moreaugrad.wording import KNOWN

log = logging.getLogger("moreaugrad")

SPARSITY = 0.05  # share of the units kept where neither eta nor a sparsity is given, unless the prior names its own


@dataclass(frozen=True, eq=False)
class MoreauGrad(NoisyMethod):
    """The gradient of the Moreau envelope of the smoothed class score, with any prior.

    map = -delta*/rho with delta* = argmin over delta of E f_c(x + delta + z) + |delta|^2 / (2 rho) + eta prior(delta).
    Without a prior this is the gradient of the envelope, and the gradient of the smoothed score as rho goes to 0.
    With one it is that gradient, thresholded: the envelope's own gradient, grad f(x + delta*), is not sparse and not
    what is returned. Use it for a map that changes little with the input; `SparseMoreauGrad` for exact zeros.

    Args:
        forward_func: a module in evaluation mode, any callable that returns scores of shape (N, classes), or what
            `prepare` returns.
        rho: envelope radius, in squared units of the input; "certified" takes half of the largest sound one. 0 takes
            all gradients at x and solves nothing: the limit, exactly.
        eta: weight of the prior, in units of the gradient, or of the statistic where that is not the mean; a tensor
            gives one per image, a list asks for a path of maps.
        sparsity: share of entries (groups) to keep, in (0, 1]: chooses eta for each image. A list asks for a path.
            Where neither is given, a prior keeps its own default share. It is the share of all inputs together: of an
            image and a table it may keep little of one and all of the other.
        prior: the penalty: a Prior, or the name of one in `PRIORS`.
        smoothing: the noise; None explains the score as it is.
        noise_level: noise relative to each image's range, instead of `smoothing`; 0 means no noise.
        sigma: absolute noise, instead of `noise_level`.
        samples: noise vectors per step.
        budget: sample-gradients per image, or "fast", "balanced", "best".
        seed: of the noise; a torch.Generator draws one, None takes a fresh one.
        relative_error: stop an image once its map's relative standard error is below this value.
        solver: a Solver, or one of "dual_averaging", "proximal_gradient", "paper"; None chooses by the smoothing.
        derivative: how the map is differentiated with `create_graph=True`: `Implicit()` (None), `Covariance()`,
            `Unrolled()` or `Frozen()`.
        statistic: what is taken of the gradients g under noise: "mean", the published map; "rms", sqrt(E g^2), which
            attacks move least; "votes", how often an entry is among the largest, which can be certified; "geometric",
            the geometric mean of |mean| and rms; or another name in `STATISTICS`. All but the mean are never negative,
            and are taken around the minimiser without a prior; the prior's prox then acts on them.
            `found.statistics` has the first four of every solve.
        tau: share of the entries that a noisy copy votes for.
        preset: a word for several of these options: "published", as in the paper and where no preset is given; or
            "robust", for maps that attacks move less. Options that are given win over it.
        expanded: for copies by `dataclasses.replace`; leave it out.
        **further: `score`, `precision`, `compile` and `hessian_step`, as in `Method`.

    Example:
        >>> found = mg.MoreauGrad(net, rho=0.5, noise_level=0.1, budget=80).explain(x)
        >>> found.map.shape
        torch.Size([2, 3, 16, 16])
    """

    rho: float = 1.0
    eta: float | Tensor | Sequence[float] | None = None
    sparsity: float | Sequence[float] | None = None
    prior: Prior | str | None = field(default=None, kw_only=True)
    budget: int | str = field(default=800, kw_only=True)
    relative_error: float | None = field(default=None, kw_only=True)
    solver: Solver | str | None = field(default=None, kw_only=True)
    derivative: Derivative | str | None = field(default=None, kw_only=True)
    statistic: str = field(default="mean", kw_only=True)
    tau: float = field(default=TAU, kw_only=True)
    preset: str | None = field(default=None, kw_only=True)
    expanded: str | None = field(default=None, kw_only=True, repr=False)  # the preset that the options above have

    presets: ClassVar[Mapping[str, Mapping[str, Any]]] = PRESETS

    def __post_init__(self, noise_level: float | None, sigma: float | None, samples: int | None) -> None:
        super().__post_init__(noise_level, sigma, samples)
        self._set_prior()
        rho: Any = self.rho
        if rho == "certified":
            object.__setattr__(self, "rho", self._certified_rho())
        validate.not_negative("rho", self.rho)
        check_statistic(self.statistic, self.tau, self.smoothing)
        if self.relative_error is not None:
            validate.positive("relative_error", self.relative_error)
        _check_solver(self.solver, self.rho)
        validate.steps(self.spendable, self.smoothing.samples if self.smoothing and self.rho > 0 else 1)
        _check_weights(self.eta, self.sparsity)
        if isinstance(self.derivative, str):
            object.__setattr__(self, "derivative", parse_derivative(self.derivative))
        if self.derivative is not None:
            if not isinstance(self.derivative, Derivative):
                raise TypeError(
                    "derivative must be Implicit(), Covariance(), Unrolled(), Frozen() or None, "
                    f"got {self.derivative!r}"
                )
            self.derivative.check(Zero() if self.takes_statistic else self.prior, self.smoothing is not None)

    def options(self) -> Mapping[str, Option]:
        return {**super().options(), "preset": self.describe_preset()}

    def describe_preset(self) -> str | None:
        """The preset that was taken, with the options that differ from it; None: none was."""
        if self.preset is None:
            return None
        noise: Mapping[str, Any] = {"noise_level": 0}
        if self.smoothing is not None:
            noise = {name: getattr(self.smoothing, name) for name in ("noise_level", "sigma")}
        mine = {"rho": self.rho, "statistic": self.statistic, **noise}
        wanted = {"sigma": None, **self.presets[self.preset]}
        changed = [f"{key}={value}" for key, value in mine.items() if value is not None and value != wanted[key]]
        return f"{self.preset} with {', '.join(changed)}" if changed else self.preset

    @property
    def counts_votes(self) -> bool:
        return self.statistic == "votes"

    def with_statistic(self, name: str) -> MoreauGrad:
        return replace(self, statistic=name)

    @property
    def takes_statistic(self) -> bool:
        """Whether the prior acts on a statistic of gradients, instead of on the problem that is solved."""
        return self.rho == 0 or self.statistic != "mean"

    def _set_prior(self) -> None:
        """The prior itself, from its name or from the class."""
        if any(callable(vars(each).get("prior")) for each in type(self).__mro__):
            raise TypeError(
                f"{type(self).__name__} must not define prior() as a method: prior is an option now; give prior=..., "
                "or define make_prior(call)"
            )
        prior: Any = self.prior
        if isinstance(prior, str):
            prior = PRIORS[prior]()
        own = self._own_prior()
        if own is not None:
            if prior is not None and type(prior) is not type(own):
                raise ValueError(
                    f"{type(self).__name__} sets its own prior, {type(own).__name__}, got prior={prior!r}; use "
                    "MoreauGrad(forward_func, prior=...) for another"
                )
            prior = own
        prior = Zero() if prior is None else prior
        validate.prior(prior)
        object.__setattr__(self, "prior", prior)
        own_prior = type(self).make_prior is not MoreauGrad.make_prior
        if isinstance(prior, Zero) and not own_prior and (self.eta is not None or self.sparsity is not None):
            raise ValueError("eta and sparsity need a prior, got none; give prior=L1(), or use SparseMoreauGrad")

    def _own_prior(self) -> Prior | None:
        """The prior that the class sets, if it does."""
        return None

    @property
    def share(self) -> Any:
        """The share of units to keep: as given, or the prior's default; None where eta is given or no prior."""
        if self.sparsity is not None or self.eta is not None or isinstance(self.prior, Zero):
            return self.sparsity
        return getattr(self.prior, "default_sparsity", SPARSITY)

    def make_prior(self, call: Call) -> Prior:
        """The prior of a batch: groups, for example, follow the images."""
        prior: Any = self.prior
        if isinstance(prior, Group):  # each image and each input may have labels of its own
            prior = replace(prior, groups=take_groups(prior.groups, call.packing.shapes, call.images, call.some))
            parts = call.packing.split(call.x)
            return cast(Prior, prior.for_batch(parts if len(parts) > 1 else call.x))
        return prior.for_batch(call.x) if hasattr(prior, "for_batch") else prior  # type: ignore[no-any-return]

    def _certified_rho(self) -> float:
        """theta/lam with theta = 1/2, where a range and sigma are known; `certify` knows more ways."""
        bounds = self.forward_func.bounds if isinstance(self.forward_func, Bounded) and self.score == "logit" else None
        bounds = (0.0, 1.0) if self.score == "prob" else bounds
        sigma = self.smoothing.sigma if self.smoothing is not None and not self.smoothing.fixed else None
        if bounds is None or sigma is None:
            raise ValueError(
                "rho='certified' needs a score with a known range under noise of a fixed sigma, got "
                f"{'no range' if bounds is None else 'no fresh noise of a fixed sigma'}; take score='prob' and "
                "Smoothing(sigma=...), or give rho='certified' to certify, with what else is known of the network"
            )
        return 0.5 / range_curvature(bounds[0], bounds[1], sigma)

    @property
    def slope(self) -> Derivative:
        """How the map is differentiated where a graph is asked for."""
        return self.derivative if isinstance(self.derivative, Derivative) else Implicit()

    @property
    def differentiable(self) -> bool:
        return self.several is None

    @property
    def derived(self) -> bool:
        return True

    @property
    def second_order(self) -> bool:
        return self.slope.second_order and (self.rho > 0 or self.statistic != "votes")

    def slope_cost(self, gradients: Counts) -> Counts:
        noise = self.smoothing
        draw = (noise.samples if noise else 1, noise is not None and not noise.fixed)
        cost = self.slope.cost(*draw) if self.rho > 0 else 0
        if self.takes_statistic:
            cost += 3 * self.slope.rows(*draw) if isinstance(self.slope, Sized) else 3
        return torch.full_like(gradients, cost)

    @property
    def spendable(self) -> int:
        """The budget as a number."""
        return QUALITY[self.budget] if isinstance(self.budget, str) else self.budget

    @property
    def several(self) -> Sequence[Mapping[str, Any]] | None:
        if isinstance(self.eta, Sequence):
            return [{"eta": each} for each in self.eta]
        return [{"sparsity": each} for each in self.sparsity] if isinstance(self.sparsity, Sequence) else None

    def make_solver(self, random: bool) -> Solver:
        """The solver; what it was not given itself it takes from the method."""
        chosen = self.solver or ("dual_averaging" if random else "proximal_gradient")
        solver: Any = SOLVERS[chosen]() if isinstance(chosen, str) else chosen
        given = {"budget": self.spendable, "relative_error": self.relative_error}
        missing = {key: value for key, value in given.items() if getattr(solver, key, 0) is None}
        return replace(solver, **missing) if missing else solver  # type: ignore[no-any-return]

    def has_convergence_delta(self) -> bool:
        return True

    def compute(self, call: Call) -> Explanation | list[Explanation]:
        if self.takes_statistic:
            return self._compute_statistic(call)
        if self.several is not None:
            return self._compute_path(call, [(point.get("eta"), point.get("sparsity")) for point in self.several])
        with torch.no_grad():
            problem = self._problem(replace(call, x=call.x.detach()), self.eta, self.share)
            solution = self.make_solver(problem.score.random).run(problem, call.watch)
        found = _result(problem, solution)
        if not call.graph:
            return found
        slope = self.slope
        slope.check(problem.prior, self.smoothing is not None)

        def pull(w: Images) -> Images:
            return slope.pull(problem, solution.delta, solution.eta, w)

        return replace(found, map=Given.apply(call.x, found.map, pull))

    def _compute_statistic(self, call: Call) -> Explanation | list[Explanation]:
        """One set of gradients, and the prior's prox on what is taken of them: a path costs no more than a map."""
        fixed = replace(call, x=call.x.detach())
        points = [(point.get("eta"), point.get("sparsity")) for point in self.several or [{}]]
        points = points if self.several else [(self.eta, self.share)]
        with torch.no_grad():
            thresholds = [self._problem(fixed, *point, rho=1.0) for point in points]
            tau = None if self.smoothing is None else self._voting_share(call)  # also of fixed noise
            plain = replace(thresholds[0], prior=Zero(), rho=self.rho, eta=0.0, keep=None, tau=tau)
            plain = replace(plain, threshold=thresholds[0])
            solution = self._sample(plain, call.watch)
            moments = cast(Tensor, solution.moments)
            dense = read_statistic(self.statistic, moments)
            found = [_threshold(each, plain, solution, dense) for each in thresholds]
        if call.statistics and plain.tau is not None:
            found = [replace(each, moments=moments) for each in found]
        if not call.graph:
            return found if self.several is not None else found[0]
        slope = self.slope
        slope.check(Zero(), self.smoothing is not None)

        def pull(w: Images) -> Images:
            return pull_statistic(slope, plain, solution.delta, moments, pull_threshold(thresholds[0], dense, w))

        return replace(found[0], map=Given.apply(call.x, found[0].map, pull))

    def _voting_share(self, call: Call) -> float:
        return voting_share(self.statistic, self.tau, call.statistics)

    def _sample(self, plain: Envelope, watch: Watch) -> Solution:
        """The moments of the gradients around the minimiser: those of the solve, or a set of their own."""
        here = AtInput(self.spendable, self.relative_error)
        if self.rho == 0:
            return here.run(plain, watch)
        solution = self.make_solver(plain.score.random).run(plain, watch)
        if solution.moments is not None:
            return solution
        own = here.run(plain, delta=solution.delta)
        gradients = solution.gradients + own.gradients
        return replace(solution, gradients=gradients, stderr=own.stderr, moments=own.moments)

    def _compute_path(self, call: Call, points: list[tuple[Any, Any]]) -> list[Explanation]:
        """A path is solved as one where its gradients are noisy; else point by point."""
        problem = self._problem(call, *points[0])
        solver = self.make_solver(problem.score.random)
        own = self.solver not in (None, "dual_averaging") or self.relative_error is not None
        if isinstance(solver, DualAveraging) and problem.score.random and not own:
            together = PathAveraging(solver.budget).run(problem, points, call.watch)
            if together is not None:
                return [_result(problem, solution) for solution in together]
        return [_result(each, solver.run(each)) for each in (self._problem(call, *point) for point in points)]

    def _problem(self, call: Call, eta: Any, sparsity: float | None, rho: float | None = None) -> Envelope:
        score = call.score if self.smoothing is None else call.smoothed(self.smoothing)
        if isinstance(eta, Tensor) and eta.numel() not in (1, call.images):
            raise ValueError(f"eta must be one number, or one per image, got {eta.numel()} for {call.images} images")
        rho, eta = self.rho if rho is None else rho, call.part(0.0 if eta is None else eta)
        kept = call.statistics or self.takes_statistic
        tau = self._voting_share(call) if score.random and kept else None
        return Envelope(score, self.make_prior(call), rho, call.x, eta, sparsity, self.statistic, tau)


@dataclass(frozen=True, eq=False)
class SparseMoreauGrad(MoreauGrad):
    """MoreauGrad with the prior |delta|_1: exact zeros, single entries kept.

    The map is soft-thresholded at eta. `sparsity` keeps the same share of every map by choosing eta for each image;
    a fixed eta seldom transfers from one image or network to another.

    Args:
        forward_func: as in `MoreauGrad`, like all options that are not listed here.
        rho: envelope radius, in squared units of the input.
        eta: threshold in units of the gradient, instead of a sparsity; the paper uses 0.005.
        sparsity: share of the entries to keep, in (0, 1]; 0.05 where no eta is given.

    Example:
        >>> found = mg.SparseMoreauGrad(net, sparsity=0.1, budget=80).explain(x)
        >>> round(float(found.kept[0]), 2)
        0.1
    """

    def _own_prior(self) -> Prior:
        return L1()


@dataclass(frozen=True, eq=False)
class GroupSparseMoreauGrad(MoreauGrad):
    """MoreauGrad with the prior sum over groups S of |delta_S|_2: whole groups are kept or dropped.

    Args:
        forward_func: as in `MoreauGrad`, like all options that are not listed here.
        rho: envelope radius, in squared units of the input.
        eta: threshold of the group norms, in units of the gradient, instead of a sparsity; the paper uses 0.05.
        sparsity: share of the groups to keep, in (0, 1]; 0.15 where no eta is given.
        groups: a number of cells per side of a grid (channels pooled), "superpixels", "channels", or integer labels
            of shape (H, W), (N, H, W), (C, H, W), (tokens,), (T,) and others; a tuple of these for several inputs.
            `Group` lists them all.

    Example:
        >>> found = mg.GroupSparseMoreauGrad(net, sparsity=0.25, groups=4, budget=80).explain(x)
        >>> found.map[0].sum(0).count_nonzero().item()  # 4 of 16 cells of 16 pixels
        64
    """

    groups: Any = 16

    def _own_prior(self) -> Prior:
        return Group(self.groups)


def _threshold(threshold: Envelope, problem: Envelope, solution: Solution, dense: Images) -> Explanation:
    """The map that the prior makes of a statistic around the solution of a problem, with what is known of it."""
    map_, eta, stderr = threshold.thresholded(dense, solution.stderr)
    distance = norm(solution.delta).square() / (2 * problem.rho) if problem.rho else 0.0
    _warn_of_zeros(map_, eta)
    error = torch.zeros_like(eta) if stderr is None else relative_error(map_, stderr)
    return Explanation(
        map=map_,
        gradients=solution.gradients,
        delta=solution.delta,
        eta=eta,
        envelope=solution.value + distance,
        residual=solution.residual,
        converged=(solution.residual <= solution.tol) & (error <= KNOWN),
        stderr=stderr,  # type: ignore[arg-type]
    )


def _warn_of_zeros(map_: Images, eta: PerImage) -> None:
    zero = (map_ == 0).flatten(1).all(1) & (eta > 0)
    if bool(zero.any()):
        log.warning(
            "%d of %d maps are all zero: eta is above every gradient entry (or group norm), or all are equal; "
            "lower it or use sparsity=",
            int(zero.sum()),
            len(zero),
        )


def _result(problem: Envelope, solution: Solution) -> Explanation:
    map_ = problem.map(solution.delta)
    _warn_of_zeros(map_, solution.eta)
    # where a noisy map has no standard error, the residual is the only measure of its error
    noisy = solution.residual / norm(map_) if problem.score.random else torch.zeros_like(solution.residual)
    error = noisy if solution.stderr is None else relative_error(map_, solution.stderr)
    return Explanation(
        map=map_,
        gradients=solution.gradients,
        delta=solution.delta,
        eta=solution.eta,
        envelope=solution.value + problem.penalty(solution.delta, solution.eta),
        residual=solution.residual,
        converged=(solution.residual <= solution.tol) & (error <= KNOWN),
        stderr=solution.stderr,  # type: ignore[arg-type]
        moments=solution.moments,
    )


def _check_solver(given: object, rho: float) -> None:
    if given is not None and rho == 0:
        raise ValueError(
            f"rho=0 takes all gradients at the input and solves nothing, got solver={given!r} too; drop solver, or "
            "give a positive rho"
        )
    if isinstance(given, str):
        validate.one_of("solver", given, SOLVERS)
    elif given is not None and not hasattr(given, "run"):
        raise TypeError(f"solver must be None, one of {list(SOLVERS)} or an object with run(), got {given!r}")


def _check_weights(eta: Any, sparsity: Any) -> None:
    limits.one_weight(eta, sparsity)
    if isinstance(eta, Tensor):
        validate.dense("eta", eta)
    for each in eta.flatten().tolist() if isinstance(eta, Tensor) else validate.listed("eta", eta):
        if each is not None:
            validate.not_negative("eta", each)
    for each in validate.listed("sparsity", sparsity):
        if each is not None:
            validate.share("sparsity", each)
