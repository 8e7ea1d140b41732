"""NormGrad: how much each position adds to the gradient of a layer's weights, real or virtual.

Sums and maxima are taken over the window that a convolution sees at each of its output positions, group by group.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional as F

from moreaugrad import validate
from moreaugrad.batch import spread
from moreaugrad.methods.base import Call
from moreaugrad.methods.cam.layer_capture import LayerRecord, capture_layers
from moreaugrad.methods.cam.layers import (
    LayerMethod,
    Planes,
    enlarge,
    find_last_convolution,
    find_last_layer,
    layer_name,
    to_planes,
)
from moreaugrad.results import Explanation

Coarse = Float[Tensor, "n 1 h w"]
Stat = Float[Tensor, "n g h w"]
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
            if self.score not in ("logit", "logprob"):
                raise ValueError(
                    f"loss='ce' is minus the log-probability, got score={self.score!r} with it; leave one of them out"
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

    def compute(self, call: Call) -> Explanation:
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
            return Explanation(map=enlarge(coarse[0], size), gradients=call.each(1), coarse=coarse[0])
        product = torch.stack([stretch(enlarge(part, size)) for part in coarse]).prod(0)
        return Explanation(map=product, gradients=call.each(1))

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


@dataclass(frozen=True, slots=True)
class Window:
    """Kernel, stride and dilation (rows, columns), the padding (left, right, top, bottom), and the channel groups."""

    kernel: tuple[int, int] = (1, 1)
    stride: tuple[int, int] = (1, 1)
    dilation: tuple[int, int] = (1, 1)
    padding: tuple[int, int, int, int] = (0, 0, 0, 0)
    mode: str = "constant"  # of the padding: zeros, or as F.pad names it
    groups: int = 1

    def grouped(self, values: Float[Tensor, "n k h w"]) -> Float[Tensor, "n g c h w"]:
        return values.view(len(values), self.groups, -1, *values.shape[2:])

    def unfold(self, stat: Stat) -> Float[Tensor, "n g s h2 w2"]:
        """The numbers per group and pixel at the s places of the window of each position; padding included."""
        wide = F.pad(stat, self.padding, mode=self.mode)
        sides = zip(wide.shape[2:], self.kernel, self.stride, self.dilation, strict=True)
        size = [(side - (kernel - 1) * dilation - 1) // stride + 1 for side, kernel, stride, dilation in sides]
        columns = F.unfold(wide, self.kernel, dilation=self.dilation, stride=self.stride)
        return columns.view(len(stat), stat.shape[1], -1, *size)


POINT = Window()
SQUARE = Window(kernel=(3, 3), padding=(1, 1, 1, 1))


def window_of(layer: nn.Conv2d, given: Tensor, output: Tensor) -> Window:
    """The window of a layer that computed this output from what it was given."""
    pads: list[int] = []
    for axis in (1, 0):  # columns first, as F.pad wants it
        side, out = given.shape[2 + axis], output.shape[2 + axis]
        kernel, stride, dilation = (each[axis] for each in (layer.kernel_size, layer.stride, layer.dilation))
        reach = (kernel - 1) * dilation
        same = reach if layer.padding == "same" else 0
        pair = (same // 2, same - same // 2) if isinstance(layer.padding, str) else (layer.padding[axis],) * 2
        if (side + sum(pair) - reach - 1) // stride + 1 != out:  # a layer that pads by itself, to the size it wants
            whole = max((out - 1) * stride + reach + 1 - side, 0)
            pair = (whole // 2, whole - whole // 2)
        pads += pair
    mode = "constant" if layer.padding_mode == "zeros" else layer.padding_mode
    sides: list[Any] = [layer.kernel_size, layer.stride, layer.dilation, tuple(pads)]
    return Window(sides[0], sides[1], sides[2], sides[3], mode, layer.groups)


def aggregate_products(a: Float[Tensor, "n k h w"], g: Float[Tensor, "n m h2 w2"], window: Window, how: str) -> Tensor:
    """At each position, over all entries of (the window of a) g^T in the same group: their norm, sum, max or the norm
    of the positive ones. The products themselves are never computed."""
    before, after = window.grouped(a), window.grouped(g)
    if how == "sum":
        return (window.unfold(before.sum(2)).sum(2) * after.sum(2)).sum(1, keepdim=True)
    if how == "max":
        ends = [window.unfold(before.amax(2)).amax(2), window.unfold(before.amin(2)).amin(2)]
        corners = [end * other for end in ends for other in (after.amax(2), after.amin(2))]
        return torch.stack(corners).amax(0).amax(1, keepdim=True)
    signs = (1, -1) if how == "positive norm" else (0,)
    square = sum(
        (window.unfold(_square(before, sign)).sum(2) * _square(after, sign) for sign in signs), a.new_zeros(())
    )
    return _root(square.sum(1, keepdim=True))


def aggregate(values: Float[Tensor, "n k h w"], how: str) -> Float[Tensor, "n 1 h w"]:
    """At each position, over all channels: their norm, sum, max or the norm of the positive ones."""
    if how == "sum":
        return values.sum(1, keepdim=True)
    if how == "max":
        return values.amax(1, keepdim=True)
    return _root(_square(values[:, None], 1 if how == "positive norm" else 0))


def _root(square: Tensor) -> Tensor:
    """The square root, with derivative zero at zero: a position where nothing happens."""
    some = square > 0
    return torch.where(some, square, 1).sqrt() * some


def _square(values: Float[Tensor, "n g c h w"], sign: int) -> Stat:
    """The squared size of the channels, of those of one sign alone unless it is 0."""
    return (values if sign == 0 else (sign * values).relu()).square().sum(2)
