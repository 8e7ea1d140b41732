"""Dual averaging: the default solver for a smoothed score."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from typing import cast

import torch
from jaxtyping import Int
from torch import Tensor

from moreaugrad import limits, validate
from moreaugrad.batch import allocate, relative_error, spread, take_rows, total, write_rows
from moreaugrad.envelope.envelope import Envelope, Solution
from moreaugrad.model.smoothing import SmoothedScore
from moreaugrad.model.statistics import MomentSums, Stack, moment_pairs, read_statistic
from moreaugrad.types import Flags, Images, PerImage, Score, Watch, ignore_progress

JUMP = 4.0  # a residual this many times the usual one is a step that overshot, not noise
LOOK = 8  # steps between two looks at who is finished: each look waits for the device


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
    moment: Stack | None = None  # of the gradients that gave `grad`: their mean, mean square and votes
    moments: MomentSums | None = None  # the same, averaged as `mean` is

    @property
    def error(self) -> Images:
        """Standard error of the mean: per-step gradients are independent draws. After one of them 0/0 = NaN says
        that nothing is known."""
        freedom = self.weight.square() - self.weight2
        return (self.square * spread(self.weight2 / (self.weight * freedom), self.mean)).sqrt()


@dataclass(frozen=True, slots=True)
class Plan:
    """How a budget is spent: small draws while the iterate is far off, full ones for the mean, the last ones for the
    residual."""

    few: int  # samples of an early step
    warm: int  # early steps, left out of the mean
    steps: int  # all steps but those
    kept: int  # that measure the residual
    samples: int  # of a full step

    def spent(self, steps: int) -> int:
        """Sample-gradients after so many steps and the residual."""
        early = min(steps, self.warm)
        return early * self.few + (steps - early + self.kept) * self.samples


@dataclass(frozen=True, slots=True)
class DualAveraging:
    """Dual averaging on fresh noise, the default solver for a smoothed score.

    u <- (1 - a_t) u - a_t rho g_t with g_t on fresh noise at delta_t = prox(u), a_t = (power + 1) / (t + power + 1).
    Returns prox(-rho * mean of g_t weighted by (t + 1)^late): the threshold acts once, on a low-noise average, so
    zeros are exact. Early steps on few samples are left out. a_t stays below 1.5 / (1 + rho * curvature measured on
    the way); an early step that overshot is taken back.

    Args:
        budget: most sample-gradients per image, the residual's included; None takes the method's.
        relative_error: stop an image once the standard error of its map is below this share of the map's norm.
        power: weight of late gradients in the point where the next one is taken.
        late: weight of late gradients in the result.
        burn: largest share of the budget that goes to early steps.
        few: samples of an early step.

    Example:
        >>> mg.MoreauGrad(net, solver=mg.DualAveraging(power=8), budget=80).attribute(x, target=3).shape
        torch.Size([2, 3, 16, 16])
    """

    budget: int | None = None
    relative_error: float | None = None
    power: float = 12.0
    late: float = 0.25
    burn: float = 0.1
    few: int = 4

    def __post_init__(self) -> None:
        limits.take_plain_numbers(self)
        if self.budget is not None:
            validate.at_least("budget", self.budget, 1)
        if self.relative_error is not None:
            validate.positive("relative_error", self.relative_error)
        for name in ("power", "late", "burn"):
            validate.not_negative(name, getattr(self, name))
        validate.at_least("few", self.few, 1)

    def run(self, problem: Envelope, watch: Watch = ignore_progress) -> Solution:
        plan = self.plan(problem.score)
        everyone = torch.arange(len(problem.x), device=problem.x.device)
        found: list[tuple[Int[Tensor, "k"], Solution]] = []
        whole, who, state = problem, everyone, self.init(problem)
        for t in range(plan.steps):
            state = self.step(problem, state, t, plan)
            known = {"residual": state.usual, "map": partial(self._map_so_far, problem, state)}
            watch(t + 1, plan.steps + plan.kept, known)
            if self.relative_error is not None and t > plan.warm and t % LOOK == 0 and t + 1 < plan.steps:
                done = self._known(problem, state)
                if bool(done.any()):
                    ready, rest = done.nonzero()[:, 0], (~done).nonzero()[:, 0]
                    found.append((who[ready], self._finish(problem.take(ready), _take(state, ready), t + 1, plan)))
                    who, state = who[rest], _take(state, rest)
                    problem = whole.take(who)
            if not len(who):
                break
        if len(who):
            found.append((who, self._finish(problem, state, plan.steps, plan)))
        watch(plan.steps + plan.kept, plan.steps + plan.kept, {})
        if len(found) == 1:
            return found[0][1]
        everything = allocate(found[0][1], len(everyone))
        for some, solution in found:
            write_rows(solution, everything, some)
        return everything

    def plan(self, score: Score) -> Plan:
        most = validate.steps(self.budget, score.samples)
        budget = 800 if self.budget is None else self.budget
        few = min(self.few, score.samples) if score.random else score.samples
        # where a budget pays for few steps, each of them counts
        warm = min(max(8, round(self.burn * most)), int(self.burn * budget) // few) if most >= 10 else 0
        full = (budget - warm * few) // score.samples
        kept = max(1, full // 48) if full > 1 else 0
        return Plan(few, warm, warm + full - kept, kept, score.samples)

    def init(self, problem: Envelope) -> State:
        zero, none = torch.zeros_like(problem.x), problem.x.new_zeros(len(problem.x))
        state = State(zero, zero, zero, zero, zero, zero, zero, none, none, none, none, none, none)
        if problem.tau is None:
            return state
        pairs = () if problem.statistic == "mean" else moment_pairs(problem.statistic)
        sums = MomentSums(problem.x, pairs, sized=False)
        return replace(state, moment=sums.mean, moments=sums)

    def step(self, problem: Envelope, state: State, t: int, plan: Plan) -> State:
        eta = problem.weight(-problem.rho * state.mean)  # from the low-noise mean, as the answer will take it
        delta = problem.prox(state.u, eta)
        found, moment = self._gradient(problem, delta, t, plan.few if t < plan.warm else None)
        residual = problem.residual(delta, found, eta)
        # later a large residual may be a rare kink that the noise met, and to drop it would bias the map
        early = t <= max(1, plan.warm)
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
        # the mean starts again after the early steps and after an overshoot, then at the last good point
        held = (fine & (t != plan.warm)).to(delta.dtype)
        weight, weight2 = held * state.weight + new, held * state.weight2 + new**2
        part, before = spread(new / weight, delta), grad - state.mean
        mean, where = state.mean + before * part, state.where + (last - state.where) * part
        square = spread(held, delta) * (state.square + new * before * (grad - mean))
        u = (1 - a) * last - a * problem.rho * grad
        if moment is not None and state.moment is not None and state.moments is not None:
            moment = torch.where(spread(fine, moment), moment, state.moment)
            state.moments.add(moment[:, None], new, held=held)
        sums = (moment, state.moments)
        return State(u, last, delta, grad, where, mean, square, weight, weight2, usual, good, rise, run, *sums)

    def _gradient(self, problem: Envelope, delta: Images, t: int, most: int | None) -> tuple[Images, Stack | None]:
        """The gradient on fresh noise, and the moments that it is the first of, where they are asked for."""
        if problem.tau is None:
            return problem.score.value_and_grad(problem.x + delta, t, most)[1], None
        score = cast(SmoothedScore, problem.score)
        _, moment = score.value_and_moments(problem.x + delta, t, most, problem.voted)
        return moment[:, 0], moment

    def _finish(self, problem: Envelope, state: State, steps: int, plan: Plan) -> Solution:
        validate.some_gradient(state.good > 0)
        u = self._answer(problem, state)
        eta = problem.weight(u)
        delta = problem.prox(u, eta)
        found = problem.measure(delta, eta, range(plan.steps, plan.steps + plan.kept))
        spent = torch.full((len(delta),), plan.spent(steps), device=delta.device)
        error = problem.error_of_map(state.error, delta, eta)
        moments = None
        if (sums := state.moments) is not None:
            moments = sums.mean
            error = sums.error(problem.statistic) if sums.pairs else error
        return Solution(delta, *found, eta=eta, gradients=spent, stderr=error, moments=moments)

    def _known(self, problem: Envelope, state: State) -> Flags:
        """Whose map has a standard error, over the entries that it keeps, below the asked share of its norm."""
        assert self.relative_error is not None
        if problem.threshold is not None and (sums := state.moments) is not None:
            dense, of_dense = read_statistic(problem.statistic, sums.mean), sums.error(problem.statistic)
            found, _, error = problem.threshold.thresholded(dense, of_dense)
            return relative_error(found, cast(Tensor, error)) <= self.relative_error
        u = self._answer(problem, state)
        eta = problem.weight(u)
        delta = problem.prox(u, eta)
        error = problem.error_of_map(state.error, delta, eta)
        return relative_error(problem.map(delta), error) <= self.relative_error

    def _map_so_far(self, problem: Envelope, state: State) -> Images:
        """What the map would be without further steps."""
        if problem.threshold is not None and state.moments is not None:
            return problem.threshold.thresholded(read_statistic(problem.statistic, state.moments.mean), None)[0]
        u = self._answer(problem, state)
        return problem.map(problem.prox(u, problem.weight(u)))

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


def _take(state: State, which: Tensor) -> State:
    """The state of some of the images."""
    sums = None if state.moments is None else state.moments.take(which)
    return replace(take_rows(state, which), moments=sums)
