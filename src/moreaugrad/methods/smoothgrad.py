"""SmoothGrad: the gradient averaged over Gaussian noise, or its squares, or how much it varies.

Owns the average over noisy copies that other methods take of other maps.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace

import torch
from torch import Tensor

from moreaugrad import validate
from moreaugrad.methods.base import Call, NoisyMethod
from moreaugrad.model.smoothing import Smoothing
from moreaugrad.results import Explanation
from moreaugrad.types import Images

DRAW = 128  # noise vectors held at a time
PARTS = 16  # independent parts of a draw, from which the standard error comes
VARIANTS = {"mean": lambda grads: grads, "sq": torch.square, "var": None}


@dataclass(frozen=True, eq=False)
class SmoothGrad(NoisyMethod):
    """Gradient averaged over Gaussian noise, mean over z of grad f_c(x + z), signed (Smilkov et al., 2017).

    Use it for a dense map that is less noisy than the gradient; for a sparse one see `SparseMoreauGrad`. A relative
    noise level counts as a constant where the map is differentiated.

    Args:
        forward_func: a module in evaluation mode, any callable that returns scores of shape (N, classes), or what
            `prepare` returns.
        smoothing: the noise, as one object.
        variant: "mean"; or "sq", the mean of the squared gradients, or "var", their variance, which are never
            negative.
        noise_level: standard deviation of the noise, relative to the range of each image; 0.15 by default.
        sigma: absolute standard deviation, instead of `noise_level`.
        samples: noisy copies per image, 64 by default; the cost is one gradient for each.
        seed: of the noise; a torch.Generator draws one, None takes a fresh one.
        **further: `score`, `precision`, `compile` and `hessian_step`, as in `Method`.

    Example:
        >>> method = mg.SmoothGrad(net, noise_level=0.15, samples=8)
        >>> method.attribute(x, target=3).shape
        torch.Size([2, 3, 16, 16])
    """

    needs_noise = True

    smoothing: Smoothing = field(default_factory=lambda: Smoothing(noise_level=0.15, samples=64))
    variant: str = field(default="mean", kw_only=True)

    def __post_init__(self, noise_level: float | None, sigma: float | None, samples: int | None) -> None:
        super().__post_init__(noise_level, sigma, samples)
        validate.one_of("variant", self.variant, VARIANTS)

    @property
    def differentiable(self) -> bool:
        return True

    def compute(self, call: Call) -> Explanation:
        count, of_copy = call.each(self.smoothing.samples), VARIANTS[self.variant]
        if of_copy is None:
            return Explanation(map=variance(call, self.smoothing), gradients=count)
        mean, error = average(call, self.smoothing, of_copy)
        return Explanation(map=mean, gradients=count, stderr=error)


def average(call: Call, smoothing: Smoothing, of_copy: Callable[[Tensor], Tensor]) -> tuple[Images, Images]:
    """The mean of what `of_copy` makes of the gradients of noisy copies (images, copies, ...), and its error."""
    mean, weight = torch.zeros_like(call.x), 0.0
    square, parts = torch.zeros_like(call.x), 0
    for draw, size in _draws(call, smoothing):
        found = _parts(call, replace(smoothing, samples=size, fixed=False), draw, of_copy)
        for part in found:  # weighted by samples, so that a short last draw counts as what it is
            share = size / len(found)
            weight, before = weight + share, part - mean
            mean = mean + before * (share / weight)
            # without a graph: a square root has no derivative where nothing varies
            square, parts = square + share * before.detach() * (part - mean).detach(), parts + 1
    error = (square / weight / (parts - 1)).sqrt() if parts > 1 else torch.full_like(square, float("nan"))
    return mean, error


def variance(call: Call, smoothing: Smoothing) -> Images:
    """The mean squared distance of the copies' gradients from their mean, put together draw by draw."""
    mean, square, before = torch.zeros_like(call.x), torch.zeros_like(call.x), 0
    for draw, size in _draws(call, smoothing):
        middle, around = torch.empty_like(call.x), torch.empty_like(call.x)
        for some, _, grad in call.smoothed(replace(smoothing, samples=size, fixed=False)).each(call.x, draw, size):
            centre = grad.mean(1)
            middle[some], around[some] = centre, (grad - centre[:, None]).square().sum(1)
        count = before + size
        shift = middle - mean
        mean = mean + shift * (size / count)
        square, before = square + around + shift.square() * (before * size / count), count
    return square / before


def _draws(call: Call, smoothing: Smoothing) -> Iterator[tuple[int, int]]:
    """The number and size of each set of noise vectors; tells the watcher when it is used up."""
    sizes = [min(DRAW, smoothing.samples - start) for start in range(0, smoothing.samples, DRAW)]
    for draw, size in enumerate(sizes):
        yield draw, size
        call.watch(draw + 1, len(sizes), {})


def _parts(call: Call, smoothing: Smoothing, draw: int, of_copy: Callable[[Tensor], Tensor]) -> Tensor:
    """Means over parts of a draw; antithetic partners stay together, or parts would not be independent."""
    samples = smoothing.samples
    size = -(-samples // (2 * PARTS)) * 2
    splits = -(-samples // size)
    share = splits / samples  # a short last part counts as what it is, so that the mean is the draw's
    means = call.x.new_empty(splits, *call.x.shape)
    for some, _, grad in call.smoothed(smoothing).each(call.x, draw, samples):
        # a few copies leave a GPU idle; elsewhere they take less memory
        pieces = of_copy(grad).split(size, 1) if grad.is_cuda else map(of_copy, grad.split(size, 1))
        for part, made in enumerate(pieces):
            means[part, some] = made.sum(1) * share
    return means
