"""What the methods that read layers of a model share; holds no formula of any of them."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from difflib import get_close_matches

from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional as F

from moreaugrad.methods.base import Call, Method
from moreaugrad.methods.cam.layer_capture import require_module
from moreaugrad.methods.cam.layer_search import Choice, Size
from moreaugrad.methods.chunks import cache_of
from moreaugrad.model.score import ClassScore
from moreaugrad.types import Images

log = logging.getLogger("moreaugrad")
_WRAPPERS = ("network.", "module.")  # a classifier's own network; a model spread over several GPUs


@dataclass(frozen=True, eq=False)
class LayerMethod(Method):
    """A map (N, 1, H, W) that is read at layers of the model itself.

    `compile` is accepted and ignored: compiled networks do not have the layers of the model.
    """

    once = True
    differentiable = True

    def __post_init__(self) -> None:
        super().__post_init__()
        require_module(self.forward_func, self.get_name())
        object.__setattr__(self, "compile", False)

    @property
    def model(self) -> nn.Module:
        """The module whose layers are read."""
        return require_module(self.forward_func, self.get_name())

    def search_layers(self, call: Call, search: Callable[[ClassScore, Images], Choice]) -> tuple[str, ...]:
        """The layers that `search` chooses; searched again where the modules of the model have changed."""
        key, known = (call.x.shape[1:], tuple(map(id, self.model.modules()))), cache_of(self)
        names, certain = known.get(key) or search(call.score, call.x)
        if certain:
            known[key] = names, certain
        return tuple(names)

    def named_layers(self, names: Sequence[str]) -> dict[str, nn.Module]:
        """The modules of these names; logs them, because the user may not have chosen them."""
        log.info("%s reads %s", self.get_name(), " and ".join(names))
        return {name: self.model.get_submodule(name) for name in names}

    def image_size(self, call: Call) -> Size:
        """Height and width of the images; refuses inputs that are not images."""
        shape = tuple(call.x.shape)
        if len(shape) != 4:
            raise ValueError(
                f"{self.get_name()} needs one batch of images (N, C, H, W), got inputs of shape {shape}; tuples of "
                "inputs and inputs without pixels are explained by methods that need no layer, such as `gradient`"
            )
        return int(shape[2]), int(shape[3])


@dataclass(frozen=True, eq=False)
class SingleLayerMethod(LayerMethod):
    """A map that is read at one layer."""

    layer: str | nn.Module | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if isinstance(self.layer, nn.Module):  # as its name, which can be recorded and sent elsewhere
            object.__setattr__(self, "layer", layer_name(self.model, self.layer))
        self.given_layer()

    def given_layer(self) -> str | None:
        """The full name of the layer that the user asked for."""
        return None if self.layer is None else layer_name(self.model, self.layer)


def layer_name(model: nn.Module, layer: object) -> str:
    """The full name of a layer: of a module, or of a name that may leave out the wrapper of the network."""
    every = model.named_modules(remove_duplicate=False)
    modules: dict[str, nn.Module] = {name: module for name, module in every if name}
    if isinstance(layer, nn.Module):
        for name, module in modules.items():
            if module is layer:
                return name
        raise ValueError(
            f"layer must be a module of the model, got a {type(layer).__name__} that is not part of it; "
            "model.named_modules() lists them"
        )
    if not isinstance(layer, str):
        raise TypeError(f"a layer must be the name of a module, such as 'layer4', or the module, got {layer!r}")
    for full in (layer, *(prefix + layer for prefix in _WRAPPERS)):
        if full in modules:
            return full
    close = get_close_matches(layer, modules, n=3, cutoff=0.5)
    hint = f"did you mean {' or '.join(map(repr, close))}?" if close else "model.named_modules() lists them"
    raise ValueError(f"layer must be the name of a module of the model, got {layer!r}; {hint}")


def enlarge(coarse: Float[Tensor, "n 1 h w"], size: Size) -> Float[Tensor, "n 1 H W"]:
    """A map at the size of the images."""
    return F.interpolate(coarse, size=size, mode="bilinear", align_corners=False)
