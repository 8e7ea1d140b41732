"""Class activation maps: CAM, Grad-CAM and Grad-CAM++, sums of a layer's channels with weights of the class."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional as F

from moreaugrad.batch import total
from moreaugrad.methods import checks_layers
from moreaugrad.methods.base import Call
from moreaugrad.methods.layer_capture import Seen, read
from moreaugrad.methods.layer_search import Planes, last_layer, planes, pooled
from moreaugrad.methods.layers import OneLayer, enlarged
from moreaugrad.model import inputs
from moreaugrad.results import Explanation

PerChannel = Float[Tensor, "n k"]
Coarse = Float[Tensor, "n 1 h w"]
Weights = Callable[[Planes, Planes], PerChannel]  # of the channels, by the features and their gradient


@dataclass(frozen=True, eq=False)
class Cam(OneLayer):
    """sum_k w_k^c A_k(u), signed: what each position adds to the logit, which is the map's mean plus the bias.

    For networks that end in an average over positions and a linear layer with weights w (GAP + linear); every image
    is checked for it. One forward pass and no gradient, never in reduced precision. `layer` is by default the one
    whose mean goes into the last linear layer; there CAM is h w times Grad-CAM before its ReLU.
    """

    def __post_init__(self) -> None:
        OneLayer.__post_init__(self)
        checks_layers.logits_only(self.score)
        object.__setattr__(self, "precision", "float32")  # as the check of the logit needs it

    @property
    def second_order(self) -> bool:
        return False

    def compute(self, call: Call) -> Explanation:
        size = self.size(call)
        *layers, head = self.found(call, pooled)
        linear, told = self.model.get_submodule(head), self.told()
        assert isinstance(linear, nn.Linear)
        checks_layers.head(bool(told or layers), f"{head!r}, whose input is the mean of no layer's output")
        name = told or layers[0]

        def make(seen: Seen) -> tuple[Tensor, ...]:
            features = planes(name, seen.outputs[0], size)
            width = features.shape[1]
            checks_layers.head(
                width == linear.in_features, f"{width} channels at {name!r} for {linear.in_features} inputs"
            )
            weight = linear.weight.to(features.dtype)
            bias = weight.new_zeros(len(weight)) if linear.bias is None else linear.bias.to(weight.dtype)
            classes = torch.arange(len(weight), device=weight.device).expand(len(features), -1)
            which = inputs.select_target(classes, inputs.take_target(call.score.target, seen.owners))
            coarse = combined(weight[which], features)
            gap = (total(coarse) / coarse[0].numel() + bias[which] - seen.score).abs()
            return coarse, gap, F.linear(means(features), weight, bias).abs().amax(1)

        coarse, gap, largest = read(call.score, call.x, self.modules([name]), make, gradients=False)
        worst = float((gap / largest.clamp_min(1e-30)).detach().max())
        kind = call.packing.dtypes[0]
        near = 1e-4 if kind in (torch.float32, torch.float64) else 16 * torch.finfo(kind).eps
        checks_layers.head(
            worst <= near, f"a map at {name!r} whose mean misses the logit by {worst:.2g} of the largest"
        )
        call.watch(1, 1, {})
        return Explanation(map=enlarged(coarse, size), gradients=call.each(0), coarse=coarse)


@dataclass(frozen=True, eq=False)
class GradCam(OneLayer):
    """ReLU(sum_k a_k A_k(u)), a_k the mean over positions of the score's gradient at channel k of a layer.

    Coarse and cheap: where the layer saw what speaks for the class, by one gradient. `layer` is by default the last
    module with a spatial output (what goes into the pooling); of a transformer the last normalisation at which the
    patches still reach the score (with a class token: the one before the last attention).
    """

    relu: bool = True  # False keeps what speaks against the class

    def __post_init__(self) -> None:
        OneLayer.__post_init__(self)
        checks_layers.yes_or_no("relu", self.relu)

    def compute(self, call: Call) -> Explanation:
        return _weighted(self, call, lambda features, gradient: means(gradient), self.relu)


@dataclass(frozen=True, eq=False)
class GradCamPlusPlus(OneLayer):
    """ReLU(sum_k w_k A_k(u)), w_k = sum_u ReLU(g) / (2 + S_k g), g the gradient at (k, u), S_k the sum of A_k.

    For several objects of one class in an image: the positions of a channel are weighted, not averaged. Derived for
    heads that are piecewise linear in the layer, a heuristic for others; where features are negative the denominator
    may come near zero. `layer` is by default that of Grad-CAM.
    """

    normalise_alpha: bool = False  # divide 1 / (2 + S_k g) by its sum over the positions with g > 0

    def __post_init__(self) -> None:
        OneLayer.__post_init__(self)
        checks_layers.yes_or_no("normalise_alpha", self.normalise_alpha)

    def compute(self, call: Call) -> Explanation:
        return _weighted(self, call, self.weights, relu=True)

    def weights(self, features: Planes, gradient: Planes) -> PerChannel:
        """g^2 / (2 g^2 + S g^3) without its powers, which would vanish in float32; 0 where that is 0 / 0."""
        zero = torch.zeros_like(gradient)
        below = 2 + sums(features)[..., None, None] * gradient
        there = (gradient != 0) & (below != 0)
        alpha = torch.where(there, 1 / torch.where(there, below, 1), zero)
        if self.normalise_alpha:
            whole = sums(torch.where(gradient > 0, alpha, zero))[..., None, None]
            alpha = alpha / torch.where(whole == 0, 1, whole)
        return sums(alpha * gradient.relu())


def _weighted(method: OneLayer, call: Call, weights: Weights, relu: bool) -> Explanation:
    """A sum of channels whose weights follow from the gradient."""
    size = method.size(call)
    name = method.told() or method.found(call, last_layer)[0]

    def make(seen: Seen) -> tuple[Tensor, ...]:
        features, gradient = (planes(name, found, size) for found in (seen.outputs[0], seen.gradients[0]))
        coarse = combined(weights(features, gradient), features)
        return (coarse.relu() if relu else coarse,)

    (coarse,) = read(call.score, call.x, method.modules([name]), make)
    call.watch(1, 1, {})
    return Explanation(map=enlarged(coarse, size), gradients=call.each(1), coarse=coarse)


def combined(weights: PerChannel, features: Planes) -> Coarse:
    """The weighted sum of the channels."""
    return (weights[..., None, None] * features).sum(1, keepdim=True)


def sums(values: Planes) -> PerChannel:
    """The sum over positions of each channel, the same in any company."""
    return total(values.flatten(0, 1)).view(values.shape[:2])


def means(values: Planes) -> PerChannel:
    return sums(values) / values[0, 0].numel()
