"""What the methods that read layers share: where a map can be read in a model, and how its outputs become planes.

The search decides by shapes and one small forward pass; knows no model by name. Leaves nothing behind in the model.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from difflib import get_close_matches
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional as F

from moreaugrad.methods.base import Call, Method
from moreaugrad.methods.cam import layer_capture as capture
from moreaugrad.methods.cam.layer_capture import LayerRecord, on_original_model, require_module
from moreaugrad.methods.chunks import cache_of
from moreaugrad.model.prepared import numerics
from moreaugrad.model.score import ClassScore, pad
from moreaugrad.types import Images

log = logging.getLogger("moreaugrad")
_WRAPPERS = ("network.", "module.")  # a classifier's own network; a model spread over several GPUs
ROWS = 2  # of a search: few, but not one, which some models squeeze away
EXTRA = 8  # tokens of no patch (class, distillation, registers) that may come before the others
PASSIVE = (nn.Dropout, nn.Identity, nn.Softmax)  # return what they got, or hold attention

Size = tuple[int, int]
Planes = Float[Tensor, "n k h w"]
# names of modules that a search chose; False: the model in its present state has no gradient to decide by
Choice = tuple[tuple[str, ...], bool]


@dataclass(frozen=True, eq=False)
class ModuleCall:
    """One call of a module in a forward pass."""

    name: str
    module: nn.Module
    shape: tuple[int, ...]
    features: Tensor | None  # of a spatial output the mean over positions; of a linear layer its input


def trace_modules(score: ClassScore, x: Images) -> tuple[list[ModuleCall], Tensor]:
    """Every call of a module that returns a tensor, in the order in which they end, and the model's output."""
    modules = {name: module for name, module in require_module(score.engine.forward).named_modules() if name}
    calls: list[ModuleCall] = []
    size = _image_size(x)
    rows = min(ROWS, score.engine.rows)

    def note(name: str, module: nn.Module, given: Any, output: Any) -> None:
        first = capture.first_tensor(output)
        if not isinstance(first, Tensor) or len(first) != rows:
            return
        features = given.detach() if isinstance(module, nn.Linear) and isinstance(given, Tensor) else None
        if first.ndim == 4 and layout(tuple(first.shape), size) is not None:
            features = to_planes(name, first.detach(), size).float().mean((2, 3))
        calls.append(ModuleCall(name, module, tuple(first.shape), features))

    some, owners = pad(x[:rows].detach(), score.owners(x)[:rows], rows)
    original = on_original_model(score)
    with torch.no_grad(), numerics("float32", x.is_cuda), capture.forward_hooks(modules, note):
        output = original.run(some, owners, plain=True)
    return calls, output


def find_last_layer(score: ClassScore, x: Images) -> Choice:
    """The last module with a spatial output: the input of the pooling of a convolutional network.

    Of a transformer: the last normalisation at which the patches still affect the score. With a class token that is
    the one before the last attention, after which only the class token counts.
    """
    calls, _ = trace_modules(score, x)
    size = _image_size(x)
    tokens = [index for index, call in enumerate(calls) if _is_token_norm(call, size)]
    pixels = [index for index, call in enumerate(calls) if _is_spatial(call, size)]
    if not tokens or (pixels and pixels[-1] > tokens[-1]):
        return _last([calls[index].name for index in pixels], "convolutions or a grid of patches")
    layers = {calls[index].name: calls[index].module for index in tokens}
    reached = _layers_with_gradient(score, x, layers)
    return ((reached or list(layers))[-1],), bool(reached)


def find_last_convolution(score: ClassScore, x: Images) -> Choice:
    """The last convolution with a spatial output."""
    calls, _ = trace_modules(score, x)
    size = _image_size(x)
    return _last([c.name for c in calls if isinstance(c.module, nn.Conv2d) and _is_spatial(c, size)], "convolutions")


def find_pooled_head(score: ClassScore, x: Images) -> Choice:
    """The last layer whose mean over positions is the input of the last linear layer, and that linear layer.

    Only the latter where there is no such layer.
    """
    calls, output = trace_modules(score, x)
    head = next((call for call in reversed(calls) if isinstance(call.module, nn.Linear)), None)
    if head is None:
        raise unfit_head("no linear layer")
    assert isinstance(head.module, nn.Linear) and head.features is not None  # noqa: PT018
    if head.features.ndim != 2:
        raise unfit_head(f"{head.name!r}, which sees {tuple(head.features.shape[1:])} of an image")
    classes = head.module.out_features
    if output.numel() != len(output) * classes:
        raise unfit_head(f"{head.name!r} with {classes} outputs for a model with output of shape {tuple(output.shape)}")
    size = _image_size(x)
    pooled = [call.name for call in calls if _is_spatial(call, size) and _near(call.features, head.features)]
    return (*pooled[-1:], head.name), True


def unfit_head(got: str) -> ValueError:
    """The error for a model without the head whose weights CAM reads."""
    return ValueError(
        "the model must end in an average over all positions and one linear layer (GAP + linear) for CAM, got "
        f"{got}; take Grad-CAM (`gradcam`), which works for any head"
    )


def layout(shape: tuple[int, ...], size: Size) -> tuple[int, int, Callable[[Tensor], Tensor]] | None:
    """Height and width of an output, and a function that brings it to (N, C, h, w); None: it has no positions.

    Channels come last where only that keeps the proportions of the image, as in Swin.
    """
    if len(shape) == 4:
        _, first, second, third = shape
        if same_proportions(first, second, size) and not same_proportions(second, third, size):
            return first, second, lambda t: t.permute(0, 3, 1, 2)
        return (second, third, lambda t: t) if second * third > 1 else None
    if len(shape) == 3 and (found := patch_grid(shape[1], size)) is not None:
        return *found, lambda t: t[:, shape[1] - found[0] * found[1] :].mT.unflatten(2, found)
    return None


def to_planes(name: str, output: Float[Tensor, "n ..."], size: Size) -> Planes:
    """The output of a layer, or its gradient, as (N, C, h, w); tokens of no patch are left out."""
    found = layout(tuple(output.shape), size)
    if found is None:
        shown = f"(N{''.join(f', {side}' for side in output.shape[1:])})"
        raise ValueError(
            f"layer {name!r} must have a spatial output of more than one cell: (N, C, h, w), (N, h, w, C) or the "
            f"tokens of a patch grid (N, T, D), got {shown}; name an earlier layer, or take larger images"
        )
    return found[2](output)


def patch_grid(tokens: int, size: Size) -> Size | None:
    """The rows and columns of patches in the image's proportions that leave fewest tokens over."""
    grids = [(high, round(high * size[1] / size[0])) for high in range(1, tokens + 1)]
    left = {grid: tokens - grid[0] * grid[1] for grid in grids if grid[0] * grid[1] > 1}
    fitting = [grid for grid, rest in left.items() if 0 <= rest <= EXTRA]
    return min(fitting, key=lambda grid: left[grid]) if fitting else None


def same_proportions(high: int, wide: int, size: Size) -> bool:
    """Whether a plane has the image's proportions, up to the rounding of its sides."""
    return high * wide > 1 and high <= size[0] and abs(wide - high * size[1] / size[0]) <= 1.5


def _last(names: list[str], what: str) -> Choice:
    if not names:
        raise ValueError(
            f"the model must have {what}, got none with more than one cell; name a layer by hand, "
            "take larger images, or a method that needs no layer, such as `gradient`"
        )
    return (names[-1],), True


def _layers_with_gradient(score: ClassScore, x: Images, layers: dict[str, nn.Module]) -> list[str]:
    """The layers at whose positions the score has a gradient."""
    size = _image_size(x)

    def largest(record: LayerRecord) -> tuple[Tensor, ...]:
        parts = [to_planes(name, g, size) for name, g in zip(layers, record.gradients, strict=True)]
        return tuple(part.abs().flatten(1).amax(1) for part in parts)

    few = on_original_model(score)
    few.engine.rows = min(ROWS, few.engine.rows)
    # of the logit: another score may be so saturated that no gradient is left
    kind = "logit" if isinstance(few.kind, str) else few.kind
    logit = replace(few, kind=kind, of=score.owners(x)[:ROWS], graph=False)
    found = capture.capture_layers(logit, x[:ROWS].detach(), layers, largest)
    return [name for name, peak in zip(layers, found, strict=True) if bool(peak.any())]


def _is_spatial(call: ModuleCall, size: Size) -> bool:
    return len(call.shape) == 4 and not isinstance(call.module, PASSIVE) and layout(call.shape, size) is not None


def _is_token_norm(call: ModuleCall, size: Size) -> bool:
    normalises = "Norm" in type(call.module).__name__
    return len(call.shape) == 3 and normalises and patch_grid(call.shape[1], size) is not None


def _near(found: Tensor | None, wanted: Tensor) -> bool:
    """Equal up to rounding; CAM compares the logits later, and more strictly."""
    if found is None or found.shape != wanted.shape:
        return False
    near = max(1e-3, 16 * torch.finfo(wanted.dtype).eps)
    return bool((found - wanted).abs().max() <= near * wanted.abs().max())


def _image_size(x: Images) -> Size:
    return int(x.shape[-2]), int(x.shape[-1])


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
