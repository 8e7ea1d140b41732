"""Activations and gradients at layers of the caller's own model, in chunks of one constant shape.

Hooks live for one chunk and are removed whatever happens. Never runs a folded or compiled copy: those do not
have the layers that a caller names. What is made of a chunk is kept, the activations themselves are not.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from moreaugrad import validate as given
from moreaugrad.methods import checks_layers
from moreaugrad.model import inputs
from moreaugrad.model.prepared import HALF, Engine, numerics
from moreaugrad.model.score import KINDS, ClassScore, pad
from moreaugrad.types import Images, PerImage


@dataclass(frozen=True, eq=False)
class Seen:
    """What a chunk of rows left at each layer, in the order of the layers and the dtype of x."""

    score: PerImage
    owners: inputs.Owners
    inputs: tuple[Tensor, ...]
    outputs: tuple[Tensor, ...]
    gradients: tuple[Tensor, ...]  # of the score, with respect to the outputs; empty where none were asked for


Make = Callable[[Seen], tuple[Tensor, ...]]


def read(
    score: ClassScore, x: Images, layers: Mapping[str, nn.Module], make: Make, gradients: bool = True
) -> tuple[Tensor, ...]:
    """What `make` makes of each chunk, put together: tensors of one row per image."""
    found: list[tuple[Tensor, ...]] = []
    bare, owners, start = own(score), score.owners(x), 0
    while start < len(x):
        size = score.engine.rows
        stop = min(start + size, len(x))
        rows, padded = pad(x[start:stop], owners[start:stop], size)
        try:
            with torch.inference_mode(False), torch.enable_grad(), numerics(score.engine.precision, x.is_cuda):
                seen = _seen(bare, rows, padded, layers, gradients)
            with torch.set_grad_enabled(score.graph):
                made = make(seen)
        except torch.OutOfMemoryError as error:
            score.engine.halve_rows(size, error)
            continue
        for gradient in seen.gradients:
            score.engine.check_overflow(gradient)
        found.append(tuple(part[: stop - start] for part in made))
        start = stop
    return tuple(torch.cat(parts) for parts in zip(*found, strict=True))


def own(score: ClassScore) -> ClassScore:
    """The same score through the model itself; a reduced precision is then autocast's."""
    was = score.engine
    engine = Engine(checks_layers.module(was.forward, "the method"), was.precision, rows=was.rows)
    engine.channels_last, engine.auto = was.channels_last, HALF.get(was.precision)
    return replace(score, engine=engine)


@contextmanager
def hooked(modules: Mapping[str, nn.Module], hook: Callable[[str, nn.Module, Any, Any], Any]) -> Iterator[None]:
    """Calls `hook(name, module, first argument, output)` after each module; what it returns is handed on."""

    handles = []
    try:
        for name, module in modules.items():
            handles.append(module.register_forward_hook(partial(_call, hook, name), with_kwargs=True))
        yield
    finally:
        for handle in handles:
            handle.remove()


def _call(hook: Any, name: str, module: nn.Module, given: Any, named: dict[str, Any], output: Any) -> Any:
    return hook(name, module, next(iter((*given, *named.values())), None), output)


def _seen(
    score: ClassScore, rows: Images, owners: inputs.Owners, layers: Mapping[str, nn.Module], gradients: bool
) -> Seen:
    kept: dict[str, tuple[Tensor, Tensor]] = {}

    def keep(name: str, module: nn.Module, argument: Any, output: Any) -> Any:
        first = output[0] if isinstance(output, tuple | list) and output else output
        if not isinstance(first, Tensor):
            checks_layers.tensor_of(name, output)
        if gradients and not score.graph and not first.requires_grad:
            first = (
                first.detach().requires_grad_()
            )  # the graph begins here: what lies before is never gone back through
        # what comes after may write into what it is handed: that is a copy, and what went in may be written to later
        whole = argument.clone() if isinstance(argument, Tensor) and isinstance(module, nn.Conv2d) else first
        kept[name] = whole, first
        if isinstance(output, Tensor):
            return first.clone()
        parts = [first.clone(), *output[1:]]
        return type(output)(*parts) if hasattr(output, "_fields") else type(output)(parts)

    if not gradients and not score.graph:
        with torch.no_grad(), hooked(layers, keep):
            value = _values(score, rows, owners)
    else:
        if score.graph and not rows.requires_grad:
            rows = rows.detach().clone().requires_grad_()
        with hooked(layers, keep):
            value = score.score_rows(rows, owners)
    for name in layers:
        checks_layers.called(name, name in kept)
    outputs = [kept[name][1] for name in layers]
    grads = _gradients(score, value, dict(zip(layers, outputs, strict=True))) if gradients else []
    inputs = [kept[name][0] for name in layers]
    end: Callable[[Tensor], Tensor] = (
        (lambda t: t.to(rows.dtype)) if score.graph else (lambda t: t.detach().to(rows.dtype))
    )
    return Seen(end(value), owners, *(tuple(map(end, group)) for group in (inputs, outputs, grads)))


def _values(score: ClassScore, rows: Images, owners: inputs.Owners) -> PerImage:
    """As `of_rows`, without a gradient."""
    output = score.run(rows, owners)
    given.target_fits(score.target, tuple(output.shape), score.kind)
    value = inputs.select_target(KINDS[score.kind](output.to(rows.dtype)), inputs.take_target(score.target, owners))
    given.finite_score(value)
    return value


def _gradients(score: ClassScore, value: PerImage, outputs: Mapping[str, Tensor]) -> list[Tensor]:
    for name, output in outputs.items():
        checks_layers.reaches(name, output.requires_grad)
    lift = 1.0 if score.graph else score.engine.scale
    every = list(outputs.values())
    found = torch.autograd.grad(value.sum() * lift, every, allow_unused=True, create_graph=score.graph)
    for name, gradient in zip(outputs, found, strict=True):
        checks_layers.reaches(name, gradient is not None)
    return [gradient / lift if lift != 1 else gradient for gradient in found]
