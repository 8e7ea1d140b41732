"""NormGrad: how much each position adds to the gradient of a layer's weights, real or virtual."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import torch
from jaxtyping import Float
from torch import Tensor, nn

from moreaugrad import validate as common
from moreaugrad.batch import spread
from moreaugrad.methods import checks_layers
from moreaugrad.methods.base import Call
from moreaugrad.methods.layer_capture import Seen, read
from moreaugrad.methods.layer_search import Planes, last_convolution, last_layer, planes
from moreaugrad.methods.layers import LayerMethod, enlarged
from moreaugrad.methods.normgrad.receptive_field import POINT, SQUARE, direct, of_convolution, outer
from moreaugrad.results import Explanation

Coarse = Float[Tensor, "n 1 h w"]
VARIANTS = ("conv1x1", "conv3x3", "scaling", "selective", "bias", "proper")
AGGREGATIONS = ("norm", "sum", "max", "positive norm")
LOSSES = ("logit", "ce")


@dataclass(frozen=True, eq=False)
class NormGrad(LayerMethod):
    """|a_u| |g_u|, a the output of a layer and g the score's gradient there: the size of a_u g_u^T, which is what
    position u adds to the gradient of the weights of an identity 1x1 convolution put behind the layer.

    Other variants put another identity there, or take the layer's own weights (`proper`). Several layers: their maps,
    each stretched to [0, 1], multiplied. Right before an average and a linear layer g_u is the same everywhere, and
    the map knows nothing of the class: name an earlier layer.
    """

    layers: str | Sequence[str] | None = None  # names of modules; None: as of Grad-CAM, `proper`: the last convolution
    variant: str = "conv1x1"  # or conv3x3, scaling a*g, selective max(0, a*g), bias g, proper
    aggregation: str = "norm"  # of what a position adds, over all weights; or sum, max, positive norm
    loss: str = field(default="logit", kw_only=True)  # or ce: log-probabilities; what raises the score is positive

    def __post_init__(self) -> None:
        LayerMethod.__post_init__(self)
        common.one_of("variant", self.variant, dict.fromkeys(VARIANTS))
        common.one_of("aggregation", self.aggregation, dict.fromkeys(AGGREGATIONS))
        common.one_of("loss", self.loss, dict.fromkeys(LOSSES))
        if self.loss == "ce":  # minus the cross entropy is the log-probability
            checks_layers.one_loss(self.score)
            object.__setattr__(self, "score", "logprob")
        self._checked(self.told())

    def told(self) -> tuple[str, ...]:
        """The full names of the layers that were asked for."""
        return () if self.layers is None else checks_layers.layers(self.model, self.layers)

    def compute(self, call: Call) -> Explanation:
        size = self.size(call)
        find = last_convolution if self.variant == "proper" else last_layer
        modules = self.modules(self._checked(self.told() or self.found(call, find)))

        def make(seen: Seen) -> tuple[Tensor, ...]:
            whole = zip(modules.items(), seen.inputs, seen.outputs, seen.gradients, strict=True)
            return tuple(
                self._map(layer, given, planes(name, output, size), planes(name, gradient, size))
                for (name, layer), given, output, gradient in whole
            )

        coarse = read(call.score, call.x, modules, make)
        call.watch(1, 1, {})
        if len(coarse) == 1:
            return Explanation(map=enlarged(coarse[0], size), gradients=call.each(1), coarse=coarse[0])
        product = torch.stack([stretched(enlarged(part, size)) for part in coarse]).prod(0)
        return Explanation(map=product, gradients=call.each(1))

    def _map(self, layer: nn.Module, given: Tensor, a: Planes, g: Planes) -> Coarse:
        """Phase one, what each position adds, and phase two, its size, in one."""
        peak = g.detach().abs().flatten(1).amax(1)
        unit = spread(torch.where(peak > 0, peak, 1), g)  # squares of small gradients would vanish in float32
        return self._unscaled(layer, given, a, g / unit) * unit

    def _unscaled(self, layer: nn.Module, given: Tensor, a: Planes, g: Planes) -> Coarse:
        if self.variant == "proper":
            assert isinstance(layer, nn.Conv2d)
            return outer(given, g, of_convolution(layer, given, g), self.aggregation)
        if self.variant in ("conv1x1", "conv3x3"):
            return outer(a, g, POINT if self.variant == "conv1x1" else SQUARE, self.aggregation)
        values = g if self.variant == "bias" else a * g
        return direct(values.relu() if self.variant == "selective" else values, self.aggregation)

    def _checked(self, names: tuple[str, ...]) -> tuple[str, ...]:
        """Names of layers that the variant can use."""
        if self.variant == "proper":
            for name in names:
                checks_layers.convolution(name, self.model.get_submodule(name))
        return names


def stretched(maps: Float[Tensor, "n 1 h w"]) -> Float[Tensor, "n 1 h w"]:
    """Each map from 0 to 1. One that is the same everywhere, up to rounding, tells no place from another: it is 1,
    so that it leaves a product as it is, and 0 only where it is 0."""
    low, high = (spread(end, maps) for end in (maps.flatten(1).amin(1), maps.flatten(1).amax(1)))
    size = torch.maximum(low.abs(), high.abs())
    even = high - low <= 1e-5 * size
    return torch.where(even, (size > 0).to(maps.dtype), (maps - low) / torch.where(even, 1, high - low))
