"""NormGrad: how much each position adds to the gradient of a layer's weights, real or virtual."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import torch
from jaxtyping import Float
from torch import Tensor, nn

from moreaugrad import validate
from moreaugrad.batch import spread
from moreaugrad.methods.call import Call
from moreaugrad.methods.cam.layer_capture import LayerRecord, capture_layers
from moreaugrad.methods.cam.layer_search import Planes, find_last_convolution, find_last_layer, to_planes
from moreaugrad.methods.cam.layers import LayerMethod, enlarge, layer_name
from moreaugrad.methods.normgrad.receptive_field import POINT, SQUARE, aggregate, aggregate_products, window_of
from moreaugrad.types import Outcome

Coarse = Float[Tensor, "n 1 h w"]
VARIANTS = ("conv1x1", "conv3x3", "scaling", "selective", "bias", "proper")
AGGREGATIONS = ("norm", "sum", "max", "positive norm")
LOSSES = ("logit", "ce")


@dataclass(frozen=True, eq=False)
class NormGrad(LayerMethod):
    """NormGrad, `|a_u| |g_u|` with a the output of a layer and g the score's gradient there (Rebuffi et al., 2020).

    This is the norm of a_u g_u^T, what position u adds to the gradient of the weights of an identity 1x1 convolution
    placed after the layer. Use it to combine several layers: their maps, each stretched to [0, 1], are multiplied.
    Directly before an average and a linear layer g_u is the same at all positions and the map says nothing about the
    class: name an earlier layer.

    Args:
        forward_func: a `torch.nn.Module` in evaluation mode.
        layers: one layer or a list, as modules or their names. None: as for `GradCam`; for "proper" the last
            convolution.
        variant: the virtual layer: "conv1x1", "conv3x3", "scaling" (a * g), "selective" (max(0, a * g)) or "bias"
            (g); or "proper", the weights of the convolution itself.
        aggregation: how the entries of a position become one number: "norm", "sum", "max" or "positive norm".
        loss: "logit", or "ce" for log-probabilities; what raises the score is positive.

    Example:
        >>> mg.NormGrad(net, ["0", "1"]).attribute(x, target=3).shape
        torch.Size([2, 1, 16, 16])
    """

    layers: str | nn.Module | Sequence[str | nn.Module] | None = None
    variant: str = "conv1x1"
    aggregation: str = "norm"
    loss: str = field(default="logit", kw_only=True)

    def __post_init__(self) -> None:
        super().__post_init__()
        validate.one_of("variant", self.variant, dict.fromkeys(VARIANTS))
        validate.one_of("aggregation", self.aggregation, dict.fromkeys(AGGREGATIONS))
        validate.one_of("loss", self.loss, dict.fromkeys(LOSSES))
        if self.loss == "ce":  # minus the cross entropy is the log-probability
            if self.score == "prob":
                raise ValueError(
                    "loss='ce' is minus the log-probability, got score='prob' with it; leave one of them out"
                )
            object.__setattr__(self, "score", "logprob")
        names = self.given_layers()
        self._require_convolutions(names)
        given = [self.layers] if isinstance(self.layers, nn.Module) else self.layers or ()
        if any(isinstance(each, nn.Module) for each in given):
            object.__setattr__(self, "layers", names)  # modules as their names, which can be recorded

    def given_layers(self) -> tuple[str, ...]:
        """The full names of the layers that the user asked for."""
        if self.layers is None:
            return ()
        given = [self.layers] if isinstance(self.layers, str | nn.Module) else self.layers
        if not isinstance(given, Sequence) or not given:
            raise TypeError(f"layers must be the name of a module or a list of such names, got {self.layers!r}")
        names = tuple(layer_name(self.model, each) for each in given)
        if len(set(names)) < len(names):
            raise ValueError(f"layers must name each module once, got {list(given)}")
        return names

    def compute(self, call: Call) -> Outcome:
        size = self.image_size(call)
        search = find_last_convolution if self.variant == "proper" else find_last_layer
        names = self.given_layers() or self.search_layers(call, search)
        self._require_convolutions(names)
        modules = self.named_layers(names)

        def make(record: LayerRecord) -> tuple[Tensor, ...]:
            parts = zip(modules.items(), record.inputs, record.outputs, record.gradients, strict=True)
            return tuple(
                self._layer_map(layer, given, to_planes(name, output, size), to_planes(name, gradient, size))
                for (name, layer), given, output, gradient in parts
            )

        coarse = capture_layers(call.score, call.x, modules, make)
        call.watch(1, 1, {})
        if len(coarse) == 1:
            return Outcome(enlarge(coarse[0], size), gradients=call.each(1), coarse=coarse[0])
        product = torch.stack([stretch(enlarge(part, size)) for part in coarse]).prod(0)
        return Outcome(product, gradients=call.each(1))

    def _layer_map(self, layer: nn.Module, given: Tensor, a: Planes, g: Planes) -> Coarse:
        """What each position adds to the gradient of the weights, aggregated to one number."""
        peak = g.detach().abs().flatten(1).amax(1)
        unit = spread(torch.where(peak > 0, peak, 1), g)  # squares of small gradients would vanish in float32
        g = g / unit
        if self.variant == "proper":
            assert isinstance(layer, nn.Conv2d)
            return aggregate_products(given, g, window_of(layer, given, g), self.aggregation) * unit
        if self.variant in ("conv1x1", "conv3x3"):
            window = POINT if self.variant == "conv1x1" else SQUARE
            return aggregate_products(a, g, window, self.aggregation) * unit
        values = g if self.variant == "bias" else a * g
        return aggregate(values.relu() if self.variant == "selective" else values, self.aggregation) * unit

    def _require_convolutions(self, names: Sequence[str]) -> None:
        for name in names if self.variant == "proper" else ():
            if not isinstance(layer := self.model.get_submodule(name), nn.Conv2d):
                raise TypeError(
                    f"variant='proper' needs a Conv2d, got {type(layer).__name__} at {name!r}; name a convolution"
                )


def stretch(maps: Float[Tensor, "n 1 h w"]) -> Float[Tensor, "n 1 h w"]:
    """Each map scaled to [0, 1]. A constant map, up to rounding, becomes 1, which leaves a product unchanged; a zero
    map stays 0."""
    low, high = (spread(end, maps) for end in (maps.flatten(1).amin(1), maps.flatten(1).amax(1)))
    size = torch.maximum(low.abs(), high.abs())
    even = high - low <= 1e-5 * size
    return torch.where(even, (size > 0).to(maps.dtype), (maps - low) / torch.where(even, 1, high - low))
