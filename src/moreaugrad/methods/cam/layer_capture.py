"""Activations and gradients at layers of the caller's own model, in chunks of one constant shape.

Hooks live for one chunk and are removed whatever happens. Never runs a folded or compiled copy: those do not have
the layers that a caller names. Only what is computed from a chunk is kept, not the activations themselves.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import torch
from jaxtyping import Int
from torch import Tensor, nn

from moreaugrad import validate
from moreaugrad.methods.chunks import run_in_chunks
from moreaugrad.model.inputs import Owners
from moreaugrad.model.prepared import HALF, Engine, numerics
from moreaugrad.model.score import ClassScore
from moreaugrad.threads import ALONE, OwnHook
from moreaugrad.types import Images, PerImage


@dataclass(frozen=True, eq=False)
class LayerRecord:
    """What a chunk of rows left at each layer, in the order of the layers and the dtype of x."""

    score: PerImage
    owners: Owners
    inputs: tuple[Tensor, ...]
    outputs: tuple[Tensor, ...]
    gradients: tuple[Tensor, ...]  # of the score, with respect to the outputs; empty where none were asked for


def capture_layers(
    score: ClassScore,
    x: Images,
    layers: Mapping[str, nn.Module],
    make: Callable[[LayerRecord], tuple[Tensor, ...]],
    gradients: bool = True,
) -> tuple[Tensor, ...]:
    """What `make` computes from each chunk, joined: tensors of one row per image."""
    original, owners = on_original_model(score), score.owners(x)

    def run(rows: Int[Tensor, "r"]) -> tuple[Tensor, ...]:
        with torch.inference_mode(False), torch.enable_grad(), numerics(score.engine.precision, x.is_cuda):
            record = _record(original, x[rows], owners[rows], layers, gradients)
        with torch.set_grad_enabled(score.graph):
            made = make(record)
        for gradient in record.gradients:
            score.engine.check_overflow(gradient)
        return made

    return run_in_chunks(score.engine, x, run)


def require_module(model: Any, who: str = "the method") -> nn.Module:
    """The module whose layers can be read: of a compiled model the one that was compiled."""
    model = getattr(model, "_orig_mod", model)
    if not isinstance(model, nn.Module):
        raise TypeError(
            f"{who} reads layers of the model, so the model must be a torch.nn.Module, got {type(model).__name__}; "
            "pass the module itself, or take a method that needs no layer, such as `gradient`"
        )
    return model


def on_original_model(score: ClassScore) -> ClassScore:
    """The same score by the model itself; a reduced precision is then autocast's."""
    old = score.engine
    engine = Engine(require_module(old.forward), old.precision, rows=old.rows)
    engine.channels_last, engine.auto = old.channels_last, HALF.get(old.precision)
    return replace(score, engine=engine)


@contextmanager
def forward_hooks(modules: Mapping[str, nn.Module], hook: Callable[[str, nn.Module, Any, Any], Any]) -> Iterator[None]:
    """Calls `hook(name, module, first argument, output)` after each module; what it returns replaces the output.

    In this thread alone: others may run the same model.
    """

    def call(name: str, module: nn.Module, given: Any, named: dict[str, Any], output: Any) -> Any:
        return hook(name, module, next(iter((*given, *named.values())), None), output)

    handles = []
    try:
        with ALONE:
            for name, module in modules.items():
                handles.append(module.register_forward_hook(OwnHook(partial(call, name)), with_kwargs=True))
        yield
    finally:
        with ALONE:
            for handle in handles:
                handle.remove()


def first_tensor(output: Any) -> Any:
    """The output of a layer, or the first of several."""
    return output[0] if isinstance(output, tuple | list) and output else output


def _record(
    score: ClassScore, rows: Images, owners: Owners, layers: Mapping[str, nn.Module], gradients: bool
) -> LayerRecord:
    kept: dict[str, tuple[Tensor, Tensor]] = {}

    def keep(name: str, module: nn.Module, argument: Any, output: Any) -> Any:
        first = first_tensor(output)
        if not isinstance(first, Tensor):
            raise TypeError(
                f"layer {name!r} must return a tensor, or a tuple that begins with one, got {type(output).__name__}; "
                "name a module inside it"
            )
        if gradients and not score.graph and not first.requires_grad:
            first = first.detach().requires_grad_()  # the graph starts here: nothing before it is differentiated
        # later layers may write in place: they get a copy, and the input of a convolution is copied too
        given = argument.clone() if isinstance(argument, Tensor) and isinstance(module, nn.Conv2d) else first
        kept[name] = given, first
        if isinstance(output, Tensor):
            return first.clone()
        parts = [first.clone(), *output[1:]]
        return type(output)(*parts) if hasattr(output, "_fields") else type(output)(parts)

    with forward_hooks(layers, keep):
        value = _score_rows(score, rows, owners, gradients)
    for name in layers:
        if name not in kept:
            raise ValueError(
                f"layer {name!r} must take part in the model's forward, got no call of it; name a module that is "
                "called (a scripted model calls none)"
            )
    inputs, outputs = ([kept[name][part] for name in layers] for part in (0, 1))
    grads = _gradients(score, value, dict(zip(layers, outputs, strict=True))) if gradients else []

    def finish(tensor: Tensor) -> Tensor:
        return (tensor if score.graph else tensor.detach()).to(rows.dtype)

    return LayerRecord(finish(value), owners, *(tuple(map(finish, group)) for group in (inputs, outputs, grads)))


def _score_rows(score: ClassScore, rows: Images, owners: Owners, gradients: bool) -> PerImage:
    if gradients or score.graph:
        leaf = rows.detach().clone().requires_grad_() if score.graph and not rows.requires_grad else rows
        return score.score_rows(leaf, owners)
    with torch.no_grad():
        output = score.run(rows, owners)
        validate.target_fits(score.target, tuple(output.shape), score.kind)
        value = score.values(output.to(rows.dtype), owners)
    validate.finite_score(value)
    return value


def _gradients(score: ClassScore, value: PerImage, outputs: Mapping[str, Tensor]) -> list[Tensor]:
    lift = 1.0 if score.graph else score.engine.scale
    cut = [name for name, output in outputs.items() if not output.requires_grad]
    found: tuple[Tensor, ...] = ()
    if not cut:
        every = list(outputs.values())
        found = torch.autograd.grad(value.sum() * lift, every, allow_unused=True, create_graph=score.graph)
        cut = [name for name, gradient in zip(outputs, found, strict=True) if gradient is None]
    if cut:
        raise ValueError(
            f"the score must depend on the output of layer {cut[0]!r}, got no gradient there; "
            "name a layer between the input and the score, with no detach() or no_grad on the way"
        )
    return [gradient / lift if lift != 1 else gradient for gradient in found]
