"""The attacked side: what the model predicts, the map of a method, and the smooth copy that lends its slope."""

from __future__ import annotations

import logging
from dataclasses import dataclass, is_dataclass, replace
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from moreaugrad.attacks import checks
from moreaugrad.model.prepared import Engine, numerics
from moreaugrad.model.score import ClassScore, pad, safe_rows
from moreaugrad.model.smoothing import draw_seed
from moreaugrad.model.surgery import freeze, has_kinks, with_softplus
from moreaugrad.types import Flags, Images

log = logging.getLogger("moreaugrad")

Maps = Float[Tensor, "n *map"]  # of the shape of the images, or with one channel


@dataclass(frozen=True, eq=False)
class Victim:
    """A model, and the method whose map is attacked where there is one. Classes are those of the clean inputs."""

    model: Any
    target: Int[Tensor, "n"]  # whose map is attacked
    clean: Int[Tensor, "n"]  # what the model predicts of the clean inputs
    method: Any = None
    smooth: Any = None  # the method on the network that lends its slope
    same: bool = True  # that network computes what the model does

    def predict(self, x: Images) -> Int[Tensor, "n"]:
        return outputs(self.model, x).argmax(1)

    def kept(self, x: Images) -> Flags:
        return self.predict(x) == self.clean

    def map(self, x: Images) -> Maps:
        """The map of each image, on the model itself, without a graph."""
        found: Maps = self.method.attribute(x.detach(), target=self.target).detach()
        return found

    def map_with_graph(self, x: Images) -> Maps:
        """The map of the smooth side, which can be differentiated by x."""
        found: Maps = self.smooth.attribute(x, target=self.target, create_graph=True)
        return found


def outputs(model: Any, x: Images) -> Float[Tensor, "n k"]:
    """Logits without a gradient, in the chunks of the core."""
    engine = Engine(model)
    engine.rows = safe_rows(x)
    found = ClassScore(engine, None, len(x)).outputs(x.detach(), check_target=False)
    checks.class_scores(found)
    return found


def logits(model: Any, x: Images) -> Float[Tensor, "n k"]:
    """Logits that can be differentiated by x, in the chunks of the core."""
    engine = Engine(model)
    engine.rows = safe_rows(x)
    score, found = ClassScore(engine, None, len(x)), []
    for start in range(0, len(x), engine.rows):
        some = slice(start, start + engine.rows)
        rows, owners = pad(x[some], score.owners(x)[some], engine.rows)
        with numerics("float32", x.is_cuda):
            found.append(score.run(rows, owners, plain=True)[: len(x) - start])
    return torch.cat(found)


def settled(method: Any) -> Any:
    """The method with a seed that stays: an attack must see the same noise at every step."""
    seed = getattr(method, "seed", 0)
    return method if isinstance(seed, int) else replace(method, seed=draw_seed(seed))


def smoothed(method: Any, surrogate: Any, beta: float) -> tuple[Any, bool]:
    """The method on the network that lends its slope, and whether that network computes the same."""
    model = method.forward_func
    if isinstance(surrogate, str):
        if not method.second_order or not isinstance(model, nn.Module) or not has_kinks(model):
            return on(method, _unweighted(model)), True
        log.info("the network has kinks, so the attack takes its slope from a softplus copy (beta %g)", beta)
        try:
            surrogate = with_softplus(model, beta)
        except ValueError as error:
            raise ValueError(
                f"{error}; or give surrogate=a smooth network, or surrogate=None for a method that reads a layer"
            ) from error
    if surrogate is None or surrogate is model:
        return on(method, _unweighted(model)), True
    return on(method, _unweighted(surrogate)), False


def _unweighted(model: Any) -> Any:
    """A copy on the same memory that asks for no derivative by the weights; a model that cannot be copied itself."""
    if not isinstance(model, nn.Module) or not any(each.requires_grad for each in model.parameters()):
        return model
    try:
        return freeze(model)
    except Exception as error:  # whatever a model's own way of copying raises
        log.debug("the network cannot be copied (%s), so its weights are differentiated too", error)
        return model


def on(method: Any, model: Any) -> Any:
    """The same method for another network."""
    if model is method.forward_func:
        return method
    checks.replaceable(method, is_dataclass(method))
    return replace(method, forward_func=model)
