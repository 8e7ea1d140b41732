"""Sanity checks (Adebayo 2018): a map that survives random weights does not explain the model.

Weights are drawn on a deep copy, from normal distributions of the trained ones' mean and spread, layer by layer.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor, nn

from moreaugrad import validate
from moreaugrad.metrics import METRICS
from moreaugrad.metrics import checks as map_checks
from moreaugrad.types import PerImage

Factory: TypeAlias = Callable[[nn.Module], Callable[[Tensor], Tensor]]
Compare: TypeAlias = str | Callable[[Tensor, Tensor], Tensor]
Layer: TypeAlias = tuple[str, list[nn.Parameter]]
MODES = ("cascading", "independent")


@dataclass(frozen=True, eq=False)
class Randomisation:
    """How similar a map stays while the layers of its model are made random."""

    layers: tuple[str, ...]  # from the output to the input
    similarity: Float[Tensor, "n layers"]


def model_randomisation(
    factory: Factory,
    model: nn.Module,
    x: Tensor,
    *,
    mode: str = "cascading",
    metric: Compare = "spearman",
    seed: int = 0,
) -> Randomisation:
    """Similarity of I_model(x) to I_random(x) for each layer, from the output to the input; low is good.

    `factory` makes an explainer (x -> maps) of a model, and must hold on to its targets. Cascading: that layer
    and all nearer to the output are random; independent: that layer alone. `metric` is any of those for pairs.
    """
    compare = _compare(metric)
    x, twin = _prepared(factory, model, x, mode, seed)
    before = _maps(factory, twin, x, None)
    layers = randomisable(twin, x)
    map_checks.parametrised(layers)
    found = []
    for number, (_, parameters) in enumerate(layers):
        kept = [each.detach().clone() for each in parameters]
        _draw(parameters, seed, number)
        found.append(compare(before, _maps(factory, twin, x, tuple(before.shape))))
        if mode == "independent":
            _put(parameters, kept)
    return Randomisation(tuple(name for name, _ in layers), torch.stack(found, 1))


def sanity_check(
    factory: Factory, model: nn.Module, x: Tensor, *, metric: Compare = "spearman", seed: int = 0
) -> PerImage:
    """Similarity of the map to that of the model with all layers random: the end of the cascade. Low is good."""
    compare = _compare(metric)
    x, twin = _prepared(factory, model, x, MODES[0], seed)
    before = _maps(factory, twin, x, None)
    layers = randomisable(twin, x)
    map_checks.parametrised(layers)
    for number, (_, parameters) in enumerate(layers):
        _draw(parameters, seed, number)
    return compare(before, _maps(factory, twin, x, tuple(before.shape)))


def randomisable(model: nn.Module, x: Tensor) -> list[Layer]:
    """Modules with parameters of their own, the last to run first; what is shared belongs to the last that uses it.

    One that is not called by itself (the projection inside an attention) runs when what holds it does.
    """
    started: dict[str, int] = {}
    names = {module: name for name, module in model.named_modules()}

    def note(module: nn.Module, _: object) -> None:
        started.setdefault(names[module], len(started))

    hooks = [module.register_forward_pre_hook(note) for module in names]
    try:
        with torch.no_grad():
            model(x[:1].clone())
    finally:
        for hook in hooks:
            hook.remove()
    order = {name: (_start(name, started), index) for index, name in enumerate(names.values())}
    return list(_owned(sorted(names.items(), key=lambda item: order[item[1]], reverse=True)))


def _owned(modules: list[tuple[nn.Module, str]]) -> Iterator[Layer]:
    seen: set[int] = set()
    for module, name in modules:
        own = [each for each in module.parameters(recurse=False) if id(each) not in seen and each.is_floating_point()]
        seen.update(map(id, own))
        if own:
            yield name or type(module).__name__, own


def _start(name: str, started: dict[str, int]) -> int:
    while name and name not in started:
        name = name.rpartition(".")[0]
    return started.get(name, -1)


def _prepared(factory: Any, model: Any, x: Any, mode: str, seed: int) -> tuple[Tensor, nn.Module]:
    map_checks.function("factory", factory, "a model", "an explainer: a function of a batch that returns maps")
    map_checks.module(model)
    validate.evaluating(model)
    (x,) = validate.inputs(x)
    validate.one_of("mode", mode, dict.fromkeys(MODES))
    validate.at_least("seed", seed, 0)
    return x.detach(), copy.deepcopy(model)


def _maps(factory: Factory, model: nn.Module, x: Tensor, shape: tuple[int, ...] | None) -> Tensor:
    explainer = factory(model)
    map_checks.function("what factory returns", explainer, "a batch", "maps")
    return map_checks.explained(explainer(x.clone()), shape, len(x)).detach().clone()


def _compare(metric: Compare) -> Callable[[Tensor, Tensor], Tensor]:
    if isinstance(metric, str):
        map_checks.pair_metric(metric, METRICS[metric].needs)
        found: Callable[[Tensor, Tensor], Tensor] = METRICS[metric].load()
        return found
    map_checks.function("metric", metric, "two batches of maps", "one number per image")
    return metric


def _draw(parameters: list[nn.Parameter], seed: int, layer: int) -> None:
    """Constant parameters stay: there is no spread to draw from, and a new layer has the same constants."""
    state = int(np.random.SeedSequence([seed, layer]).generate_state(1, np.uint64)[0] >> np.uint64(1))
    generator = torch.Generator().manual_seed(state)
    drawn = []
    for each in parameters:
        values = each.detach().float()
        noise = torch.randn(each.shape, generator=generator).to(values.device)
        drawn.append(values.mean() + values.std(correction=0) * noise)
    _put(parameters, drawn)


def _put(parameters: list[nn.Parameter], values: list[Tensor]) -> None:
    with torch.no_grad():
        for parameter, value in zip(parameters, values, strict=True):
            parameter.copy_(value)
