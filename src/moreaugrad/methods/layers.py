"""What the methods that read layers of a model have in common; holds no formula of any."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional as F

from moreaugrad.methods import checks_layers
from moreaugrad.methods.base import Call, Method
from moreaugrad.methods.layer_search import Found, Size
from moreaugrad.model.score import ClassScore
from moreaugrad.types import Images

log = logging.getLogger("moreaugrad")


@dataclass(frozen=True, eq=False)
class LayerMethod(Method):
    """A map of (N, 1, H, W) that is read at layers of the model itself, by name.

    `compile` is accepted and left aside: compiled networks do not have the layers of the model.
    """

    def __post_init__(self) -> None:
        Method.__post_init__(self)
        checks_layers.module(self.forward_func, self.get_name())
        object.__setattr__(self, "compile", False)

    @property
    def once(self) -> bool:
        return True

    @property
    def differentiable(self) -> bool:
        return True

    @property
    def model(self) -> nn.Module:
        return checks_layers.module(self.forward_func, self.get_name())

    @cached_property
    def _found(self) -> dict[Any, tuple[str, ...]]:
        """Layers found in earlier calls, so that looking is paid once for each shape of the images."""
        return {}

    def found(self, call: Call, look: Callable[[ClassScore, Images], Found]) -> tuple[str, ...]:
        """What a look at the model finds; another one where its modules are others than before."""
        key = call.x.shape[1:], tuple(map(id, self.model.modules()))
        if key in self._found:
            return self._found[key]
        found = look(call.score, call.x)
        if found.sure:
            self._found[key] = found.names
        return found.names

    def modules(self, names: Sequence[str]) -> dict[str, nn.Module]:
        """The modules of these names; says which, for they may have been found and not told."""
        log.info("%s reads %s", self.get_name(), " and ".join(names))
        return {name: self.model.get_submodule(name) for name in names}

    def size(self, call: Call) -> Size:
        """Height and width of the images; refuses inputs that are none."""
        checks_layers.pictures(tuple(call.x.shape), self.get_name())
        return int(call.x.shape[2]), int(call.x.shape[3])


@dataclass(frozen=True, eq=False)
class OneLayer(LayerMethod):
    """A map that is read at one layer."""

    layer: str | None = None  # name of a module; None: found by a look at the model

    def __post_init__(self) -> None:
        LayerMethod.__post_init__(self)
        self.told()

    def told(self) -> str | None:
        """The full name of the layer that was asked for."""
        return None if self.layer is None else checks_layers.layer(self.model, self.layer)


def enlarged(coarse: Float[Tensor, "n 1 h w"], size: Size) -> Float[Tensor, "n 1 H W"]:
    """A map at the size of the images."""
    return F.interpolate(coarse, size=size, mode="bilinear", align_corners=False)
