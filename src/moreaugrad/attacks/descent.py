"""The one projected loop of the attacks: start, step, project, keep the best valid point.

A rule says where to start and how far to step. Knows no map and no model: both come as functions.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from math import inf
from typing import Protocol

import torch
from jaxtyping import Float
from torch import Tensor

from moreaugrad.attacks.space import Space
from moreaugrad.batch import norm, spread
from moreaugrad.types import Flags, Images, PerImage, Watch, ignore_progress


@dataclass(frozen=True, eq=False)
class Aim:
    """What an attack makes small. `value` is the objective that counts; `slope` gives a gradient that leads there."""

    value: Callable[[Images], PerImage]
    slope: Callable[[Images], tuple[PerImage, Images]]  # value and gradient
    valid: Callable[[Images], Flags]  # points that may be returned
    begun: Flags | None = None  # whether the input itself may be returned (None: yes); if not, any valid point beats it
    same: bool = True  # the slope's value is the objective itself; False: it is a smooth stand-in's
    enough: float = -inf  # an objective that need not be bettered: such an image goes no further


@dataclass(frozen=True, slots=True)
class Found:
    """The best valid point of each image, or where it began."""

    x: Images
    objective: PerImage
    trace: Float[Tensor, "steps n"]  # best so far, after each look; the first is the start's
    slopes: int  # gradients taken, per image
    looks: int  # objectives judged besides, per image
    flat: bool  # no gradient ever had an entry


class Rule(Protocol):
    """How an attack moves."""

    def start(self, space: Space, aim: Aim, seed: int, restart: int) -> Images: ...

    def move(self, space: Space, aim: Aim, at: Images, grad: Images, step: int) -> Images:
        """The next point; `step` counts from 0 in each restart."""
        ...


@dataclass(frozen=True, slots=True)
class SignSteps:
    """x <- project(x - length * sign(grad)): the published attack, and the steepest way for the largest change.

    The first start is the input itself, others are random points of the ball.
    """

    length: float
    random_start: bool = False

    def start(self, space: Space, aim: Aim, seed: int, restart: int) -> Images:
        return space.x if restart == 0 and not self.random_start else space.random(seed, restart, surface=False)

    def move(self, space: Space, aim: Aim, at: Images, grad: Images, step: int) -> Images:
        return space.project(at - self.length * grad.sign())


@dataclass(frozen=True, slots=True)
class LengthSteps:
    """x <- project(x - length * grad/|grad|): the steepest way for a bounded Euclidean length."""

    length: float
    random_start: bool = False

    def start(self, space: Space, aim: Aim, seed: int, restart: int) -> Images:
        return space.x if restart == 0 and not self.random_start else space.random(seed, restart, surface=False)

    def move(self, space: Space, aim: Aim, at: Images, grad: Images, step: int) -> Images:
        size = norm(grad).clamp_min(torch.finfo(grad.dtype).tiny)
        return space.project(at - self.length * grad / spread(size, grad))


@dataclass(frozen=True, slots=True)
class ShrinkingSteps:
    """Starts on the sphere at a valid point; steps of length epsilon/(i + 1), halved while the point is not valid.

    A row that finds no valid step in `halvings` stays where it is.
    """

    tries: int = 20  # random points looked at for a valid start, per restart
    halvings: int = 10

    def start(self, space: Space, aim: Aim, seed: int, restart: int) -> Images:
        at, missing = space.x, torch.ones(len(space.x), dtype=torch.bool, device=space.x.device)
        for one in range(self.tries):
            point = space.random(seed, restart * self.tries + one)
            good = missing & aim.valid(point)
            at, missing = torch.where(spread(good, at), point, at), missing & ~good
            if not bool(missing.any()):
                break
        return at

    def move(self, space: Space, aim: Aim, at: Images, grad: Images, step: int) -> Images:
        size = norm(grad).clamp_min(torch.finfo(grad.dtype).tiny)
        length = space.epsilon / (step + 1) / size
        new, open_ = at, size > torch.finfo(grad.dtype).tiny
        for _ in range(self.halvings + 1):
            point = space.project(at - spread(length, at) * grad)
            good = open_ & aim.valid(point)
            new, open_ = torch.where(spread(good, at), point, new), open_ & ~good
            if not bool(open_.any()):
                break
            length = length / 2
        return new


def descend(
    space: Space,
    aim: Aim,
    rule: Rule,
    steps: int,
    restarts: int = 1,
    seed: int = 0,
    watch: Watch = ignore_progress,
) -> Found:
    """Walks `steps` steps from each start and looks at every point, the last one too."""
    best, objective = space.x, aim.value(space.x)
    bound = objective if aim.begun is None else torch.where(aim.begun, objective, torch.inf)
    trace, slopes, looks, flat = [objective], 0, 1, True
    for restart in range(restarts):
        at = rule.start(space, aim, seed, restart)
        for step in range(steps + 1):
            if bool((bound <= aim.enough).all()):
                break
            last = step == steps
            if not last:
                value, grad = aim.slope(at)
                slopes += 1
            if last or not aim.same:
                value = aim.value(at)
                looks += 1
            better = (value < bound) & (bound > aim.enough) & aim.valid(at)
            best, objective = torch.where(spread(better, best), at, best), torch.where(better, value, objective)
            bound = torch.where(better, value, bound)
            trace.append(objective)
            watch(restart * (steps + 1) + step + 1, restarts * (steps + 1), {"objective": objective})
            if not last:
                grad = torch.nan_to_num(grad, 0.0, 0.0, 0.0)
                flat = flat and not bool(grad.any())
                at = rule.move(space, aim, at, grad, step)
    found = Found(best, objective, torch.stack(trace), slopes, looks, flat)
    return _judged(space, aim, found) if aim.same else found


def _judged(space: Space, aim: Aim, found: Found) -> Found:
    """The best points by the objective itself: a slope's value comes another way and is rounded otherwise, so that
    a point which changes nothing may look better by a last digit."""
    first, value = found.trace[0], aim.value(found.x)
    begun = torch.ones_like(first, dtype=torch.bool) if aim.begun is None else aim.begun
    lower = value < torch.where(begun, first, torch.inf)
    objective = torch.where(lower, value, first)
    trace = torch.cat([found.trace[:-1].maximum(torch.where(begun, objective, -torch.inf)), objective[None]])
    x = torch.where(spread(lower, found.x), found.x, space.x)
    return replace(found, x=x, objective=objective, trace=trace, looks=found.looks + 1)
