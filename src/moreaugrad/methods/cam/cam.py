"""Class activation maps: CAM, Grad-CAM and Grad-CAM++, sums of a layer's channels with weights of the class."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional as F

from moreaugrad.batch import total
from moreaugrad.methods.base import Call
from moreaugrad.methods.cam.layer_capture import LayerRecord, capture_layers
from moreaugrad.methods.cam.layers import (
    Planes,
    SingleLayerMethod,
    enlarge,
    find_last_layer,
    find_pooled_head,
    to_planes,
    unfit_head,
)
from moreaugrad.model.inputs import select_target, take_target
from moreaugrad.results import Explanation
from moreaugrad.types import Target

PerChannel = Float[Tensor, "n k"]
Coarse = Float[Tensor, "n 1 h w"]
Weights = Callable[[Planes, Planes], PerChannel]  # of the channels, from the features and their gradient


@dataclass(frozen=True, eq=False)
class Cam(SingleLayerMethod):
    """CAM, `sum_k w_k A_k(u)` (Zhou et al., 2016): what each position adds to the logit of the class, signed.

    Use it for networks that end in an average over positions and one linear layer with weights w (GAP + linear);
    every image is checked for it, and other networks are refused. The mean of the coarse map plus the bias is the
    logit. Costs one forward pass and no gradient; never runs in reduced precision.

    Args:
        forward_func: a `torch.nn.Module` in evaluation mode that returns logits (N, classes).
        layer: the layer with the features A (N, K, h, w), as a module or its name. None: the layer whose mean is the
            input of the last linear layer.

    Example:
        >>> found = mg.Cam(net).explain(x, target=3)
        >>> found.map.shape, found.coarse.shape
        (torch.Size([2, 1, 16, 16]), torch.Size([2, 1, 16, 16]))
        >>> torch.allclose(found.coarse.mean((1, 2, 3)) + net[4].bias[3], net(x)[:, 3], atol=1e-5)
        True
    """

    second_order = False

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.score != "logit":
            raise ValueError(
                f"CAM decomposes logits, so score must be 'logit', got {self.score!r}; "
                "take Grad-CAM (`gradcam`), which works for any head"
            )
        object.__setattr__(self, "precision", "float32")  # as the comparison with the logit needs it

    def compute(self, call: Call) -> Explanation:
        size = self.image_size(call)
        *pooled, head = self.search_layers(call, find_pooled_head)
        linear, given = self.model.get_submodule(head), self.given_layer()
        assert isinstance(linear, nn.Linear)
        if not (given or pooled):
            raise unfit_head(f"{head!r}, whose input is the mean of no layer's output")
        name = given or pooled[0]

        def make(record: LayerRecord) -> tuple[Tensor, ...]:
            features = to_planes(name, record.outputs[0], size)
            return _class_map(name, features, linear, take_target(call.score.target, record.owners), record.score)

        coarse, gap, largest = capture_layers(call.score, call.x, self.named_layers([name]), make, gradients=False)
        worst = float((gap / largest.clamp_min(1e-30)).detach().max())
        dtype = call.packing.dtypes[0]
        if not worst <= (1e-4 if dtype in (torch.float32, torch.float64) else 16 * torch.finfo(dtype).eps):
            raise unfit_head(f"a map at {name!r} whose mean misses the logit by {worst:.2g} of the largest")
        call.watch(1, 1, {})
        return Explanation(map=enlarge(coarse, size), gradients=call.each(0), coarse=coarse)


@dataclass(frozen=True, eq=False)
class GradCam(SingleLayerMethod):
    """Grad-CAM, `ReLU(sum_k a_k A_k(u))` with a_k the mean over positions of `df_c / dA_k` (Selvaraju et al., 2017).

    Use it for a coarse, cheap map of where a layer found evidence for the class; it costs one gradient. Takes
    Captum's `LayerGradCam` arguments, but applies the ReLU by default and returns the map at the size of the images.

    Args:
        forward_func: a `torch.nn.Module` in evaluation mode.
        layer: the layer with the features A, as a module or its name. None: the last module with a spatial output,
            which is the input of the pooling; of a transformer the last normalisation at which the patches still
            affect the score (with a class token, the one before the last attention).
        relu: whether to drop what speaks against the class; False keeps it.

    Example:
        >>> mg.GradCam(net, net[0]).attribute(x, 3).shape
        torch.Size([2, 1, 16, 16])
    """

    relu: bool = True

    def __post_init__(self) -> None:
        super().__post_init__()
        if not isinstance(self.relu, bool):
            raise TypeError(f"relu must be True or False, got {self.relu!r}")

    def compute(self, call: Call) -> Explanation:
        return _weighted_map(self, call, lambda features, gradient: _channel_means(gradient), self.relu)


@dataclass(frozen=True, eq=False)
class GradCamPlusPlus(SingleLayerMethod):
    """Grad-CAM++, `ReLU(sum_k w_k A_k(u))` with `w_k = sum_u ReLU(g) / (2 + S_k g)` (Chattopadhay et al., 2018).

    g is the gradient at channel k and position u, S_k the sum of A_k. Use it where an image shows several objects of
    the class: it weights the positions of a channel instead of averaging them. Derived for heads that are piecewise
    linear in the layer, a heuristic for others; with negative features the denominator may come close to zero.

    Args:
        forward_func: a `torch.nn.Module` in evaluation mode.
        layer: the layer with the features A, as a module or its name; None: as for `GradCam`.
        normalise_alpha: whether to divide 1 / (2 + S_k g) by its sum over the positions with g > 0.

    Example:
        >>> mg.GradCamPlusPlus(net, "1").attribute(x, target=3).shape
        torch.Size([2, 1, 16, 16])
    """

    normalise_alpha: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        if not isinstance(self.normalise_alpha, bool):
            raise TypeError(f"normalise_alpha must be True or False, got {self.normalise_alpha!r}")

    def compute(self, call: Call) -> Explanation:
        return _weighted_map(self, call, self.channel_weights, relu=True)

    def channel_weights(self, features: Planes, gradient: Planes) -> PerChannel:
        """g^2 / (2 g^2 + S g^3) without its powers, which would vanish in float32; 0 where that is 0 / 0."""
        zero = torch.zeros_like(gradient)
        below = 2 + _channel_sums(features)[..., None, None] * gradient
        defined = (gradient != 0) & (below != 0)
        alpha = torch.where(defined, 1 / torch.where(defined, below, 1), zero)
        if self.normalise_alpha:
            whole = _channel_sums(torch.where(gradient > 0, alpha, zero))[..., None, None]
            alpha = alpha / torch.where(whole == 0, 1, whole)
        return _channel_sums(alpha * gradient.relu())


def _class_map(
    name: str, features: Planes, linear: nn.Linear, target: Target, score: Float[Tensor, "n"]
) -> tuple[Tensor, Tensor, Tensor]:
    """CAM, how far its mean is from the logit, and the largest logit that the features give."""
    if features.shape[1] != linear.in_features:
        raise unfit_head(f"{features.shape[1]} channels at {name!r} for {linear.in_features} inputs")
    weight = linear.weight.to(features.dtype)
    bias = weight.new_zeros(len(weight)) if linear.bias is None else linear.bias.to(weight.dtype)
    classes = torch.arange(len(weight), device=weight.device).expand(len(features), -1)
    chosen = select_target(classes, target)
    coarse = _sum_channels(weight[chosen], features)
    gap = (total(coarse) / coarse[0].numel() + bias[chosen] - score).abs()
    return coarse, gap, F.linear(_channel_means(features), weight, bias).abs().amax(1)


def _weighted_map(method: SingleLayerMethod, call: Call, weights: Weights, relu: bool) -> Explanation:
    """A sum of channels whose weights follow from the gradient."""
    size = method.image_size(call)
    name = method.given_layer() or method.search_layers(call, find_last_layer)[0]

    def make(record: LayerRecord) -> tuple[Tensor, ...]:
        features, gradient = (to_planes(name, part[0], size) for part in (record.outputs, record.gradients))
        coarse = _sum_channels(weights(features, gradient), features)
        return (coarse.relu() if relu else coarse,)

    (coarse,) = capture_layers(call.score, call.x, method.named_layers([name]), make)
    call.watch(1, 1, {})
    return Explanation(map=enlarge(coarse, size), gradients=call.each(1), coarse=coarse)


def _sum_channels(weights: PerChannel, features: Planes) -> Coarse:
    return (weights[..., None, None] * features).sum(1, keepdim=True)


def _channel_sums(values: Planes) -> PerChannel:
    """The sum over positions of each channel, the same whatever else is in the batch."""
    return total(values.flatten(0, 1)).view(values.shape[:2])


def _channel_means(values: Planes) -> PerChannel:
    return _channel_sums(values) / values[0, 0].numel()
