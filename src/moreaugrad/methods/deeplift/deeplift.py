"""DeepLIFT by Captum's rescale rules, on a copy of the network that they can serve.

Owns how a score is put before those rules, and how their sum is checked; the copy is made in core.
"""

from __future__ import annotations

import logging
import warnings
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import torch
from captum.attr import DeepLift as Captum
from captum.attr._core.deep_lift import maxpool2d, nonlinear
from jaxtyping import Float
from torch import Tensor, nn

from moreaugrad import validate
from moreaugrad.attacks.checks_references import named, rescalable, run_as_it_is
from moreaugrad.batch import total
from moreaugrad.methods.base import Call, Method
from moreaugrad.methods.deeplift.graph_rewrite import Elementwise, Largest, canonised
from moreaugrad.model import inputs
from moreaugrad.model.prepared import Engine, fingerprint, numerics
from moreaugrad.results import Explanation
from moreaugrad.types import Images, PerImage

log = logging.getLogger("moreaugrad")

NEAR = 1e-3  # how much of the score's rise the map's sum may miss, without a word
LAST: dict[str, Callable[[Tensor], Tensor]] = {"prob": torch.reciprocal, "logprob": lambda s: -s.log()}


@dataclass(frozen=True, eq=False)
class DeepLift(Method):
    """m * (x - x0), signed: multipliers m chained like gradients, with (g(z) - g(z0)) / (z - z0) for an activation g,
    so that a map sums up to f(x) - f(x0). For networks of linear layers, simple activations and max-pooling.

    Others are refused; with `strict=False` what no rule serves is differentiated as usual, and the map is
    DeepLIFT's in part only. The residual is the gap sum(map) - (f(x) - f(x0)), and a large one is told.
    """

    baseline: str | None = field(default="black", kw_only=True)  # or zero, the mean colour; None: zero
    multiply_by_inputs: bool = field(default=True, kw_only=True)  # False: the multipliers alone
    strict: bool = field(default=True, kw_only=True)  # False: explain networks that the rules do not serve
    eps: float = field(default=1e-10, kw_only=True)  # below this change of its input an activation's gradient is taken

    def __post_init__(self) -> None:
        Method.__post_init__(self)
        named(self.baseline)
        run_as_it_is(self.precision, self.compile)
        validate.flag("multiply_by_inputs", self.multiply_by_inputs)
        validate.flag("strict", self.strict)
        validate.positive("eps", self.eps)

    def __getstate__(self) -> dict[str, Any]:
        return {key: value for key, value in vars(self).items() if key != "_copies"}

    @cached_property
    def _copies(self) -> dict[str, Any]:
        """The last copy, kept for calls with the same model and shapes."""
        return {}

    @property
    def once(self) -> bool:
        return True

    @property
    def reference(self) -> str:
        return self.baseline or "zero"

    def has_convergence_delta(self) -> bool:
        return True

    def _engine(self, x: Images, given: tuple[Tensor, ...], rows: int | None, graph: bool) -> Engine:
        """As for a map that is to be differentiated: the model as it is, in its own precision."""
        return super()._engine(x, given, rows, graph=True)

    def compute(self, call: Call) -> Explanation:
        assert call.baseline is not None
        engine, seen = call.score.engine, fingerprint(self.forward_func)
        if not seen:  # what a function holds on to may have changed
            self._copies.clear()
        found, scores = torch.empty_like(call.x), call.x.new_empty(2, len(call.x))  # scores of x0, of x
        start = 0
        while start < len(call.x):
            size = max(1, engine.rows // 2)  # the image and its baseline are a row each
            stop = min(start + size, len(call.x))
            padded = start + torch.arange(size, device=call.x.device) % (stop - start)
            try:
                multipliers, score = self._rows(call, padded, seen)
            except torch.OutOfMemoryError as error:
                engine.halve_rows(2 * size if size > 1 else 1, error)
                continue
            found[start:stop], scores[:, start:stop] = multipliers[: stop - start], score[:, : stop - start]
            start = stop
            call.watch(start, len(call.x), {})
        validate.finite_score(scores[1])
        parts = found * (call.x - call.baseline)
        gap = total(parts) - (scores[1] - scores[0])
        _mention_gaps(gap, scores, parts)
        return Explanation(map=parts if self.multiply_by_inputs else found, gradients=call.each(2), residual=gap)

    def _rows(self, call: Call, rows: Tensor, seen: Any) -> tuple[Images, Float[Tensor, "2 r"]]:
        """Multipliers of these images, and the scores of baseline and image."""
        assert call.baseline is not None
        owners = call.score.owners(call.x)[rows].repeat(2)
        arguments = [inputs.take_argument(each, owners, call.score.images) for each in call.score.arguments]
        with numerics("float32", call.x.is_cuda):
            network = self._network(call, call.x[rows.repeat(2)], arguments, seen)
            score = Scored(network, call, owners, [each for each in arguments if isinstance(each, Tensor)])
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", UserWarning)  # of hooks, which only the copy has
                x = call.x[rows].requires_grad_()
                found = Rescale(score, False, self.eps).attribute(x, call.baseline[rows])
        after, before = score.values.to(call.x.dtype).chunk(2)
        return found.detach(), torch.stack([before, after])

    def _network(self, call: Call, rows: Images, arguments: list[Any], seen: Any) -> nn.Module:
        """The copy that takes these rows: the one of the last call where that fits."""
        inputs = call.score.unpack(rows)
        tensors = [each for each in arguments if isinstance(each, Tensor)]
        shapes = [(each.shape, each.dtype, each.device) for each in (*inputs, *tensors)]
        key = seen, shapes, repr([each for each in arguments if not isinstance(each, Tensor)])
        if self._copies.get("key") != key:
            forward = getattr(self.forward_func, "_orig_mod", self.forward_func)  # what is compiled cannot be traced

            def run(*given: Tensor) -> Tensor:
                own = iter(given[len(inputs) :])
                full = [next(own) if isinstance(each, Tensor) else each for each in arguments]
                return validate.output(forward(*given[: len(inputs)], *full), len(rows))

            network, unserved = canonised(run, inputs, tensors)
            rescalable(unserved, self.strict)
            self._copies.update(key=key, network=network)
        return self._copies["network"]  # type: ignore[no-any-return]


class Scored(nn.Module):
    """The score of rows. A probability is 1 / sum over j of exp(z_j - z_c): of elementwise functions and sums, so
    that the rescale rule serves it, and no image sees another."""

    def __init__(self, network: nn.Module, call: Call, owners: Tensor, arguments: list[Tensor]) -> None:
        super().__init__()
        self.network, self.of, self.arguments = network, call.score, arguments
        self.target = inputs.take_target(call.score.target, owners)
        self.exp = Elementwise(torch.exp)
        self.last = Elementwise(LAST[call.score.kind]) if call.score.kind in LAST else None
        self.values = torch.empty(0)

    def forward(self, rows: Tensor) -> Tensor:
        output = self.network(*self.of.unpack(rows), *self.arguments)
        validate.target_fits(self.of.target, tuple(output.shape), self.of.kind)
        score = inputs.select_target(output, self.target)
        if self.last is not None:
            precise = torch.float32 if rows.device.type == "mps" else torch.float64
            score = self.last(self.exp((output - score[:, None]).to(precise)).sum(1))
        self.values = score.detach()
        return score


class Rescale(Captum):  # type: ignore[misc]
    """Captum's DeepLIFT with its rules at the modules of the copy, and nowhere else."""

    def _is_non_linear(self, module: nn.Module) -> bool:
        return isinstance(module, Elementwise | Largest)

    def _backward_hook(self, module: Any, grad_input: Tensor, grad_output: Tensor) -> Tensor:
        rule = nonlinear if isinstance(module, Elementwise) else maxpool2d
        least = max(self.eps, torch.finfo(grad_input.dtype).tiny)  # float16 has no 1e-10
        found: Tensor = rule(module, module.input, module.output, grad_input, grad_output, eps=least)
        if rule is maxpool2d:  # where nothing changes, Captum takes the gradient of the first row for all
            after, before = module.input.chunk(2)
            found = torch.where((after - before).abs().repeat(2, 1, 1, 1) < least, grad_input, found)
        del module.input, module.output
        return found


def _mention_gaps(gap: PerImage, scores: Float[Tensor, "2 n"], parts: Images) -> None:
    rise = (scores[1] - scores[0]).abs()
    rounding = torch.finfo(parts.dtype).eps * (scores.abs().sum(0) + total(parts.abs()))
    wide = gap.abs() > NEAR * rise + rounding
    if bool(wide.any()):
        worst = gap.abs().argmax()
        log.warning(
            "%d of %d maps do not sum up to the score's rise over the baseline (at worst %.2g is missing of %.2g): "
            "the model is not served by DeepLIFT's rules, or its precision is low; integrated gradients serve any",
            int(wide.sum()),
            len(gap),
            float(gap[worst].abs()),
            float(rise[worst]),
        )
