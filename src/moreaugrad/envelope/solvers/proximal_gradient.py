"""Proximal gradient with momentum and restart: the default solver for a deterministic score."""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch

from moreaugrad import limits, validate
from moreaugrad.batch import norm, spread, total
from moreaugrad.envelope.envelope import Envelope, Optimality, Solution, tolerance
from moreaugrad.envelope.priors import find_level
from moreaugrad.types import Flags, Images, PerImage, Watch, ignore_progress

GROWTH = 1.02  # of the step length after a step that went well: slow, for momentum wants a steady step


@dataclass(frozen=True, eq=False)
class State:
    """The last accepted point with its value and gradient, the prox taken from it, and where to look next."""

    at: Images
    value: PerImage
    grad: Images
    delta: Images  # the latest prox: exactly sparse
    point: Images  # delta, extrapolated
    eta: PerImage
    length: PerImage
    momentum: PerImage  # 1: none
    plain: Flags  # point is delta itself
    done: Flags


@dataclass(frozen=True, slots=True)
class ProximalGradient:
    """Proximal gradient with momentum and restart, the default solver for a deterministic score.

    delta <- prox of (point - s grad f) under |delta|^2/(2 rho) + eta prior, with Nesterov's extrapolation. The
    quadratic sits in the prox, so rho alone costs no steps. s follows the measured curvature of each image; a step
    that raises the objective is taken back, without momentum, then at half the length.

    Args:
        budget: most gradients per image; None takes the method's.
        tol: residual at which an image counts as solved; None takes what its precision can reach.

    Example:
        >>> method = mg.MoreauGrad(net, smoothing=None, solver=mg.ProximalGradient(tol=1e-3))
        >>> method.attribute(x, target=3).shape
        torch.Size([2, 3, 16, 16])
    """

    budget: int | None = None
    tol: float | None = None

    def __post_init__(self) -> None:
        limits.take_plain_numbers(self)
        if self.budget is not None:
            validate.at_least("budget", self.budget, 1)
        if self.tol is not None:
            validate.not_negative("tol", self.tol)

    def run(self, problem: Envelope, watch: Watch = ignore_progress) -> Solution:
        steps = validate.steps(self.budget, problem.score.samples)
        state = self.init(problem)
        spent, count = 1, torch.ones_like(state.done, dtype=torch.long)
        while spent < steps and not bool(state.done.all()):
            count += ~state.done
            state = self.step(problem, state)
            spent += 1
            watch(spent, steps, {"done": state.done})
        if not bool(state.done.all()):
            count += ~state.done
            value, grad = problem.score.value_and_grad(problem.x + state.delta)
            stopped = replace(state, at=state.delta, value=value, grad=grad)
            state = _keep(state, stopped, state.done)
        watch(steps, steps, {"done": state.done})
        if problem.score.random:  # solved on one draw; what that is worth shows on another
            found, count = problem.measure(state.at, state.eta, range(1, 2)), count + 1
        else:
            residual = problem.residual(state.at, state.grad, state.eta)
            found = Optimality(residual, tolerance(self.tol, state.grad), state.value)
        return Solution(state.at, *found, eta=state.eta, gradients=count * problem.score.samples)

    def init(self, problem: Envelope) -> State:
        zero, ones = torch.zeros_like(problem.x), problem.x.new_ones(len(problem.x))
        value, grad = problem.score.value_and_grad(problem.x)
        validate.some_gradient(torch.isfinite(norm(grad)))
        flags = ones > 0
        state = State(zero, value, grad, zero, zero, ones, ones * problem.rho, ones, flags, ~flags)
        delta, eta = self._prox(problem, state)
        # a point where even the prox of the full gradient is zero is solved at once
        done = problem.residual(zero, grad, problem.weight(-problem.rho * grad)) <= tolerance(self.tol, grad)
        return replace(state, delta=torch.where(spread(done, zero), zero, delta), point=delta, eta=eta, done=done)

    def step(self, problem: Envelope, old: State) -> State:
        value, grad = problem.score.value_and_grad(problem.x + old.point)
        before = problem.penalty(old.at, old.eta)
        rise = value + problem.penalty(old.point, old.eta) - old.value - before
        slack = 16 * torch.finfo(value.dtype).eps * (1 + old.value.abs() + before)  # the rounding of all that is summed
        fine = rise <= slack  # False where NaN
        moved = norm(old.point - old.at)
        curvature = torch.where(moved > 0, norm(grad - old.grad) / moved, 0.0).nan_to_num(posinf=1e30, nan=1e30)
        change = torch.where(fine, GROWTH, torch.where(old.plain, 0.5, 1.0))
        length = torch.minimum(change * old.length, 1 / curvature.clamp_min(1e-30))
        now = replace(old, at=old.point, value=value, grad=grad)
        now = replace(_keep(now, old, ~fine), length=length)
        now = self._move(problem, now, fine)
        return _keep(now, old, old.done)

    def _move(self, problem: Envelope, now: State, fine: Flags) -> State:
        """The next prox from the accepted point, and how far to extrapolate it."""
        small = problem.residual(now.at, now.grad, now.eta) <= tolerance(self.tol, now.grad)
        done = small & fine & now.plain
        delta, eta = self._prox(problem, now)
        # restart where momentum points uphill, after a step back, and at the end, which must be a bare prox
        uphill = total((now.at - delta) * (delta - now.delta)) > 0
        follow = torch.where(uphill | ~fine | small, 1.0, (1 + (1 + 4 * now.momentum.square()).sqrt()) / 2)
        push = torch.where(follow > 1, (now.momentum - 1) / follow, 0.0)
        point = delta + spread(push, delta) * (delta - now.delta)
        moved = replace(now, delta=delta, point=point, eta=eta, momentum=follow, plain=push == 0, done=done)
        return _keep(moved, replace(now, done=done), done)

    def _prox(self, problem: Envelope, state: State) -> tuple[Images, PerImage]:
        """argmin of <grad, d> + |d - at|^2/(2 s) + |d|^2/(2 rho) + eta prior(d), and the eta it used."""
        share = problem.rho / (problem.rho + state.length)
        there = spread(share, state.at) * (state.at - spread(state.length, state.at) * state.grad)
        if problem.keep is None:
            eta = problem.weight(there)
            return problem.prior.prox(there, share * state.length * eta), eta
        amount = find_level(problem.prior, there, problem.keep)
        return problem.prior.prox(there, amount), amount / (share * state.length)


def _keep(new: State, old: State, stay: Flags) -> State:
    """The new state, but the old one for the images that stay."""
    names = State.__dataclass_fields__
    pairs = {name: (getattr(new, name), getattr(old, name)) for name in names}
    return State(**{name: torch.where(spread(stay, a), b, a) for name, (a, b) in pairs.items()})
