"""Integrated gradients: the gradient averaged along the straight line from a baseline to the image."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from captum.log import log_usage
from torch import Tensor

from moreaugrad import validate
from moreaugrad.batch import total, widest
from moreaugrad.methods.base import Call
from moreaugrad.methods.baseline import BaselineMethod
from moreaugrad.model.score import ClassScore
from moreaugrad.results import Explanation
from moreaugrad.types import Images, PerImage, Target

Nodes = tuple["np.ndarray[tuple[int], np.dtype[np.float64]]", "np.ndarray[tuple[int], np.dtype[np.float64]]"]


def _even(start: float, stop: float) -> Callable[[int], Nodes]:
    """m points of equal weight; start and stop in steps from 0 and from 1."""
    return lambda m: (np.linspace(start / m, 1 - stop / m, m), np.full(m, 1 / m))


def _trapezoid(m: int) -> Nodes:
    """Half a step at both ends. Captum's weights, which sum to (m - 1) / m: the gap shows it."""
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
class IntegratedGradients(BaselineMethod):
    """Integrated gradients, `(x - x0) * sum_i w_i grad f_c(x0 + a_i (x - x0))`, signed (Sundararajan et al., 2017).

    Shares out the rise of the score over the baseline x0 among the entries, for any network. The residual (Captum's
    convergence delta) is the completeness gap `sum(map) - (f(x) - f(x0))`, the error of the sum; more steps or
    `rule="gausslegendre"`, Captum's default, make it smaller.

    Args:
        forward_func: a module in evaluation mode, or any callable that returns scores of shape (N, classes).
        steps: points on the line from x0 to x; the cost is one gradient for each.
        rule: which points a_i and weights w_i: "right" (i / m, 1 / m), "left", "middle", "trapezoid" or
            "gausslegendre"; Captum's names ("riemann_right", ...) are accepted too.
        baseline: x0 for calls without `baselines`: "black", which is 0 for models that do not know their own
            normalisation, or "zero" (None), Captum's default.
        multiply_by_inputs: False returns the averaged gradient alone.

    Example:
        >>> method = mg.IntegratedGradients(net, steps=20)
        >>> maps, gap = method.attribute(x, 0.5, target=3, return_convergence_delta=True)
        >>> maps.shape, gap.shape
        (torch.Size([2, 3, 16, 16]), torch.Size([2]))
    """

    steps: int = 50
    rule: str = "right"

    differentiable = True

    def __post_init__(self) -> None:
        super().__post_init__()
        if isinstance(self.rule, str):
            object.__setattr__(self, "rule", self.rule.removeprefix("riemann_"))
        validate.one_of("rule", self.rule, RULES)
        validate.at_least("steps", self.steps, 2 if self.rule == "trapezoid" else 1)

    @property
    def per_image(self) -> int:
        return self.steps

    @log_usage()  # type: ignore[untyped-decorator]
    def attribute(
        self,
        inputs: Tensor | tuple[Tensor, ...],
        baselines: Any = None,
        target: Target = None,
        additional_forward_args: Any = None,
        n_steps: int | None = None,
        method: str | None = None,
        internal_batch_size: int | None = None,
        return_convergence_delta: bool = False,
        **options: Any,
    ) -> Any:
        """The map, with the signature of Captum's `IntegratedGradients.attribute`.

        Args:
            inputs: images (N, ...), or a tuple of inputs.
            baselines: a number, a tensor shaped like the inputs or one of them, or a tuple; None: the method's own.
            target: the class or classes to explain, in any of Captum's forms.
            additional_forward_args: further arguments of the model.
            n_steps: replaces `steps` in this call.
            method: replaces `rule` in this call.
            internal_batch_size: the most rows that reach the model at once.
            return_convergence_delta: whether to return the completeness gap (N,) too.
            **options: `create_graph`, `show_progress` and `callback`, as for all methods.

        Returns:
            The map, shaped like the inputs; with `return_convergence_delta` a pair of map and gap.

        Example:
            >>> mg.IntegratedGradients(net).attribute(x, torch.zeros_like(x), 3, n_steps=8).shape
            torch.Size([2, 3, 16, 16])
        """
        steps, rule = self.steps if n_steps is None else n_steps, self.rule if method is None else method
        chosen = self if n_steps is None and method is None else replace(self, steps=steps, rule=rule)
        wanted = {"internal_batch_size": internal_batch_size, "return_convergence_delta": return_convergence_delta}
        return chosen._attribute(inputs, baselines, target, additional_forward_args, **wanted, **options)

    def compute(self, call: Call) -> Explanation:
        assert call.baseline is not None
        way = call.x - call.baseline
        mean = self._average_gradient(call, way)
        parts = mean * way
        rise = _value(call.score, call.x) - _value(call.score, call.baseline)
        return Explanation(
            map=parts if self.multiply_by_inputs else mean,
            gradients=call.each(self.steps),
            residual=total(parts.detach()) - rise,
        )

    def _average_gradient(self, call: Call, way: Images) -> Images:
        """The weighted gradients in one stream of rows, image by image: chunks are full, and no more points than a
        chunk are held. Summed in float64, so that the ends of the chunks do not show."""
        assert call.baseline is not None
        precise = widest(way)
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
    return score.values(score.outputs(x).to(x.dtype), score.owners(x))
