"""Sums and maxima over the window that a convolution sees at each of its output positions, group by group."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional as F

Stat = Float[Tensor, "n g h w"]


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
