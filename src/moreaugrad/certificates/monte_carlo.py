"""Averages on fresh noise, and how far they may be from the truth. Samples are independent, not in pairs.

The noise has a generator of its own, seeded by the system unless the caller insists: who knows it may adapt to it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from moreaugrad import validate
from moreaugrad.certificates import checks_certify as rules
from moreaugrad.certificates import theory
from moreaugrad.certificates.subspace import Grid, Whole
from moreaugrad.model import inputs
from moreaugrad.model.bounded import Odds, log_odds
from moreaugrad.model.inputs import Packing
from moreaugrad.model.prepared import Engine, choose_precision, numerics
from moreaugrad.model.score import KINDS, ClassScore, safe_rows
from moreaugrad.types import Images

WIDTH = 0.3  # of the centred odds, in standard deviations under the noise: narrower is nearly a vote


@dataclass(frozen=True, eq=False, slots=True)
class Estimate:
    """A mean over noise of a gradient, or of what a score-function estimator gives for it."""

    gradient: Images  # of one image, in the space of displacements; float64
    error: float  # it is no further from the truth, with the probability asked for
    value: float  # mean of the score


@dataclass(frozen=True, eq=False)
class Noisy:
    """One image's score under noise of a fixed sigma, to be averaged again and again on new draws."""

    score: ClassScore
    sigma: float
    generator: torch.Generator
    odds: Odds | None = None  # in place of the score

    def backprop(self, y: Images, samples: int, L: float, alpha: float) -> Estimate:
        """Mean of the gradients at y, of an L-Lipschitz score: two bounds of its error, both held at once.

        The plain one at alpha/2; the one that knows the variance at alpha/4, and its variance at alpha/4.
        """
        total, value, halves = torch.zeros_like(y, dtype=torch.float64), y.new_zeros((), dtype=torch.float64), []
        longest = y.new_zeros(())
        for rows, _ in self._rows(y, samples):
            values, grads = self.score.evaluate(rows, self._owners(rows), len(rows))
            longest = torch.maximum(longest, grads.flatten(1).norm(dim=1).max())
            value += values.double().sum()
            total += grads.double().sum(0, keepdim=True)
            even = grads[: len(grads) // 2 * 2].flatten(1)
            halves.append((even[0::2] - even[1::2]).double().square().sum(1) / 2)
        rules.steepness(float(longest), L)
        plain = theory.err_backprop(L, samples, alpha / 2)
        variance = theory.variance_bound(torch.cat(halves), L, alpha / 4)
        error = min(plain, theory.err_bernstein(L, variance, samples, alpha / 4))
        return Estimate(total / samples, error, float(value) / samples)

    def score_function(
        self, y: Images, samples: int, bounds: tuple[float, float], alpha: float, space: Whole | Grid
    ) -> Estimate:
        """(1/(m sigma)) sum (f(y + sigma z) - middle) P'z: needs the range of f alone, and no gradient."""
        middle, value = sum(bounds) / 2, y.new_zeros((), dtype=torch.float64)
        total = torch.zeros((1, *space.shape), dtype=torch.float64, device=y.device)
        ends = [y.new_tensor(bounds[1]), y.new_tensor(bounds[0])]
        for rows, noise in self._rows(y, samples):
            values = self._values(rows)
            ends = [torch.minimum(ends[0], values.min()), torch.maximum(ends[1], values.max())]
            value += values.double().sum()
            weighted = ((values - middle).view(-1, *[1] * (y.ndim - 1)) * noise).sum(0, keepdim=True)
            total += space.project(weighted).double()
        rules.inside(float(ends[0]), float(ends[1]), bounds)
        error = theory.err_stein(space.size, samples, alpha, self.sigma, bounds[1] - bounds[0])
        return Estimate(total / (samples * self.sigma), error, float(value) / samples)

    def interval(self, x: Images, samples: int, bounds: tuple[float, float], alpha: float) -> tuple[float, float]:
        """Where the mean score at x lies, as shares of its range."""
        low, width, value = bounds[0], bounds[1] - bounds[0], x.new_zeros((), dtype=torch.float64)
        for rows, _ in self._rows(x, samples):
            value += self._values(rows).double().clamp(*bounds).sum()
        return theory.kl_interval(min(max((float(value) / samples - low) / width, 0.0), 1.0), samples, alpha)

    def centred(self, x: Images, samples: int) -> Odds:
        """The odds as a score that uses its range up at x: centred there, as wide as the noise makes them."""
        found = [log_odds(self._outputs(rows))[:, self.score.target] for rows, _ in self._rows(x, samples)]
        values = torch.cat(found).double()
        spread = float(values.std())
        return Odds(self.score.engine.forward, float(values.median()), WIDTH * spread if spread > 0 else 1.0)

    def _rows(self, y: Images, samples: int) -> Iterator[tuple[Tensor, Tensor]]:
        """Noisy copies of y, a chunk at a time, and their noise."""
        done = 0
        while done < samples:
            rows = min(self.score.engine.rows, samples - done)
            noise = torch.empty((rows, *y.shape[1:]), dtype=y.dtype, device=y.device).normal_(generator=self.generator)
            yield y + self.sigma * noise, noise
            done += rows

    def _values(self, rows: Images) -> Tensor:
        read = KINDS[self.score.kind] if self.odds is None else self.odds.of_logits
        return inputs.select_target(read(self._outputs(rows)), self.score.target)

    def _outputs(self, rows: Images) -> Tensor:
        """What the network says of the rows; of half of them at a time where not all fit."""
        score = self.score
        try:
            with torch.no_grad(), numerics(score.engine.precision, rows.is_cuda):
                return score.run(rows, self._owners(rows)).to(rows.dtype)
        except torch.OutOfMemoryError as error:
            score.engine.halve_rows(len(rows), error)
            return torch.cat([self._outputs(some) for some in rows.split(max(1, len(rows) // 2))])

    def _owners(self, rows: Images) -> Tensor:
        return torch.zeros(len(rows), dtype=torch.long, device=rows.device)


def make_engine(method: Any, x: Images, target: int, coarse: bool) -> Engine:
    """What runs the network, once for all images. Constants of a network hold for what it computes exactly, so only a
    range may be certified in a `coarse` precision, which is the method's."""
    engine = Engine(method.forward_func, choose_precision(_precision(method, x, coarse), (x,)), False)
    engine.rows = safe_rows(x, 256) * (4 if x.is_cuda else 1)  # what does not fit is halved
    score = class_score(engine, method, x[:1], target)
    output = score.outputs(x[:1])
    validate.finite_score(inputs.select_target(KINDS[score.kind](output.to(x.dtype)), target))
    score.prepare(x[:1])
    return engine


def _precision(method: Any, x: Images, coarse: bool) -> str | None:
    if coarse and method.precision is not None:
        return str(method.precision)
    return "float32" if x.dtype == torch.float32 else None


def class_score(engine: Engine, method: Any, x: Images, target: int) -> ClassScore:
    """The score that a method explains, of one image."""
    return ClassScore(engine, target, len(x), (), method.score, Packing.of((x,)).unpack)
