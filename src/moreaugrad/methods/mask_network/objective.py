"""What a mask network is trained for: small, smooth masks that show the class and, removed, hide it.

Phi(x, M) = M x' + (1 - M) A is an image under a mask, with A a blur or noise around one colour. For a class that is
not there (`fake`) the mask should be empty: what is kept must not show the true class.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Bool, Float, Int
from torch import Generator, Tensor
from torch.nn import functional as F

from moreaugrad.types import PerImage

Pictures = Float[Tensor, "n c h w"]
Masks = Float[Tensor, "n 1 i j"]
Logits = Float[Tensor, "n k"]


@dataclass(frozen=True, eq=False)
class Phi:
    """Keeps x where the mask is 1. Noise and colours are in units in which a picture spans [-1, 1].

    `low` and `high` are what black and white are in the space of x; the mask keeps its gradient, x and A have none.
    """

    low: Float[Tensor, "c 1 1"]
    high: Float[Tensor, "c 1 1"]
    noise: float = 0.03  # added to what is kept
    colour: float = 0.33  # of what takes its place: uniform up to this, per channel
    grain: float = 0.11  # and noise around it
    blurred: float = 0.5  # share of the images whose rest is blurred instead
    sigma: float | None = None  # of the blur, in pixels; None: by the size of the image

    def __call__(self, x: Pictures, mask: Float[Tensor, "n 1 h w"], rest: Pictures) -> Pictures:
        return mask * x + (1 - mask) * rest

    def noisy(self, x: Pictures, generator: Generator) -> Pictures:
        """x', the image that is kept."""
        span = (self.high - self.low) / 2
        return (x + self.noise * span * _normal(x, generator)).detach() if self.noise else x.detach()

    def rest(self, x: Pictures, generator: Generator) -> Pictures:
        """A, the image that takes the place of what is removed."""
        centre, span = (self.high + self.low) / 2, (self.high - self.low) / 2
        uniform = torch.rand((*x.shape[:2], 1, 1), generator=generator, device=x.device) * 2 - 1
        plain = self.colour * uniform.to(x.dtype) + self.grain * _normal(x, generator)
        chosen = torch.rand((len(x), 1, 1, 1), generator=generator, device=x.device) < self.blurred
        return torch.where(chosen, self.blur(x), centre + span * plain).detach()

    def blur(self, x: Pictures) -> Pictures:
        size = min(x.shape[2:])
        sigma = self.sigma or (2.0 if size <= 64 else 11 * size / 224)
        reach = min(int(2.46 * sigma), size - 1)  # 9 pixels wide at sigma 2, 55 at sigma 11
        at = torch.arange(-reach, reach + 1, device=x.device, dtype=x.dtype)
        weights = torch.softmax(-at.square() / (2 * sigma**2), 0)
        channels = x.shape[1]
        wide = F.pad(x, (reach,) * 4, mode="reflect")
        across = F.conv2d(wide, weights.view(1, 1, 1, -1).expand(channels, 1, 1, -1), groups=channels)
        return F.conv2d(across, weights.view(1, 1, -1, 1).expand(channels, 1, -1, 1), groups=channels)


def _normal(x: Pictures, generator: Generator) -> Pictures:
    return torch.randn(x.shape, generator=generator, device=x.device, dtype=x.dtype)


def variation(mask: Masks) -> PerImage:
    """Sum of the squared differences between neighbours."""
    down, right = mask.diff(dim=2), mask.diff(dim=3)
    return down.square().sum((1, 2, 3)) + right.square().sum((1, 2, 3))


def area(mask: Masks) -> PerImage:
    return mask.mean((1, 2, 3))


def border(mask: Masks) -> PerImage:
    """Sum of the squared values on the four sides; a corner lies on two."""
    sides = [mask[:, :, 0], mask[:, :, -1], mask[:, :, :, 0], mask[:, :, :, -1]]
    return torch.cat(sides, 2).square().sum((1, 2))


@dataclass(frozen=True, slots=True)
class PaperLoss:
    """l1 TV(M) + l2 mean(M) - ln p_c(Phi(x, M)) + l3 p_c(Phi(x, 1 - M))^l4.

    The weights are for images of 32 pixels; those of the publication belong to another scale of TV and area.
    """

    smooth: float = 0.01
    area: float = 3.0
    remove: float = 3.0
    power: float = 0.3

    def __call__(
        self, mask: Masks, kept: Logits, removed: Logits, label: Int[Tensor, "n"], fake: Bool[Tensor, "n"]
    ) -> PerImage:
        show, hide = torch.where(fake[:, None], removed, kept), torch.where(fake[:, None], kept, removed)
        shown, hidden = (_picked(logits.log_softmax(1), label) for logits in (show, hide))
        # p^l4 by its logarithm: the power itself has no finite gradient where p is 0
        loss = (self.power * hidden).exp() * self.remove - shown
        return loss + self.smooth * variation(mask) + self.area * area(mask)


@dataclass(frozen=True, slots=True)
class CodeLoss:
    """hinge(hide) + l1 mean((M + 5e-4)^0.3) + l2 (TV + 0.3 border) / 2 + l3 hinge(show), on margins of logits.

    The weights are those of the published program, made for 224 pixels.
    """

    smooth: float = 0.005
    area: float = 8.0
    show: float = 0.3
    power: float = 0.3
    margin: float = 5.0  # by which the class must lose, once removed

    def __call__(
        self, mask: Masks, kept: Logits, removed: Logits, label: Int[Tensor, "n"], fake: Bool[Tensor, "n"]
    ) -> PerImage:
        with_mask, without = _lead(kept, label), _lead(removed, label)
        destroy = torch.where(fake, F.relu(1 - without), F.relu(without + self.margin))
        preserve = torch.where(fake, F.relu(with_mask + 1), F.relu(1 - with_mask))
        small = (mask + 5e-4).pow(self.power).mean((1, 2, 3))
        rough = (variation(mask) + 0.3 * border(mask)) / 2
        return destroy + self.show * preserve + self.area * small + self.smooth * rough


LOSSES: dict[str, Any] = {"paper": PaperLoss, "code": CodeLoss}


def _picked(values: Logits, label: Int[Tensor, "n"]) -> PerImage:
    return values.gather(1, label[:, None])[:, 0]


def _lead(logits: Logits, label: Int[Tensor, "n"]) -> PerImage:
    """By how much the class is ahead of the best other one."""
    own = F.one_hot(label, logits.shape[1]).bool()
    return _picked(logits, label) - logits.masked_fill(own, float("-inf")).amax(1)
