"""What a good mask is: small, smooth, enough to show the class and, removed, enough to hide it.

For a class that is not there (`fake`) the mask should be empty: what is kept must not show the true class.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor
from torch.nn import functional as F

Masks = Float[Tensor, "n 1 i j"]
Logits = Float[Tensor, "n k"]
PerImage = Float[Tensor, "n"]


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
