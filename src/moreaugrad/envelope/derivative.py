"""The derivative of a solved map, by the implicit function theorem or by its stand-ins.

At a solution with active entries A and H the Hessian of the score at x + delta,
    (I + rho H_AA + rho Gam) dM_A = H_A: dx,    Gam of a group S: (eta/|delta_S|)(I - u u'), u = delta_S/|delta_S|.
For a cotangent w: solve (I + rho H_AA + rho Gam) q = w_A by conjugate gradients, then d loss/dx = H q. Memory does
not depend on the steps of the solver. eta counts as a constant, also where a sparsity chose it.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from moreaugrad import limits, validate
from moreaugrad.batch import norm, spread, total
from moreaugrad.envelope.envelope import Envelope
from moreaugrad.model.smoothing import SmoothedScore, antithetic
from moreaugrad.types import Flags, Images, PerImage, TwiceDifferentiablePrior

log = logging.getLogger("moreaugrad")

Product = Callable[[Images], Images]  # the Hessian times a direction
POWER = 4  # Hessian products that tell how strongly the score is curved


@dataclass(frozen=True)
class Derivative:
    """How a solved map is differentiated where `create_graph=True` asks for it. Subclasses define `pull` and `cost`.

    In all of them eta counts as a constant, also where a sparsity chose it from the image, and so does a noise level
    relative to the image's range.
    """

    name: ClassVar[str]
    second_order: ClassVar[bool] = True  # needs the network's second derivative, which one with kinks does not have
    needs_active: ClassVar[bool] = True  # asks the prior which entries follow a change

    def pull(self, problem: Envelope, delta: Images, eta: PerImage, w: Images) -> Images:
        """d loss/dx from w = d loss/d map, at the solution delta."""
        raise NotImplementedError

    def cost(self, per_draw: int, random: bool) -> int:
        """Most sample-gradients that one derivative takes; a Hessian product counts as three."""
        raise NotImplementedError

    def check(self, prior: Any, smoothed: bool) -> None:
        """Refuses a prior or a score that this derivative cannot handle."""
        if self.needs_active and not isinstance(prior, TwiceDifferentiablePrior):
            lacking = [name for name in ("active", "hessian_product", "stiffness") if not hasattr(prior, name)]
            raise ValueError(
                f"create_graph=True with derivative={type(self).__name__}() needs a prior with {', '.join(lacking)}, "
                f"got {type(prior).__name__}; define them (see TwiceDifferentiablePrior), or use derivative=Unrolled()"
            )


@dataclass(frozen=True)
class Sized(Derivative):
    """A derivative with a number of steps and of noise vectors; None takes the default of its kind."""

    steps: int | None = None
    samples: int | None = None

    noisy: ClassVar[tuple[int, int, float]]  # steps, samples, tol of an estimate under noise
    exact: ClassVar[tuple[int, int, float]]  # and of a score without

    def __post_init__(self) -> None:
        limits.take_plain_numbers(self)
        if self.steps is not None:
            validate.at_least("steps", self.steps, 0)
        if self.samples is not None:
            validate.at_least("samples", self.samples, 1)
        if (tol := getattr(self, "tol", None)) is not None:
            validate.not_negative("tol", tol)

    def sizes(self, random: bool) -> tuple[int, int, float]:
        """Steps, samples and tolerance: as given, else by whether the score is random."""
        steps, samples, tol = self.noisy if random else self.exact
        own: float | None = getattr(self, "tol", None)
        return (
            steps if self.steps is None else self.steps,
            samples if self.samples is None else self.samples,
            tol if own is None else own,
        )

    def rows(self, per_draw: int, random: bool) -> int:
        """Rows of one Hessian product: whole draws."""
        samples = self.sizes(random)[1]
        return -(-samples // per_draw) * per_draw if random else per_draw

    def draws(self, problem: Envelope) -> list[tuple[Any, int]]:
        """The noise under which the Hessian is taken: scores with the number of their draw."""
        score: Any = problem.score
        if not isinstance(score, SmoothedScore) or not score.random:
            return [(score, 0)]
        return [(score, draw) for draw in range(-(-self.sizes(True)[1] // score.samples))]

    def hessian(self, problem: Envelope, delta: Images) -> Product:
        """The Hessian of the score at x + delta as a product, on noise that is always the same."""
        draws = self.draws(problem)
        return lambda way: torch.stack([each.product(problem.x + delta, way, draw) for each, draw in draws]).mean(0)


@dataclass(frozen=True)
class Implicit(Sized):
    """Differentiates the optimality condition: conjugate gradients on Hessian products. The most exact.

    Solves (I + rho H + rho eta prior'') q = w on the kept entries; d loss/dx = H q. Needs a network with second
    derivatives; see `with_softplus`.

    Args:
        steps: most steps of conjugate gradients; None takes 8 under noise, 60 without.
        samples: noise vectors of the Hessian; None takes 16. Fixed noise is taken as it is.
        tol: relative residual at which the linear system counts as solved; None takes 1e-3 under noise, 1e-8 without.

    Example:
        >>> method = mg.MoreauGrad(mg.with_softplus(net), derivative=mg.Implicit(steps=5, samples=8), budget=80)
        >>> x.requires_grad_()[:, 0, 0, 0].shape
        torch.Size([2])
        >>> method.attribute(x, target=3, create_graph=True).square().sum().backward()
        >>> x.grad.shape
        torch.Size([2, 3, 16, 16])
    """

    tol: float | None = None

    name = "implicit"
    noisy = (8, 16, 1e-3)
    exact = (60, 1, 1e-8)

    def pull(self, problem: Envelope, delta: Images, eta: PerImage, w: Images) -> Images:
        steps, _, tol = self.sizes(problem.score.random)
        return solve_implicit(problem, delta, eta, w, self.hessian(problem, delta), steps, tol)

    def cost(self, per_draw: int, random: bool) -> int:
        return 3 * max(1, self.sizes(random)[0]) * self.rows(per_draw, random)


@dataclass(frozen=True)
class Covariance(Sized):
    """Implicit differentiation with a Hessian estimated from first gradients under noise, which includes kinks.

    H v = E[(g - E g) <z, v> + z <g - E g, v>] / (2 sigma), g the gradient at x + sigma z (Stein's identity): noisy,
    but it needs no second derivative of the network. For smoothed scores.

    Args:
        steps: most steps of conjugate gradients; None takes 4.
        samples: noise vectors of the estimate; None takes 128.
        tol: relative residual at which the linear system counts as solved; None takes 1e-3.

    Example:
        >>> mg.MoreauGrad(net, derivative=mg.Covariance(samples=64)).derivative
        Covariance(steps=None, samples=64, tol=None)
    """

    tol: float | None = None

    name = "covariance"
    second_order = False
    noisy = (4, 128, 1e-3)
    exact = (4, 128, 1e-3)

    def check(self, prior: Any, smoothed: bool) -> None:
        super().check(prior, smoothed)
        if not smoothed:
            raise ValueError("derivative=Covariance() needs a smoothed score, got smoothing=None; use Implicit()")

    def pull(self, problem: Envelope, delta: Images, eta: PerImage, w: Images) -> Images:
        score: Any = problem.score
        fresh = replace(score, smoothing=replace(score.smoothing, fixed=False))  # a few fixed vectors are not enough
        draws = self.draws(replace(problem, score=fresh))
        steps, _, tol = self.sizes(problem.score.random)
        return solve_implicit(problem, delta, eta, w, NoiseHessian.of(draws, problem.x + delta), steps, tol)

    def cost(self, per_draw: int, random: bool) -> int:
        return self.rows(per_draw, True)


@dataclass(frozen=True)
class Unrolled(Sized):
    """Back-propagates through proximal gradient updates that start at the solution, on fixed noise.

    Works with every prior whose prox autograd can differentiate. Needs a network with second derivatives.

    Args:
        steps: updates to go back through; None takes 8 under noise, 60 without.
        samples: noise vectors; None takes 16.

    Example:
        >>> mg.MoreauGrad(net, derivative=mg.Unrolled(steps=4)).derivative
        Unrolled(steps=4, samples=None)
    """

    name = "unrolled"
    needs_active = False
    noisy = (8, 16, 0.0)
    exact = (60, 1, 0.0)

    def pull(self, problem: Envelope, delta: Images, eta: PerImage, w: Images) -> Images:
        rho, draws = problem.rho, self.draws(problem)
        length = spread(rho / (1 + rho * largest_curvature(self.hessian(problem, delta), delta)), delta)
        share = rho / (rho + length)
        amount = (share * length).flatten() * eta
        with torch.enable_grad():
            x = problem.x.detach().requires_grad_()
            delta = delta.detach()
            for _ in range(self.sizes(problem.score.random)[0]):
                grad = torch.stack([with_graph(score).value_and_grad(x + delta, draw)[1] for score, draw in draws])
                delta = problem.prior.prox(share * (delta - length * grad.mean(0)), amount)
            (found,) = torch.autograd.grad(problem.map(delta), x, w, allow_unused=True)
        return torch.zeros_like(w) if found is None else found

    def cost(self, per_draw: int, random: bool) -> int:
        return (4 * self.sizes(random)[0] + 3 * POWER) * self.rows(per_draw, random)


@dataclass(frozen=True)
class Frozen(Derivative):
    """Holds delta constant and leaves the noise out, as in the paper's attack: the cheapest, and the weakest.

    Example:
        >>> mg.MoreauGrad(net, derivative=mg.Frozen()).derivative
        Frozen()
    """

    name = "frozen"

    def pull(self, problem: Envelope, delta: Images, eta: PerImage, w: Images) -> Images:
        score: Any = problem.score
        bare = score.base if isinstance(score, SmoothedScore) else score
        active = find_active(problem, delta, eta)
        found: Images = bare.product(problem.x + delta, torch.where(active, w, 0.0))
        return found

    def cost(self, per_draw: int, random: bool) -> int:
        return 3


DERIVATIVES: dict[str, type[Derivative]] = {kind.name: kind for kind in (Implicit, Covariance, Unrolled, Frozen)}


def parse_derivative(text: str) -> Derivative:
    """A derivative by its name, or with steps and samples of its own, as in implicit:5x16."""
    if not isinstance(text, str):
        raise TypeError(f"a mode must be a name, or NAME:STEPSxSAMPLES such as implicit:5x16, got {text!r}")
    name, colon, size = text.partition(":")
    validate.one_of("derivative", name, DERIVATIVES)
    if not colon:
        return DERIVATIVES[name]()
    steps, _, samples = size.partition("x")
    if not (steps.isdecimal() and samples.isdecimal()) or name == "frozen":
        raise ValueError(f"a mode must be a name, or NAME:STEPSxSAMPLES such as implicit:5x16, got {text!r}")
    return DERIVATIVES[name](int(steps), int(samples))  # type: ignore[call-arg]


def find_active(problem: Envelope, delta: Images, eta: PerImage) -> Bool[Tensor, "n *shape"]:
    """The entries that follow a change of the input; all of them where the prior has no weight."""
    prior: Any = problem.prior
    active: Tensor = prior.active(delta) | spread(eta == 0, delta)
    return active


def solve_implicit(
    problem: Envelope, delta: Images, eta: PerImage, w: Images, hessian: Product, steps: int, tol: float
) -> Images:
    """H q with (I + rho H_AA + rho Gam) q = w_A: conjugate gradients, each image by itself."""
    prior: Any = problem.prior
    active, weight, rho = find_active(problem, delta, eta), spread(eta, delta), problem.rho
    soft = 1 / (1 + rho * weight * prior.stiffness(delta))  # the preconditioner: groups near zero are stiff
    rest = torch.where(active, w, 0.0)
    q, curved = torch.zeros_like(w), torch.zeros_like(w)  # the solution so far, and H times it
    goal, done = tol * norm(rest), norm(rest) == 0
    eased = soft * rest
    way, size = eased, total(rest * eased)
    nonconvex = torch.zeros_like(done)
    for _ in range(steps):
        turned = hessian(way)
        pushed = torch.where(active, way + rho * (turned + weight * prior.hessian_product(delta, way)), 0.0)
        curvature = total(way * pushed)
        nonconvex = nonconvex | (~done & ~(curvature > 0))
        done = done | nonconvex
        length = spread(torch.where(done, 0.0, size / torch.where(curvature > 0, curvature, 1.0)), delta)
        q, curved, rest = q + length * way, curved + length * turned, rest - length * pushed
        done = done | (norm(rest) <= goal)
        if bool(done.all()):
            break
        eased = soft * rest
        new = total(rest * eased)
        way = eased + spread(torch.where(done, 0.0, new / torch.where(size > 0, size, 1.0)), delta) * way
        size = torch.where(done, size, new)
    _report_nonconvex(nonconvex)
    # an image whose very first direction curves down, or with no step at all, is left with q = w_A
    stuck = spread(norm(q) == 0, q)
    if bool((stuck & active & (w != 0)).any()):
        first = torch.where(active, w, 0.0)
        q, curved = torch.where(stuck, first, q), torch.where(stuck, hessian(first), curved)
    return curved


@dataclass(frozen=True, eq=False)
class NoiseHessian:
    """The Hessian of a smoothed score by Stein's identity.

    Unbiased up to (m - 1)/m, but noisy, of rank 2 m at most and perhaps indefinite: for few steps of a solve.
    """

    grads: Float[Tensor, "n m *shape"]  # centred, over sigma
    noise: Float[Tensor, "m *shape"]

    @classmethod
    def of(cls, draws: Sequence[tuple[Any, int]], at: Images) -> NoiseHessian:
        """From the gradients at x under the noise of some draws."""
        grads, noise = [], []
        for score, draw in draws:
            found = torch.empty(len(at), score.samples, *at.shape[1:], dtype=at.dtype, device=at.device)
            for some, _, grad in score.each(at, draw, score.samples):
                found[some] = grad
            grads.append(found / score.sigma[:, None])
            noise.append(antithetic(tuple(at.shape[1:]), score.samples, score.seed, draw if score.random else 0, at))
        every = torch.cat(grads, 1)
        return cls(every - every.mean(1, keepdim=True), torch.cat(noise))

    def __call__(self, v: Images) -> Images:
        grads, noise, flat = self.grads.flatten(2), self.noise.flatten(1), v.flatten(1)
        of_noise = flat @ noise.T  # (n, m)
        of_grads = torch.einsum("nmd,nd->nm", grads, flat)
        both = torch.einsum("nm,nmd->nd", of_noise, grads) + of_grads @ noise
        return (both / (2 * len(noise))).view_as(v)


def largest_curvature(hessian: Product, delta: Images) -> PerImage:
    """About the largest curvature of the score, by the power method."""
    way = delta + (norm(delta) == 0).view(-1, *[1] * (delta.ndim - 1)).to(delta)
    size = norm(way)
    for _ in range(POWER):
        way = hessian(way / spread(size.clamp_min(torch.finfo(way.dtype).tiny), way))
        size = norm(way)
    return 1.5 * size  # the power method comes from below


def with_graph(score: Any) -> Any:
    """The score with gradients that can be differentiated by x again, not by the weights."""
    if isinstance(score, SmoothedScore):
        return replace(score, base=replace(score.base, graph=True, weights=False))
    return replace(score, graph=True, weights=False)


def _report_nonconvex(nonconvex: Flags) -> None:
    if bool(nonconvex.any()):
        log.info(
            "the problem of %d of %d images is not convex at its solution (rho is too large for the curvature there); "
            "their derivative is that of fewer steps",
            int(nonconvex.sum()),
            len(nonconvex),
        )
