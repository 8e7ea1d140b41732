"""Sanity checks (Adebayo et al., 2018): a map that survives random weights does not explain the model.

Weights are drawn on a deep copy, layer by layer, from normal distributions with the mean and spread of the trained.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeAlias

import torch
from jaxtyping import Float
from torch import Tensor, nn

from moreaugrad import validate
from moreaugrad.metrics import METRICS
from moreaugrad.metrics.maps import require_function
from moreaugrad.metrics.sensitivity import run_explainer, seeded_generator
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

    Example:
        >>> mg.Randomisation(("4", "0"), torch.tensor([[0.3, 0.1]])).similarity[:, -1]
        tensor([0.1000])
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
    validate.one_of("mode", mode, dict.fromkeys(MODES))
    return _randomise_layers(factory, model, x, metric, seed, mode)


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
    return _randomise_layers(factory, model, x, metric, seed, "at once").similarity[:, 0]


def _randomise_layers(factory: Factory, model: Any, x: Any, metric: Compare, seed: int, mode: str) -> Randomisation:
    """The similarity after each layer; in the mode "at once" only after the last."""
    compare = _read_metric(metric)
    require_function("factory", factory, "a model", "an explainer: a function of a batch that returns maps")
    if not isinstance(model, nn.Module):
        raise TypeError(
            f"model must be a torch.nn.Module, whose weights can be made random in a copy, got {type(model).__name__}"
        )
    validate.evaluating(model)
    validate.one_input(x)
    validate.at_least("seed", seed, 0)
    twin = copy.deepcopy(model)
    before, layers, found = _explain(factory, twin, x, None), randomisable(twin, x), []
    for number, (_, parameters) in enumerate(layers):
        kept = [each.detach().clone() for each in parameters]
        _set(parameters, _draw(parameters, seed, number))
        if mode != "at once" or number == len(layers) - 1:
            found.append(compare(before, _explain(factory, twin, x, tuple(before.shape))))
        if mode == "independent":
            _set(parameters, kept)
    return Randomisation(tuple(name for name, _ in layers), torch.stack(found, 1))


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
    layers: list[Layer] = []
    known: set[int] = set()
    for module, name in sorted(names.items(), key=lambda item: order[item[1]], reverse=True):
        own = [each for each in module.parameters(recurse=False) if id(each) not in known and each.is_floating_point()]
        known.update(map(id, own))
        if own:
            layers.append((name or type(module).__name__, own))
    if not layers:
        raise ValueError("model must have parameters to be made random, got none; quantised weights cannot be drawn")
    return layers


def _start(name: str, started: dict[str, int]) -> int:
    while name and name not in started:
        name = name.rpartition(".")[0]
    return started.get(name, -1)


def _explain(factory: Factory, model: nn.Module, x: Tensor, shape: tuple[int, ...] | None) -> Tensor:
    explainer = factory(model)
    require_function("what factory returns", explainer, "a batch", "maps")
    return run_explainer(explainer, x.detach(), shape).detach().clone()


def _read_metric(metric: Compare) -> Callable[[Tensor, Tensor], Tensor]:
    if not isinstance(metric, str):
        require_function("metric", metric, "two batches of maps", "one number per image")
        return partial(_compare_by, metric)
    if (needs := METRICS[metric].needs) != "pair":
        raise ValueError(
            f"metric must compare two maps, got {metric!r}, which needs {needs}; take 'spearman' or 'ssim'"
        )
    found: Callable[[Tensor, Tensor], Tensor] = METRICS[metric].load()
    return found


def _compare_by(metric: Callable[[Tensor, Tensor], Any], before: Tensor, after: Tensor) -> Tensor:
    found = metric(before, after)
    if not isinstance(found, Tensor) or tuple(found.shape) != (len(before),):
        what = f"shape {tuple(found.shape)}" if isinstance(found, Tensor) else type(found).__name__
        raise TypeError(f"metric must return a tensor with one number per image, ({len(before)},), got {what}")
    return found


def _draw(parameters: list[nn.Parameter], seed: int, layer: int) -> list[Tensor]:
    """Constant parameters stay: they have no spread to draw from, and a new layer has the same constants."""
    generator = seeded_generator(seed, layer)
    values = [each.detach().float() for each in parameters]
    noise = [torch.randn(each.shape, generator=generator).to(each.device) for each in values]
    return [each.mean() + each.std(correction=0) * z for each, z in zip(values, noise, strict=True)]


def _set(parameters: list[nn.Parameter], values: list[Tensor]) -> None:
    with torch.no_grad():
        for parameter, value in zip(parameters, values, strict=True):
            parameter.copy_(value)
