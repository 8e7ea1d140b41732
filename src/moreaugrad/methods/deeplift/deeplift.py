"""DeepLIFT by Captum's rescale rules, on a copy of the network that they can serve.

Owns how a score is put before those rules, and how their sum is checked; `graph_rewrite` makes the copy.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial
from inspect import signature
from typing import Any

import torch
from captum.attr import DeepLift as Captum
from captum.attr._core.deep_lift import maxpool2d, nonlinear
from captum.log import log_usage
from jaxtyping import Int
from torch import Tensor, nn

from moreaugrad import validate
from moreaugrad.batch import total, widest
from moreaugrad.methods.base import Call
from moreaugrad.methods.baseline import BaselineMethod
from moreaugrad.methods.chunks import cache_of, run_in_chunks
from moreaugrad.methods.deeplift.graph_rewrite import Elementwise, Largest, trace_operations
from moreaugrad.model.inputs import Packing, select_target, take_argument, take_target
from moreaugrad.model.prepared import Engine, fingerprint, numerics
from moreaugrad.results import Explanation
from moreaugrad.threads import ignore_warnings
from moreaugrad.types import Images, PerImage, Target

log = logging.getLogger("moreaugrad")

NEAR = 1e-3  # share of the score's rise that the map's sum may miss without a warning
LAST: dict[str, Callable[[Tensor], Tensor]] = {"prob": torch.reciprocal, "logprob": lambda s: -s.log()}


@dataclass(frozen=True, eq=False)
class DeepLift(BaselineMethod):
    """DeepLIFT, `m * (x - x0)`, signed, with multipliers m of the rescale rule (Shrikumar et al., 2017).

    The multipliers are chained like gradients, with `(g(z) - g(z0)) / (z - z0)` for an activation g, so that a map
    sums to `f(x) - f(x0)`. Use it as a cheap alternative to `IntegratedGradients`, at the cost of two rows, for
    networks of linear layers, simple activations and max-pooling; others are refused. The residual (Captum's
    convergence delta) is the gap `sum(map) - (f(x) - f(x0))`; a large one is logged as a warning.

    Args:
        forward_func: a module in evaluation mode, or any callable that returns scores of shape (N, classes).
        baseline: x0 for calls without `baselines`: "black", which is 0 for models that do not know their own
            normalisation, or "zero" (None), Captum's default.
        multiply_by_inputs: False returns the multipliers alone.
        strict: False differentiates operations that no rule serves as usual; the map is then DeepLIFT's in part only.
        eps: an activation whose input changes by less than this takes its gradient instead.

    Example:
        >>> maps, gap = mg.DeepLift(net).attribute(x, 0.5, target=3, return_convergence_delta=True)
        >>> maps.shape, bool(gap.abs().max() < 1e-4)
        (torch.Size([2, 3, 16, 16]), True)
    """

    strict: bool = field(default=True, kw_only=True)
    eps: float = field(default=1e-10, kw_only=True)

    once = True

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.precision not in (None, "float32") or self.compile:
            raise ValueError(
                "precision must be 'float32' and compile False for DeepLIFT, whose rules hold on to each activation, "
                f"got precision={self.precision!r} and compile={self.compile!r}; leave them out"
            )
        validate.flag("strict", self.strict)
        validate.positive("eps", self.eps)

    @log_usage()  # type: ignore[untyped-decorator]
    def attribute(
        self,
        inputs: Tensor | tuple[Tensor, ...],
        baselines: Any = None,
        target: Target = None,
        additional_forward_args: Any = None,
        return_convergence_delta: bool = False,
        custom_attribution_func: Callable[..., tuple[Tensor, ...]] | None = None,
        **options: Any,
    ) -> Any:
        """The map, with the signature of Captum's `DeepLift.attribute`.

        Args:
            inputs: images (N, ...), or a tuple of inputs.
            baselines: a number, a tensor shaped like the inputs or one of them, or a tuple; None: the method's own.
            target: the class or classes to explain, in any of Captum's forms.
            additional_forward_args: further arguments of the model.
            return_convergence_delta: whether to return the completeness gap (N,) too.
            custom_attribution_func: makes maps of (multipliers), (multipliers, inputs) or (multipliers, inputs,
                baselines), each a tuple of tensors; None: `multipliers * (inputs - baselines)`.
            **options: `internal_batch_size`, `show_progress` and `callback`, as for all methods.

        Returns:
            The map, shaped like the inputs; with `return_convergence_delta` a pair of map and gap.

        Example:
            >>> mg.DeepLift(net).attribute(x, torch.zeros_like(x), 3).shape
            torch.Size([2, 3, 16, 16])
        """
        rest = (baselines, target, additional_forward_args)
        if custom_attribution_func is None:
            return self._attribute(inputs, *rest, return_convergence_delta=return_convergence_delta, **options)
        count = len(signature(custom_attribution_func).parameters) if callable(custom_attribution_func) else 0
        if not 1 <= count <= 3:
            raise TypeError(
                "custom_attribution_func must be a function of multipliers, or of multipliers, inputs and baselines, "
                f"got {custom_attribution_func!r}"
            )
        factors, gap = replace(self, multiply_by_inputs=False)._attribute(
            inputs, *rest, return_convergence_delta=True, **options
        )
        given = validate.inputs(inputs)
        packing = Packing.of(given)
        packed = self._pack_baselines(baselines, given, packing)
        assert packed is not None
        parts = (factors if isinstance(factors, tuple) else (factors,), given, packing.split(packed))
        maps = custom_attribution_func(*parts[:count])
        for found, factor, after, before in zip(maps, *parts, strict=True):
            gap = gap + total(found) - total(factor * (after - before))
        shaped = maps if isinstance(inputs, tuple) else maps[0]
        return (shaped, gap) if return_convergence_delta else shaped

    def _engine(self, x: Images, given: tuple[Tensor, ...], rows: int | None, graph: bool) -> Engine:
        """As for a map that is to be differentiated: the model as it is, in its own precision."""
        return super()._engine(x, given, rows, graph=True)

    def compute(self, call: Call) -> Explanation:
        assert call.baseline is not None
        version = fingerprint(self.forward_func)
        if not version:  # what a function holds may have changed
            cache_of(self).clear()
        engine, make = call.score.engine, partial(self._rows, call, version)
        multipliers, before, after = run_in_chunks(engine, call.x, make, rows_per_image=2, watch=call.watch)
        validate.finite_score(after)
        parts = multipliers * (call.x - call.baseline)
        gap = total(parts) - (after - before)
        _warn_of_gaps(gap, before, after, parts)
        return Explanation(map=parts if self.multiply_by_inputs else multipliers, gradients=call.each(2), residual=gap)

    def _rows(self, call: Call, version: Any, rows: Int[Tensor, "r"]) -> tuple[Images, PerImage, PerImage]:
        """Multipliers of these images, and the scores of baseline and image."""
        assert call.baseline is not None
        owners = call.score.owners(call.x)[rows].repeat(2)
        arguments = [take_argument(each, owners, call.score.images) for each in call.score.arguments]
        with numerics("float32", call.x.is_cuda):
            key, network = self._network(call, call.x[rows.repeat(2)], arguments, version)
            score = TargetScore(network, call, owners, [each for each in arguments if isinstance(each, Tensor)])
            with ignore_warnings(UserWarning, "Setting forward, backward hooks"):
                x = call.x[rows].requires_grad_()
                found = Rescale(score, False, self.eps).attribute(x, call.baseline[rows])
        cache_of(self)["made"] = key, network
        after, before = score.values.to(call.x.dtype).chunk(2)
        return found.detach(), before, after

    def _network(self, call: Call, rows: Images, arguments: list[Any], version: Any) -> tuple[Any, nn.Module]:
        """The copy that takes these rows, and its key: the one of the last call where that fits.

        It is taken out of the cache while it is used, for its modules hold what Captum's rules need of one call.
        """
        inputs = call.score.unpack(rows)
        tensors = [each for each in arguments if isinstance(each, Tensor)]
        shapes = [(each.shape, each.dtype, each.device) for each in (*inputs, *tensors)]
        key = version, shapes, repr([each for each in arguments if not isinstance(each, Tensor)])
        known, network = cache_of(self).pop("made", (None, None))
        if network is None or known != key:
            forward = getattr(self.forward_func, "_orig_mod", self.forward_func)  # what is compiled cannot be traced

            def run(*given: Tensor) -> Tensor:
                own = iter(given[len(inputs) :])
                full = [next(own) if isinstance(each, Tensor) else each for each in arguments]
                return call.score.read(forward(*given[: len(inputs)], *full), len(rows))

            network, unserved = trace_operations(run, inputs, tensors)
            if self.strict:
                _refuse(unserved)
        return key, network


class TargetScore(nn.Module):
    """The score of rows. A probability is 1 / sum over j of exp(z_j - z_c): of elementwise functions and sums, so
    that the rescale rule serves it, and images stay independent."""

    def __init__(self, network: nn.Module, call: Call, owners: Tensor, arguments: list[Tensor]) -> None:
        super().__init__()
        self.network, self.of, self.arguments = network, call.score, arguments
        self.target = take_target(call.score.target, owners)
        self.exp = Elementwise(torch.exp)
        kind = call.score.kind
        self.last = Elementwise(LAST[kind]) if isinstance(kind, str) and kind in LAST else None
        self.values = torch.empty(0)

    def forward(self, rows: Tensor) -> Tensor:
        output = self.network(*self.of.unpack(rows), *self.arguments)
        validate.target_fits(self.of.target, tuple(output.shape), self.of.kind)
        score = select_target(output, self.target)
        if self.last is not None:
            precise = widest(rows)
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


def _refuse(unserved: list[str]) -> None:
    """Raises where an operation of the network is neither linear nor an activation nor a max-pooling."""
    if unserved == ["_softmax"]:
        raise ValueError(
            "DeepLIFT needs a network that returns logits, got a softmax in it; leave it out, and explain its "
            "probabilities by score='prob'"
        )
    if unserved:
        raise ValueError(
            "DeepLIFT needs a network of linear layers, max-pooling and activations of one number (ReLU, ReLU6, ELU, "
            f"LeakyReLU, Softplus, Sigmoid, Tanh), got {', '.join(unserved)}; use the method `integrated_gradients`, "
            "which serves any network, or strict=False, which differentiates the others as usual"
        )


def _warn_of_gaps(gap: PerImage, before: PerImage, after: PerImage, parts: Images) -> None:
    rise = (after - before).abs()
    rounding = torch.finfo(parts.dtype).eps * (before.abs() + after.abs() + total(parts.abs()))
    wide = gap.abs() > NEAR * rise + rounding
    if bool(wide.any()):
        worst = gap.abs().argmax()
        log.warning(
            "%d of %d maps do not sum up to the score's rise over the baseline (at worst %.2g is missing of %.2g): "
            "DeepLIFT's rules do not serve the model, or its precision is low; integrated gradients serve any",
            int(wide.sum()),
            len(gap),
            float(gap[worst].abs()),
            float(rise[worst]),
        )
