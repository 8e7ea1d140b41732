"""Dual averaging: the default solver for a smoothed score."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from moreaugrad import checks
from moreaugrad.contracts import Images, PerImage, Solution, Watch, unwatched
from moreaugrad.core.envelope import Envelope
from moreaugrad.core.solvers.judge import judge, unjudged
from moreaugrad.shapes import spread, total

JUMP = 4.0  # a residual this many times the usual one is a step that overshot, not noise


@dataclass(frozen=True, eq=False)
class State:
    """Where the next gradient is asked (u), and what will be returned (the mean of the late gradients)."""

    u: Images
    last: Images  # the last u that was no overshoot
    delta: Images  # its displacement
    grad: Images  # the gradient there
    where: Images  # mean of the u, late ones weighing more
    mean: Images  # of the gradients there, likewise
    square: Images  # weighted squared deviations from it, summed
    weight: PerImage  # summed weights of the mean
    weight2: PerImage  # summed squares of the weights
    usual: PerImage  # mean residual so far, overshoots left out
    good: PerImage  # steps that were no overshoot
    rise: PerImage  # summed <change of gradient, change of delta>: with `run`, the curvature along the way
    run: PerImage  # summed |change of delta|^2


@dataclass(frozen=True, slots=True)
class DualAveraging:
    """u <- (1 - a_t) u - a_t rho g_t, with g_t on fresh noise at delta_t = prox(u).

    a_t = (power + 1) / (t + power + 1). Returns prox(-rho * mean of g_t weighted by (t + 1)^late): the
    threshold acts once, on a low-noise average, so zeros are exact. The first `burn` of the steps is left out.
    a_t stays below 1.5 / (1 + rho * curvature measured on the way); an early step that overshot is taken back.
    One step in 24 (at least one) measures the residual on fresh noise.
    """

    budget: int | None = None  # sample-gradients per image, the residual's included; None: the method's
    power: float = 8.0  # how much late gradients weigh in where the next is asked
    late: float = 0.5  # and in what is returned
    burn: float = 0.1

    def run(self, problem: Envelope, watch: Watch = unwatched) -> Solution:
        steps = checks.steps(self.budget, problem.score.samples)
        kept = max(1, steps // 24) if steps > 1 else 0
        state = self.init(problem)
        for t in range(steps - kept):
            state = self.step(problem, state, t, steps - kept)
            watch(t + 1, steps, {"residual": state.usual})
        checks.some_gradient(state.good > 0)
        u = self._answer(problem, state)
        eta = problem.weight(u)
        delta = problem.prox(u, eta)
        verdict = judge(problem, delta, eta, range(steps - kept, steps)) if kept else unjudged(delta)
        watch(steps, steps, {"residual": verdict.residual})
        # per-step gradients are independent draws; after one of them 0/0 = NaN says that nothing is known
        freedom = state.weight.square() - state.weight2
        error = (state.square * spread(state.weight2 / (state.weight * freedom), delta)).sqrt()
        return Solution(delta, *verdict, eta=eta, gradients=steps * problem.score.samples, stderr=error)

    def init(self, problem: Envelope) -> State:
        zero, none = torch.zeros_like(problem.x), problem.x.new_zeros(len(problem.x))
        return State(zero, zero, zero, zero, zero, zero, zero, none, none, none, none, none, none)

    def step(self, problem: Envelope, state: State, t: int, steps: int) -> State:
        eta = problem.weight(-problem.rho * state.mean)  # from the low-noise mean, as the answer will take it
        delta = problem.prox(state.u, eta)
        _, found = problem.score.value_and_grad(problem.x + delta, t)
        residual = problem.residual(delta, found, eta)
        # later a large residual may be a rare kink that the noise met, and to drop it would bias the map
        early = t <= max(1, self.burn * steps)
        usual = JUMP * state.usual if early else torch.full_like(residual, float("inf"))
        fine = torch.isfinite(residual) & ((state.good == 0) | (residual <= usual))
        rise, run = self._curvature(state, delta, found)

        last = torch.where(spread(fine, delta), state.u, state.last)
        delta = torch.where(spread(fine, delta), delta, state.delta)
        grad = torch.where(spread(fine, delta), found, state.grad)
        steepest = 1.5 / (1 + problem.rho * (rise / run.clamp_min(1e-30)).clamp_min(0))
        a = spread(steepest.clamp_max((self.power + 1) / (t + self.power + 1)), delta)
        good = state.good + fine.to(delta.dtype)
        usual = torch.where(fine, state.usual + (residual - state.usual) / good, state.usual)

        new = (t + 1) ** self.late
        # the mean starts anew after the burn-in and after an overshoot, then at the last good point
        held = (fine & (t != round(self.burn * steps))).to(delta.dtype)
        weight, weight2 = held * state.weight + new, held * state.weight2 + new**2
        part, before = spread(new / weight, delta), grad - state.mean
        mean, where = state.mean + before * part, state.where + (last - state.where) * part
        square = spread(held, delta) * (state.square + new * before * (grad - mean))
        u = (1 - a) * last - a * problem.rho * grad
        return State(u, last, delta, grad, where, mean, square, weight, weight2, usual, good, rise, run)

    def _answer(self, problem: Envelope, state: State) -> Images:
        """-rho times the mean gradient; where the score is stiff that amplifies the error of the points it was
        taken at, and a Newton step from them does not. Curvature below 4/rho may be noise."""
        stiff = (problem.rho * state.rise / state.run.clamp_min(1e-30) - 4).clamp_min(0)
        a = spread(1 / (1 + stiff), state.u)
        return (1 - a) * state.where - a * problem.rho * state.mean

    def _curvature(self, state: State, delta: Images, grad: Images) -> tuple[PerImage, PerImage]:
        """The secant sums with this step's. Long moves weigh most, so fresh noise on short ones does no harm:
        noise alone shows as 1/(a rho), which binds no step shorter than 1/2."""
        moved, turned = delta - state.delta, grad - state.grad
        rise, run = total(turned * moved), total(moved.square())
        known = (state.good > 0) & torch.isfinite(rise)
        return state.rise + torch.where(known, rise, 0.0), state.run + torch.where(known, run, 0.0)
