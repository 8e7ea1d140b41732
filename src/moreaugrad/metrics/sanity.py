"""Sanity checks (Adebayo et al., 2018): a map that survives random weights does not explain the model.

Weights are drawn on a deep copy, layer by layer, from normal distributions with the mean and spread of the trained.
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
from moreaugrad.metrics.maps import require_function
from moreaugrad.metrics.sensitivity import run_explainer
from moreaugrad.types import PerImage

Factory: TypeAlias = Callable[[nn.Module], Callable[[Tensor], Tensor]]
Compare: TypeAlias = str | Callable[[Tensor, Tensor], Tensor]
Layer: TypeAlias = tuple[str, list[nn.Parameter]]
MODES = ("cascading", "independent")


@dataclass(frozen=True, eq=False)
class Randomisation:
    """How similar a map stays while the layers of its model are made random.

    Attributes:
        layers: names of the layers, from the output to the input.
        similarity: one number per image and layer (N, layers).
    """

    layers: tuple[str, ...]
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
    """Similarity of the map to that of the model with random layers, layer by layer from the output to the input.

    Args:
        factory: makes an explainer (images -> maps) of a model; it must fix its targets.
        model: the model, which stays as it is: weights are drawn on a copy.
        x: images (N, ...).
        mode: "cascading": a layer and all closer to the output are random; "independent": that layer alone.
        metric: name of a metric that compares two maps, or a function that does.
        seed: of the weights.

    Returns:
        The names of the layers, and the similarity for each image and layer; low is good.

    Example:
        >>> explainer = lambda model: lambda images: mg.Gradient(model).attribute(images, target=3)
        >>> mg.model_randomisation(explainer, net, x).layers
        ('4', '0')
    """
    compare, twin = _read_metric(metric), _copy_model(factory, model, x, mode, seed)
    before, layers = _explain(factory, twin, x, None), randomisable(twin, x)
    found = []
    for number, (_, parameters) in enumerate(layers):
        kept = [each.detach().clone() for each in parameters]
        _randomise(parameters, seed, number)
        found.append(compare(before, _explain(factory, twin, x, tuple(before.shape))))
        if mode == "independent":
            _set(parameters, kept)
    return Randomisation(tuple(name for name, _ in layers), torch.stack(found, 1))


def sanity_check(
    factory: Factory, model: nn.Module, x: Tensor, *, metric: Compare = "spearman", seed: int = 0
) -> PerImage:
    """Similarity of the map to that of the model with all layers random: the end of `model_randomisation`.

    Args:
        factory: makes an explainer (images -> maps) of a model; it must fix its targets.
        model: the model, which stays as it is: weights are drawn on a copy.
        x: images (N, ...).
        metric: name of a metric that compares two maps, or a function that does.
        seed: of the weights.

    Returns:
        One number per image; low is good.

    Example:
        >>> explainer = lambda model: lambda images: mg.Gradient(model).attribute(images, target=3)
        >>> mg.sanity_check(explainer, net, x, metric="cosine").shape
        torch.Size([2])
    """
    compare, twin = _read_metric(metric), _copy_model(factory, model, x, MODES[0], seed)
    before = _explain(factory, twin, x, None)
    for number, (_, parameters) in enumerate(randomisable(twin, x)):
        _randomise(parameters, seed, number)
    return compare(before, _explain(factory, twin, x, tuple(before.shape)))


def randomisable(model: nn.Module, x: Tensor) -> list[Layer]:
    """Modules with parameters of their own, the last to run first; shared ones belong to the last that uses them.

    A module that is not called itself (the projection inside an attention) runs with the one that holds it.
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
    layers = list(_owned(sorted(names.items(), key=lambda item: order[item[1]], reverse=True)))
    if not layers:
        raise ValueError("model must have parameters to be made random, got none; quantised weights cannot be drawn")
    return layers


def _owned(modules: list[tuple[nn.Module, str]]) -> Iterator[Layer]:
    known: set[int] = set()
    for module, name in modules:
        own = [each for each in module.parameters(recurse=False) if id(each) not in known and each.is_floating_point()]
        known.update(map(id, own))
        if own:
            yield name or type(module).__name__, own


def _start(name: str, started: dict[str, int]) -> int:
    while name and name not in started:
        name = name.rpartition(".")[0]
    return started.get(name, -1)


def _copy_model(factory: Any, model: Any, x: Any, mode: str, seed: int) -> nn.Module:
    """A copy whose weights can be drawn, once all arguments were checked."""
    require_function("factory", factory, "a model", "an explainer: a function of a batch that returns maps")
    if not isinstance(model, nn.Module):
        raise TypeError(
            f"model must be a torch.nn.Module, whose weights can be made random in a copy, got {type(model).__name__}"
        )
    validate.evaluating(model)
    validate.inputs(x)
    validate.one_of("mode", mode, dict.fromkeys(MODES))
    validate.at_least("seed", seed, 0)
    return copy.deepcopy(model)


def _explain(factory: Factory, model: nn.Module, x: Tensor, shape: tuple[int, ...] | None) -> Tensor:
    explainer = factory(model)
    require_function("what factory returns", explainer, "a batch", "maps")
    return run_explainer(explainer, x.detach(), shape).detach().clone()


def _read_metric(metric: Compare) -> Callable[[Tensor, Tensor], Tensor]:
    if not isinstance(metric, str):
        require_function("metric", metric, "two batches of maps", "one number per image")
        return metric
    if (needs := METRICS[metric].needs) != "pair":
        raise ValueError(
            f"metric must compare two maps, got {metric!r}, which needs {needs}; take 'spearman' or 'ssim'"
        )
    found: Callable[[Tensor, Tensor], Tensor] = METRICS[metric].load()
    return found


def _randomise(parameters: list[nn.Parameter], seed: int, layer: int) -> None:
    """Constant parameters stay: they have no spread to draw from, and a new layer has the same constants."""
    state = int(np.random.SeedSequence([seed, layer]).generate_state(1, np.uint64)[0] >> np.uint64(1))
    generator = torch.Generator().manual_seed(state)
    drawn = []
    for each in parameters:
        values = each.detach().float()
        noise = torch.randn(each.shape, generator=generator).to(values.device)
        drawn.append(values.mean() + values.std(correction=0) * noise)
    _set(parameters, drawn)


def _set(parameters: list[nn.Parameter], values: list[Tensor]) -> None:
    with torch.no_grad():
        for parameter, value in zip(parameters, values, strict=True):
            parameter.copy_(value)
