"""Integrated Gradients: the gradient averaged along the straight way from a baseline to the image."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
import torch
from torch import Tensor

from moreaugrad import validate
from moreaugrad.attacks.checks_references import named
from moreaugrad.batch import total
from moreaugrad.methods.base import Call, Method
from moreaugrad.model import inputs
from moreaugrad.model.score import KINDS, ClassScore
from moreaugrad.results import Explanation
from moreaugrad.types import Images, PerImage

Nodes = tuple["np.ndarray[tuple[int], np.dtype[np.float64]]", "np.ndarray[tuple[int], np.dtype[np.float64]]"]


def _even(start: float, stop: float) -> Callable[[int], Nodes]:
    """m points of equal weight; start and stop in steps from 0 and from 1."""
    return lambda m: (np.linspace(start / m, 1 - stop / m, m), np.full(m, 1 / m))


def _trapezoid(m: int) -> Nodes:
    """Half a step at both ends. Captum's weights, which sum up to (m - 1) / m: the gap shows it."""
    weights = np.full(m, 1 / m)
    weights[[0, -1]] /= 2
    return np.linspace(0, 1, m), weights


def _gauss_legendre(m: int) -> Nodes:
    points, weights = np.polynomial.legendre.leggauss(m)
    return (1 + points) / 2, weights / 2


RULES: dict[str, Callable[[int], Nodes]] = {
    "right": _even(1, 0),
    "left": _even(0, 1),
    "middle": _even(0.5, 0.5),
    "trapezoid": _trapezoid,
    "gausslegendre": _gauss_legendre,
}


@dataclass(frozen=True, eq=False)
class IntegratedGradients(Method):
    """(x - x0) * sum over i of w_i grad f_c(x0 + a_i (x - x0)), signed: the score's rise over the baseline x0,
    shared out among the entries. The right rule is a_i = i/m, w_i = 1/m.

    The residual is the completeness gap, sum(map) - (f(x) - f(x0)): what the sum leaves of the integral.
    """

    steps: int = 50  # gradients per image
    rule: str = "right"  # where they are taken; the smallest gap is gausslegendre's
    baseline: str | None = field(default="black", kw_only=True)  # or zero, the mean colour; None: zero
    multiply_by_inputs: bool = field(default=True, kw_only=True)  # False: the averaged gradient alone

    def __post_init__(self) -> None:
        Method.__post_init__(self)
        validate.one_of("rule", self.rule, RULES)
        validate.at_least("steps", self.steps, 2 if self.rule == "trapezoid" else 1)
        named(self.baseline)
        validate.flag("multiply_by_inputs", self.multiply_by_inputs)

    @property
    def differentiable(self) -> bool:
        return True

    @property
    def per_image(self) -> int:
        return self.steps

    @property
    def reference(self) -> str:
        return self.baseline or "zero"

    def has_convergence_delta(self) -> bool:
        return True

    def compute(self, call: Call) -> Explanation:
        assert call.baseline is not None
        way = call.x - call.baseline
        mean = self._averaged(call, way)
        parts = mean * way
        rise = _value(call.score, call.x) - _value(call.score, call.baseline)
        return Explanation(
            map=parts if self.multiply_by_inputs else mean,
            gradients=call.each(self.steps),
            residual=total(parts.detach()) - rise,
        )

    def _averaged(self, call: Call, way: Images) -> Images:
        """The weighted gradients in one stream of rows, image by image: chunks are full,
        and no more than a chunk of points is held. Added up in float64, so that no chunk's end shows."""
        assert call.baseline is not None
        precise = way.dtype if way.device.type == "mps" else torch.float64
        nodes = RULES[self.rule](self.steps)
        points, weights = (torch.tensor(each, dtype=precise, device=way.device) for each in nodes)
        sums = [torch.zeros_like(way[0], dtype=precise) for _ in way]
        owners, rows = call.score.owners(call.x), len(way) * self.steps
        most = call.score.engine.rows  # a CPU is full with a single image, a GPU with several; never by their number
        size = min(most, max(1, most // self.steps) * self.steps if way.is_cuda else self.steps)
        for start in range(0, rows, size):
            stream = torch.arange(start, min(start + size, rows), device=way.device)
            image, step = stream // self.steps, stream % self.steps
            at = points[step].to(way.dtype).view(-1, *[1] * (way.ndim - 1))
            _, grad = call.score.evaluate(call.baseline[image] + at * way[image], owners[image], size)
            for one in range(start // self.steps, (start + len(stream) - 1) // self.steps + 1):
                mine = slice(max(one * self.steps - start, 0), (one + 1) * self.steps - start)
                sums[one] = sums[one] + torch.tensordot(weights[step[mine]], grad[mine].to(precise), 1)
            call.watch(min(start + size, rows), rows, {})
        return torch.stack(sums).to(way.dtype)


def _value(score: ClassScore, x: Images) -> PerImage:
    """The score itself, by the model as it is."""
    output: Tensor = KINDS[score.kind](score.outputs(x).to(x.dtype))
    return inputs.select_target(output, inputs.take_target(score.target, score.owners(x)))
