"""The derivative of a solved map, by the implicit function theorem or by its stand-ins.

At a solution with active entries A and H the Hessian of the score at x + delta,
    (I + rho H_AA + rho Gam) dM_A = H_A: dx,    Gam of a group S: (eta/|delta_S|)(I - u u'), u = delta_S/|delta_S|.
For a cotangent w: solve (I + rho H_AA + rho Gam) q = w_A by conjugate gradients, then d loss/dx = H q. Memory does
not depend on the steps of the solver. eta counts as a constant, also where a sparsity chose it.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import torch
from jaxtyping import Bool
from torch import Tensor

from moreaugrad import validate
from moreaugrad.batch import norm, spread, total
from moreaugrad.envelope.envelope import Envelope
from moreaugrad.model.covariance import Covariance
from moreaugrad.model.smoothing import SmoothedScore
from moreaugrad.types import Flags, Images, PerImage

log = logging.getLogger("moreaugrad")

Product = Callable[[Images], Images]  # the Hessian times a direction
# steps, samples and tolerance where none are told: for an estimate under noise, and for a score without
POWER = 4  # Hessian products that tell how strongly the score is curved
MODES = {"implicit": (8, 16, 1e-3), "covariance": (4, 128, 1e-3), "unrolled": (8, 16, 0.0), "frozen": (0, 1, 0.0)}
EXACT = {"implicit": (60, 1, 1e-8), "covariance": (4, 128, 1e-3), "unrolled": (60, 1, 0.0), "frozen": (0, 1, 0.0)}


@dataclass(frozen=True, slots=True)
class Slope:
    """How a solved map is differentiated.

    implicit: conjugate gradients on Hessian products; covariance: the same on a Hessian estimated from first
    gradients under noise, which sees kinks; unrolled: through `steps` updates after the solution, on fixed noise;
    frozen: as published, delta a constant and the noise left out. Constants in all: eta, also where a sparsity chose
    it from the image, and a noise level relative to the image's range.
    """

    mode: str = "implicit"
    steps: int | None = None  # of conjugate gradients, or updates; None: by the mode, more where nothing is random
    samples: int | None = None  # noise vectors under which the Hessian is taken; fixed noise is taken as it is
    tol: float | None = None  # of the linear system, relative; None: by the mode

    def __post_init__(self) -> None:
        validate.one_of("grad_mode", self.mode, MODES)
        if self.steps is not None:
            validate.at_least("steps", self.steps, 0)
        if self.samples is not None:
            validate.at_least("samples", self.samples, 1)
        if self.tol is not None:
            validate.not_negative("tol", self.tol)

    def settled(self, random: bool) -> tuple[int, int, float]:
        """Steps, samples and tolerance: as told, else by the mode and by whether the score is random."""
        steps, samples, tol = (MODES if random else EXACT)[self.mode]
        return (
            steps if self.steps is None else self.steps,
            samples if self.samples is None else self.samples,
            tol if self.tol is None else self.tol,
        )

    def cost(self, per_draw: int, random: bool = True) -> int:
        """Most sample-gradients that one derivative takes; a Hessian product counts as three."""
        steps, samples, _ = self.settled(random)
        drawn = random or self.mode == "covariance"
        rows = 1 if self.mode == "frozen" else -(-samples // per_draw) * per_draw if drawn else per_draw
        each = {"implicit": 3 * max(1, steps), "covariance": 1, "unrolled": 4 * steps + 3 * POWER, "frozen": 3}
        return each[self.mode] * rows


@dataclass(frozen=True, eq=False)
class Solved:
    """A problem with its solution, ready to be differentiated."""

    problem: Envelope
    delta: Images
    eta: PerImage
    slope: Slope

    def pull(self, w: Images) -> Images:
        """d loss/dx from w = d loss/d map."""
        if self.slope.mode == "unrolled":
            return unrolled(self, w)
        if self.slope.mode == "frozen":
            score: Any = self.problem.score
            bare = score.base if isinstance(score, SmoothedScore) else score
            found: Images = bare.product(self.at, torch.where(self.active, w, 0.0))
            return found
        return implicit(self, w, self.hessian if self.slope.mode == "implicit" else Covariance.of(self.draws, self.at))

    @property
    def at(self) -> Images:
        return self.problem.x + self.delta

    @property
    def active(self) -> Bool[Tensor, "n *shape"]:
        """The entries that follow a change of the input; all of them where the prior has no weight."""
        return self.problem.prior.active(self.delta) | spread(self.eta == 0, self.delta)

    @property
    def draws(self) -> list[tuple[Any, int]]:
        """The noise under which the Hessian is taken: scores with the number of their draw."""
        score: Any = self.problem.score
        if isinstance(score, SmoothedScore) and self.slope.mode == "covariance":  # needs more than a fixed few
            score = replace(score, smoothing=replace(score.smoothing, fixed=False))
        if not isinstance(score, SmoothedScore) or not score.random:
            return [(score, 0)]
        return [(score, draw) for draw in range(-(-self.samples // score.samples))]

    @property
    def steps(self) -> int:
        return self.slope.settled(self.problem.score.random)[0]

    @property
    def samples(self) -> int:
        return self.slope.settled(self.problem.score.random)[1]

    @property
    def tol(self) -> float:
        return self.slope.settled(self.problem.score.random)[2]

    def hessian(self, direction: Images) -> Images:
        """The Hessian of the score times a direction, on noise that is always the same."""
        found = [score.product(self.at, direction, draw) for score, draw in self.draws]
        return torch.stack(found).mean(0)


def implicit(solved: Solved, w: Images, hessian: Product) -> Images:
    """H q with (I + rho H_AA + rho Gam) q = w_A: conjugate gradients, each image by itself."""
    problem, delta, active = solved.problem, solved.delta, solved.active
    eta, rho = spread(solved.eta, delta), problem.rho
    soft = 1 / (1 + rho * eta * problem.prior.stiffness(delta))  # the preconditioner: groups near zero are stiff
    rest = torch.where(active, w, 0.0)
    q, curved = torch.zeros_like(w), torch.zeros_like(w)  # the solution so far, and H times it
    goal, done = solved.tol * norm(rest), norm(rest) == 0
    eased = soft * rest
    way, size = eased, total(rest * eased)
    bent = torch.zeros_like(done)
    for _ in range(solved.steps):
        turned = hessian(way)
        pushed = torch.where(active, way + rho * (turned + eta * problem.prior.bend(delta, way)), 0.0)
        curvature = total(way * pushed)
        bent = bent | (~done & ~(curvature > 0))
        done = done | bent
        length = spread(torch.where(done, 0.0, size / torch.where(curvature > 0, curvature, 1.0)), delta)
        q, curved, rest = q + length * way, curved + length * turned, rest - length * pushed
        done = done | (norm(rest) <= goal)
        if bool(done.all()):
            break
        eased = soft * rest
        new = total(rest * eased)
        way = eased + spread(torch.where(done, 0.0, new / torch.where(size > 0, size, 1.0)), delta) * way
        size = torch.where(done, size, new)
    _mention(bent)
    # an image whose very first direction curves down, or with no step at all, is left with q = w_A
    stuck = spread(norm(q) == 0, q)
    if bool((stuck & active & (w != 0)).any()):
        first = torch.where(active, w, 0.0)
        q, curved = torch.where(stuck, first, q), torch.where(stuck, hessian(first), curved)
    return curved


def unrolled(solved: Solved, w: Images) -> Images:
    """Back through some proximal gradient updates that start at the solution, on fixed noise."""
    problem, rho = solved.problem, solved.problem.rho
    length = spread(rho / (1 + rho * steepest(solved)), solved.delta)
    share = rho / (rho + length)
    amount = (share * length).flatten() * solved.eta
    with torch.enable_grad():
        x = problem.x.detach().requires_grad_()
        delta = solved.delta.detach()
        for _ in range(solved.steps):
            grad = torch.stack([_graphed(score).value_and_grad(x + delta, draw)[1] for score, draw in solved.draws])
            delta = problem.prior.prox(share * (delta - length * grad.mean(0)), amount)
        (found,) = torch.autograd.grad(problem.map(delta), x, w, allow_unused=True)
    return torch.zeros_like(w) if found is None else found


def steepest(solved: Solved) -> PerImage:
    """About the largest curvature of the score, by the power method."""
    way = solved.delta + (norm(solved.delta) == 0).view(-1, *[1] * (solved.delta.ndim - 1)).to(solved.delta)
    size = norm(way)
    for _ in range(POWER):
        way = solved.hessian(way / spread(size.clamp_min(torch.finfo(way.dtype).tiny), way))
        size = norm(way)
    return 1.5 * size  # the power method comes from below


def _graphed(score: Any) -> Any:
    if isinstance(score, SmoothedScore):
        return replace(score, base=replace(score.base, graph=True, weights=False))
    return replace(score, graph=True, weights=False)


def _mention(bent: Flags) -> None:
    if bool(bent.any()):
        log.info(
            "the problem of %d of %d images is not convex at its solution (rho is too large for the curvature there); "
            "their derivative is that of fewer steps",
            int(bent.sum()),
            len(bent),
        )
