"""The centre-of-mass attack: moves a map to another place."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from jaxtyping import Float
from torch import Tensor

from moreaugrad.attacks.base import AttackedModel, Maps
from moreaugrad.attacks.descent import Ball, Objective, StepRule
from moreaugrad.attacks.map_attack import MapAttack, magnitude, shares
from moreaugrad.batch import spread, total
from moreaugrad.types import Images, PerImage

Points = Float[Tensor, "n 2"]


@dataclass(frozen=True, eq=False)
class MassCentre(MapAttack):
    """Moves the centre of mass of |map|, `C = sum over pixels of share * (row, column)`, as far as possible.

    The objective is minus the squared shift of C in pixels; share is |map| summed over channels and scaled to sum 1.
    Use it where the place of a map matters more than its entries. A map of zeros has no centre: it counts as not moved.

    Args:
        **options: those of `MapAttack`; the inputs must be images (N, C, H, W).

    Example:
        >>> found = mg.MassCentre(mg.SmoothGrad(net), epsilon=0.5, steps=3).perturb(x)
        >>> bool((found.objective <= 0).all())
        True
    """

    images_only: ClassVar[bool] = True

    def step_rule(self, model: AttackedModel) -> StepRule:
        return NudgedStart(super().step_rule(model))

    def reference(self, clean: Maps, model: AttackedModel, ball: Ball) -> Points:
        """The clean centre; NaN for a map that has none."""
        return centre(clean).masked_fill(~clean.flatten(1).any(1)[:, None], torch.nan)

    def objective(self, maps: Maps, reference: Points) -> PerImage:
        exists = maps.flatten(1).any(1) & reference.isfinite().all(1)
        shift = torch.where(exists[:, None], centre(maps) - reference.nan_to_num(), 0.0)
        return 0 - total(shift.square())  # not -0.0, which reads as a change


@dataclass(frozen=True, slots=True)
class NudgedStart:
    """A step rule that never starts at the input: a squared shift has no gradient where nothing has moved yet."""

    rule: StepRule
    share: float = 0.01  # of the way to a random point

    def start(self, ball: Ball, objective: Objective, seed: int, restart: int) -> Images:
        at = self.rule.start(ball, objective, seed, restart)
        still = (at == ball.x).flatten(1).all(1)
        return torch.where(spread(still, at), at + self.share * (ball.random_point(seed, restart) - at), at)

    def step(self, ball: Ball, objective: Objective, at: Images, grad: Images, number: int) -> Images:
        return self.rule.step(ball, objective, at, grad, number)


def centre(maps: Images) -> Points:
    """The mean row and column of |map|, counted from 0; (0, 0) for a map of zeros."""
    share = shares(magnitude(maps))
    rows, columns = (torch.arange(size, dtype=share.dtype, device=share.device) for size in share.shape[-2:])
    return torch.stack([total(share * rows[:, None]), total(share * columns)], dim=1)
