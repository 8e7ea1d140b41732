"""Many weights of the prior at the price of few: the points of a regularisation path help each other."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from jaxtyping import Float
from torch import Tensor

from moreaugrad import validate
from moreaugrad.batch import NO_DOUBLE, total, widest
from moreaugrad.envelope.envelope import Envelope, Solution
from moreaugrad.types import PerImage, Watch, ignore_progress

STIFF = 4.0  # rho times the curvature above which a mean of gradients is no answer
Several = Float[Tensor, "k n *shape"]  # one batch per point of the path
Weights = Float[Tensor, "n k k"]


@dataclass(frozen=True, eq=False)
class State:
    """What is known of the gradients at all points."""

    delta: Several  # where the last gradients were taken
    grad: Several
    mean: Several  # of the gradients, late ones weighing more
    square: Several  # weighted squared deviations from it, summed
    best: Several  # the gradients, each point helped by the others
    fast: Several  # a mean that forgets sooner,
    ask: Several  # and likewise helped: where the next gradients are taken
    error: Several  # variance of that
    weight: float
    weight2: float
    rise: PerImage  # summed <change of gradient, change of delta>: with `run`, the curvature along the way
    run: PerImage


@dataclass(frozen=True, slots=True)
class PathAveraging:
    """Dual averaging at all points of a path at once, on noise of its own at each.

    The gradient changes little from point to point. So each point takes the linear combination of all means that is
    best for it: noise of the means against their measured distances, image by image. All points together cost
    budget * (1 + points / 8).
    """

    budget: int | None = None  # sample-gradients per image of a single solve
    power: float = 12.0  # how much late gradients weigh in where the next are asked
    late: float = 0.25  # and in what is returned
    burn: float = 0.1  # of the rounds are left out
    few: int = 2  # samples of a draw: many small steps find a far solution, few large ones do not

    def run(
        self, problem: Envelope, points: Sequence[tuple[float | None, float | None]], watch: Watch = ignore_progress
    ) -> list[Solution] | None:
        """One solution for each (eta, share to keep); None where the score of an image is too stiff for plain means."""
        problems = [replace(problem, eta=0.0 if eta is None else eta, keep=keep) for eta, keep in points]
        rounds = self.rounds(problem.score.samples, len(points))
        state = self.init(problems)
        for t in range(rounds):
            state = self.step(problems, state, t, restart=t == round(self.burn * rounds))
            watch(t + 1, rounds + 1, {})
        if not bool((problem.rho * state.rise <= STIFF * state.run).all()):  # NaN too
            return None
        samples = problem.score.samples
        spent = [rounds * self.draws(k, len(points)) * min(self.few, samples) + samples for k in range(len(points))]
        found = [self._finish(each, state, k, spent[k]) for k, each in enumerate(problems)]
        watch(rounds + 1, rounds + 1, {})
        return found

    def init(self, problems: Sequence[Envelope]) -> State:
        x = problems[0].x
        zero, none = x.new_zeros(len(problems), *x.shape), x.new_zeros(len(x))
        return State(zero, zero, zero, zero, zero, zero, zero, zero, 0.0, 0.0, none, none)

    def step(self, problems: Sequence[Envelope], state: State, t: int, restart: bool) -> State:
        delta, grad = self._gradients(problems, state.ask, t)
        rise, run = state.rise, state.run
        if t > 0:  # long moves weigh most, as in DualAveraging
            moved, turned = delta - state.delta, grad - state.grad
            rise = rise + total((turned * moved).transpose(0, 1))
            run = run + total(moved.square().transpose(0, 1))
        held, new = 0.0 if restart else 1.0, (t + 1) ** self.late
        weight, weight2 = held * state.weight + new, held * state.weight2 + new**2
        before = grad - state.mean
        mean = state.mean + before * (new / weight)
        square = held * (state.square + new * before * (grad - mean))
        best, error = state.best, state.error
        fast = state.fast + (grad - state.fast) * ((self.power + 1) / (t + self.power + 1))
        ask = fast.mean(0).expand_as(fast)
        if weight**2 > weight2:  # two rounds and more show how noisy they are
            noise = square * (weight2 / (weight * (weight**2 - weight2)))
            mixing = torch.stack([mixed(mean * m, noise * m)[:, k] for k, m in enumerate(_telling(delta))], 1)
            best = torch.einsum("nkj,jn...->kn...", mixing, mean)
            ask = torch.einsum("nkj,jn...->kn...", mixing, fast)
            error = torch.einsum("nkj,jn...->kn...", mixing.square(), noise)
        return State(delta, grad, mean, square, best, fast, ask, error, weight, weight2, rise, run)

    def rounds(self, samples: int, points: int) -> int:
        """Rounds through all points that the budget pays for, beside a draw at each for the residual."""
        budget = samples * (validate.steps(self.budget, samples) * (1 + points / 8) - points)
        return max(3, int(budget / (min(self.few, samples) * sum(self.draws(k, points) for k in range(points)))))

    @staticmethod
    def draws(point: int, points: int) -> int:
        """Draws of a round: the ends of the path have help from one side only."""
        return 2 if points > 2 and point in (0, points - 1) else 1

    def _gradients(self, problems: Sequence[Envelope], ask: Several, t: int) -> tuple[Several, Several]:
        """Where each point stands, and the gradient there."""
        deltas, found = [], []
        for k, (problem, grad) in enumerate(zip(problems, ask, strict=True)):
            u = -problem.rho * grad
            deltas.append(problem.prox(u, problem.weight(u)))
            draws = range(first := 2 * (t * len(problems) + k), first + self.draws(k, len(problems)))
            grads = [problem.score.value_and_grad(problem.x + deltas[-1], draw, self.few)[1] for draw in draws]
            found.append(torch.stack(grads).mean(0))
        return torch.stack(deltas), torch.stack(found)

    def _finish(self, problem: Envelope, state: State, point: int, spent: int) -> Solution:
        u = -problem.rho * state.best[point]
        eta = problem.weight(u)
        delta = problem.prox(u, eta)
        draw = 2**32 + point  # fresh noise
        found = problem.measure(delta, eta, range(draw, draw + 1))
        count = torch.full((len(delta),), spent, device=delta.device)
        error = problem.error_of_map(state.error[point].sqrt(), delta, eta)
        return Solution(delta, *found, eta=eta, gradients=count, stderr=error)


def _telling(delta: Several) -> Several:
    """For each point the entries that its map keeps: noise is everywhere, but change is where the maps are.
    All of them where it keeps none."""
    kept = delta != 0
    none = ~kept.flatten(2).any(2)
    return (kept | none.view(*none.shape, *[1] * (delta.ndim - 2))).to(delta.dtype)


def mixed(mean: Several, variance: Several) -> Weights:
    """Row k: the weights, summing to 1, by which the means estimate the gradient at point k with the least error.

    The error is the noise sum_j w_j^2 v_j plus |sum_j w_j g_j - g_k|^2, whose distances between the true gradients
    are those between the means less the noise in them.
    """
    flat = mean.flatten(2).transpose(0, 1)
    centred = (flat - flat.mean(1, keepdim=True)).to(widest(flat))
    place = "cpu" if mean.device.type in NO_DOUBLE else mean.device
    gram = (centred @ centred.mT).to(place).double()
    noise = torch.stack([total(each) for each in variance], 1).to(place).double()  # n k
    points = gram.shape[1]
    centre = torch.eye(points, dtype=gram.dtype, device=gram.device) - 1 / points
    values, vectors = torch.linalg.eigh(gram - centre @ torch.diag_embed(noise) @ centre)
    signal = (vectors * values.clamp_min(0)[:, None]) @ vectors.mT
    # Lagrange: (V + S) w = S e_k + multiplier, with the multiplier such that the weights sum to 1
    floor = 1e-12 * (noise + signal.diagonal(dim1=1, dim2=2)).amax(1, keepdim=True) + torch.finfo(gram.dtype).tiny
    system = signal + torch.diag_embed(noise + floor)
    free = torch.linalg.solve(system, signal)
    ones = torch.linalg.solve(system, torch.ones_like(noise)[..., None])
    short = 1 - free.sum(1, keepdim=True)
    weights: Weights = (free + ones * (short / ones.sum(1, keepdim=True))).mT.to(mean.dtype).to(mean.device)
    return weights
