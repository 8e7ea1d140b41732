"""The attack on the place of a map: moves its centre of mass."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from moreaugrad.attacks import checks_directed as directed
from moreaugrad.attacks.base import MapAttack
from moreaugrad.attacks.descent import Aim, Rule
from moreaugrad.attacks.space import Space
from moreaugrad.attacks.topk import salience, shares
from moreaugrad.attacks.victim import Victim
from moreaugrad.batch import spread, total
from moreaugrad.types import Images, PerImage

Points = Float[Tensor, "n 2"]


@dataclass(frozen=True, eq=False)
class MassCentre(MapAttack):
    """Moves C = sum over pixels of share * (row, column) as far as possible; share is |map| summed over channels,
    scaled to sum 1. The objective is minus the squared shift of C, in pixels.

    A map of zeros has no centre: it counts as not moved.
    """

    def _space(self, x: Images) -> Space:
        directed.pictures(x)
        return MapAttack._space(self, x)

    def _moves(self, victim: Victim) -> Rule:
        return Nudged(MapAttack._moves(self, victim))

    def reference(self, clean: Images, victim: Victim, space: Space) -> Points:
        """Where the centre was; NaN for a map that has none."""
        found = centre(clean)
        return found.masked_fill(~clean.flatten(1).any(1)[:, None], torch.nan)

    def objective(self, maps: Images, fixed: Any) -> PerImage:
        placed = maps.flatten(1).any(1) & fixed.isfinite().all(1)
        shift = torch.where(placed[:, None], centre(maps) - fixed.nan_to_num(), 0.0)
        return 0 - total(shift.square())  # not -0.0, which reads as a change


@dataclass(frozen=True, slots=True)
class Nudged:
    """A rule that never starts at the input: a squared shift has no slope where nothing has shifted yet."""

    rule: Rule
    share: float = 0.01  # of the way to a random point

    def start(self, space: Space, aim: Aim, seed: int, restart: int) -> Images:
        at = self.rule.start(space, aim, seed, restart)
        still = (at == space.x).flatten(1).all(1)
        return torch.where(spread(still, at), at + self.share * (space.random(seed, restart) - at), at)

    def move(self, space: Space, aim: Aim, at: Images, grad: Images, step: int) -> Images:
        return self.rule.move(space, aim, at, grad, step)


def centre(maps: Images) -> Points:
    """The mean row and column of |map|, counted from 0; (0, 0) for a map of zeros."""
    share = shares(salience(maps))
    rows, columns = (torch.arange(size, dtype=share.dtype, device=share.device) for size in share.shape[-2:])
    return torch.stack([total(share * rows[:, None]), total(share * columns)], dim=1)
