"""Projected descent, the one loop of the attacks: start, step, project, keep the best valid point.

Also holds the ball and box that a search stays in, and the step rules. Knows no map and no model: both come as
functions in an `Objective`. Lengths are in the units of the input tensor.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from math import inf
from typing import Protocol

import torch
from jaxtyping import Float
from torch import Tensor

from moreaugrad.batch import norm, spread
from moreaugrad.model.smoothing import antithetic, independent_seed
from moreaugrad.types import Flags, Images, PerImage, Watch

NORMS = ("l2", "linf")


def distance(delta: Images, kind: str) -> PerImage:
    """The l2 or linf length of each displacement."""
    return delta.flatten(1).abs().amax(1) if kind == "linf" else norm(delta)


@dataclass(frozen=True, eq=False)
class Ball:
    """The points within `epsilon` of x that lie in the box between low and high. x itself must be one of them."""

    x: Images
    epsilon: float
    norm: str  # l2 or linf
    low: Tensor | None = None  # broadcasts over x
    high: Tensor | None = None

    def project(self, at: Images) -> Images:
        """The nearest point of the ball, then of the box: x is in the box, so clipping never leaves the ball."""
        delta = at - self.x
        if self.norm == "linf":
            delta = delta.clamp(-self.epsilon, self.epsilon)
        else:
            length = norm(delta).clamp_min(torch.finfo(delta.dtype).tiny)
            delta = delta * spread((self.epsilon / length).clamp_max(1), delta)
        return self.shift(delta)

    def shift(self, delta: Images) -> Images:
        """x + delta in the box. The sum has the digits of x, so where rounding left the ball it is rounded inwards."""
        at = self.clip(self.x + delta)
        over = self.length(at) > self.epsilon * (1 + 5e-7)
        if not bool(over.any()):
            return at
        further = (at - self.x).abs() > delta.abs().clamp_max(self.epsilon)
        return torch.where(spread(over, at) & further, torch.nextafter(at, self.x), at)

    def clip(self, at: Images) -> Images:
        return at if self.low is None and self.high is None else at.clamp(self.low, self.high)

    def length(self, at: Images) -> PerImage:
        """How far each point is from x, in the norm of the ball."""
        return distance(at - self.x, self.norm)

    def random_point(self, seed: int, draw: int, surface: bool = True) -> Images:
        """A uniform point on the sphere, or in the ball; the same direction for all images of a batch."""
        towards = antithetic(tuple(self.x.shape[1:]), 1, independent_seed(seed, 0), draw, self.x)
        if self.norm == "linf":  # normal to uniform in (-1, 1), or its sign for the corners
            towards = towards.sign() if surface else torch.erf(towards / 2**0.5)
        else:
            towards = towards / spread(norm(towards), towards)
            if not surface:
                inner = antithetic((1,), 1, independent_seed(seed, 1), draw, self.x).div(2**0.5).erf().abs()
                towards = towards * spread(inner[:, 0].pow(1 / self.x[0].numel()), towards)
        return self.shift((self.epsilon * towards).expand_as(self.x))


@dataclass(frozen=True, eq=False)
class Objective:
    """What a search makes small: `value` counts, `value_and_grad` gives the direction."""

    value: Callable[[Images], PerImage]
    value_and_grad: Callable[[Images], tuple[PerImage, Images]]
    is_valid: Callable[[Images], Flags]  # points that may be returned
    start_is_valid: Flags | None = None  # whether x itself may be returned (None: yes); else any valid point beats it
    exact: bool = True  # value_and_grad's value is the objective itself; False: that of a smooth surrogate
    enough: float = -inf  # an image whose objective is this small goes no further


@dataclass(frozen=True, slots=True)
class DescentResult:
    """The best valid point of each image, or where it began."""

    x: Images
    objective: PerImage
    trace: Float[Tensor, "steps n"]  # best so far, after each evaluation; the first is the start's
    gradients: int  # gradients taken, per image
    values: int  # objectives evaluated besides, per image
    flat: bool  # no gradient ever had an entry


class StepRule(Protocol):
    """Where a search starts and how it steps."""

    def start(self, ball: Ball, objective: Objective, seed: int, restart: int) -> Images: ...

    def step(self, ball: Ball, objective: Objective, at: Images, grad: Images, number: int) -> Images:
        """The next point; `number` counts from 0 in each restart."""
        ...


@dataclass(frozen=True, slots=True)
class SignSteps:
    """x <- project(x - length * sign(grad)), the steepest direction in linf; later restarts start at random points."""

    length: float
    random_start: bool = False

    def start(self, ball: Ball, objective: Objective, seed: int, restart: int) -> Images:
        return ball.x if restart == 0 and not self.random_start else ball.random_point(seed, restart, surface=False)

    def step(self, ball: Ball, objective: Objective, at: Images, grad: Images, number: int) -> Images:
        return ball.project(at - self.length * grad.sign())


class NormalizedSteps(SignSteps):
    """x <- project(x - length * grad/|grad|), the steepest direction in l2; starts as `SignSteps` does."""

    def step(self, ball: Ball, objective: Objective, at: Images, grad: Images, number: int) -> Images:
        size = norm(grad).clamp_min(torch.finfo(grad.dtype).tiny)
        return ball.project(at - self.length * grad / spread(size, grad))


@dataclass(frozen=True, slots=True)
class ShrinkingSteps:
    """Starts on the sphere at a valid point; steps of length epsilon/(i + 1), halved while the point is not valid.

    A row that finds no valid step in `halvings` stays where it is.
    """

    tries: int = 20  # random points tried for a valid start, per restart
    halvings: int = 10

    def start(self, ball: Ball, objective: Objective, seed: int, restart: int) -> Images:
        at, missing = ball.x, torch.ones(len(ball.x), dtype=torch.bool, device=ball.x.device)
        for one in range(self.tries):
            point = ball.random_point(seed, restart * self.tries + one)
            good = missing & objective.is_valid(point)
            at, missing = torch.where(spread(good, at), point, at), missing & ~good
            if not bool(missing.any()):
                break
        return at

    def step(self, ball: Ball, objective: Objective, at: Images, grad: Images, number: int) -> Images:
        size = norm(grad).clamp_min(torch.finfo(grad.dtype).tiny)
        length = ball.epsilon / (number + 1) / size
        new, open_ = at, size > torch.finfo(grad.dtype).tiny
        for _ in range(self.halvings + 1):
            point = ball.project(at - spread(length, at) * grad)
            good = open_ & objective.is_valid(point)
            new, open_ = torch.where(spread(good, at), point, new), open_ & ~good
            if not bool(open_.any()):
                break
            length = length / 2
        return new


def descend(
    ball: Ball, objective: Objective, rule: StepRule, steps: int, restarts: int, seed: int, watch: Watch
) -> DescentResult:
    """Takes `steps` steps from each start and evaluates every point, the last one too."""
    best, lowest = ball.x, objective.value(ball.x)
    bound = lowest if objective.start_is_valid is None else torch.where(objective.start_is_valid, lowest, inf)
    trace, gradients, values, flat = [lowest], 0, 1, True
    for restart in range(restarts):
        at = rule.start(ball, objective, seed, restart)
        for number in range(steps + 1):
            if bool((bound <= objective.enough).all()):
                break
            last = number == steps
            if not last:
                value, grad = objective.value_and_grad(at)
                gradients += 1
            if last or not objective.exact:
                value = objective.value(at)
                values += 1
            better = (value < bound) & (bound > objective.enough) & objective.is_valid(at)
            best, lowest = torch.where(spread(better, best), at, best), torch.where(better, value, lowest)
            bound = torch.where(better, value, bound)
            trace.append(lowest)
            watch(restart * (steps + 1) + number + 1, restarts * (steps + 1), {"objective": lowest})
            if not last:
                grad = torch.nan_to_num(grad, 0.0, 0.0, 0.0)
                flat = flat and not bool(grad.any())
                at = rule.step(ball, objective, at, grad, number)
    found = DescentResult(best, lowest, torch.stack(trace), gradients, values, flat)
    return _evaluate_again(ball, objective, found) if objective.exact else found


def _evaluate_again(ball: Ball, objective: Objective, found: DescentResult) -> DescentResult:
    """The best points by `value` alone: the value that comes with a gradient is rounded differently, so that a point
    which changes nothing may look better by a last digit."""
    first, value = found.trace[0], objective.value(found.x)
    valid = torch.ones_like(first, dtype=torch.bool) if objective.start_is_valid is None else objective.start_is_valid
    lower = value < torch.where(valid, first, inf)
    lowest = torch.where(lower, value, first)
    trace = torch.cat([found.trace[:-1].maximum(torch.where(valid, lowest, -inf)), lowest[None]])
    x = torch.where(spread(lower, found.x), found.x, ball.x)
    return replace(found, x=x, objective=lowest, trace=trace, values=found.values + 1)
