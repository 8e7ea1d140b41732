"""rho = 0: every gradient is taken at the input itself, and nothing is solved."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import cast

import torch
from torch import Tensor

from moreaugrad import validate
from moreaugrad.batch import norm, relative_error
from moreaugrad.envelope.envelope import Envelope, Solution
from moreaugrad.model.smoothing import SmoothedScore, part_size
from moreaugrad.model.statistics import MomentSums, moment_pairs, part_moments, read_statistic
from moreaugrad.types import Images, Watch, ignore_progress

DRAW = 128  # noise vectors held at a time
PARTS = 16  # independent parts of a draw, from which the standard error comes


@dataclass(frozen=True, slots=True)
class AtInput:
    """Averages gradients around x + delta for a given displacement: what remains of the problem as rho goes to 0.

    Without a displacement that is the input itself, and the solution of the limit: delta = 0, the map is the prox of
    the averaged gradient, exactly.

    Args:
        budget: most sample-gradients per image; a score without fresh noise has one draw, and takes that.
        relative_error: stop an image once the standard error of its map is below this share of the map's norm.
    """

    budget: int = 800
    relative_error: float | None = None

    def run(self, problem: Envelope, watch: Watch = ignore_progress, delta: Images | None = None) -> Solution:
        delta = torch.zeros_like(problem.x) if delta is None else delta
        if problem.tau is None:
            return self._run_once(problem, delta, watch)
        pairs = moment_pairs(problem.statistic)
        sums = MomentSums(problem.x, pairs, sized=True)
        values = problem.x.new_zeros(len(problem.x))
        spent = torch.zeros(len(problem.x), dtype=torch.long, device=problem.x.device)
        who = torch.arange(len(problem.x), device=problem.x.device)
        sizes = split_draws(self.budget) if problem.score.random else [problem.score.samples]
        for draw, size in enumerate(sizes):
            some = problem if len(who) == len(problem.x) else problem.take(who)
            values[who] += self._add_draw(some, delta[who], sums, who, draw, size) * size
            spent[who] += size
            watch(draw + 1, len(sizes), {"map": partial(_map_so_far, problem, sums)})
            who = self._unknown(some, sums, who)
            if not len(who):
                break
        validate.some_gradient(torch.isfinite(norm(sums.mean[:, 0].detach())))
        error = sums.error(problem.statistic) if problem.score.random else None
        return _solution(delta, values / spent, spent, error, sums.mean)

    def _add_draw(
        self, problem: Envelope, delta: Images, sums: MomentSums, who: Tensor, draw: int, size: int
    ) -> Tensor:
        """The mean score of each image over a draw, whose gradients go into the sums."""
        score = cast(SmoothedScore, problem.score)
        keep, part = problem.voted, part_size(size, PARTS)
        values = problem.x.new_empty(len(who))
        for some, value, grad in score.each(problem.x + delta, draw, size):
            values[some] = value.detach().mean(1)
            for moments, copies in part_moments(grad, keep, part, together=grad.is_cuda):
                sums.add(moments, copies, who[some])
        return values

    def _run_once(self, problem: Envelope, delta: Images, watch: Watch) -> Solution:
        """A score without noise: one gradient says all."""
        value, grad = problem.score.value_and_grad(problem.x + delta)
        validate.some_gradient(torch.isfinite(norm(grad.detach())))
        watch(1, 1, {})
        spent = torch.full((len(delta),), problem.score.samples, device=delta.device)
        return _solution(delta, value, spent, None, torch.stack([grad, grad.square(), torch.zeros_like(grad)], 1))

    def _unknown(self, problem: Envelope, sums: MomentSums, who: Tensor) -> Tensor:
        """The images whose map is not known well enough yet."""
        if self.relative_error is None or problem.threshold is None:
            return who
        mine = sums.take(who)
        dense, error = read_statistic(problem.statistic, mine.mean), mine.error(problem.statistic)
        found, _, of_map = problem.threshold.thresholded(dense, error)
        return who[~(relative_error(found, cast(Tensor, of_map)) <= self.relative_error)]


def _map_so_far(problem: Envelope, sums: MomentSums) -> Images:
    """What the map would be without further draws."""
    dense = read_statistic(problem.statistic, sums.mean)
    return dense if problem.threshold is None else problem.threshold.thresholded(dense, None)[0]


def split_draws(samples: int) -> list[int]:
    """The sizes of the sets of noise vectors that a number of samples is drawn in."""
    return [min(DRAW, samples - start) for start in range(0, samples, DRAW)]


def _solution(delta: Images, value: Tensor, spent: Tensor, error: Images | None, moments: Tensor) -> Solution:
    none = torch.zeros_like(value)
    return Solution(delta, none, none, value, none, spent, error, moments)
