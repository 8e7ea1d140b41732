"""The attack that draws a map to a place of the attacker's choice."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import torch
from jaxtyping import Bool
from torch import Tensor

from moreaugrad.attacks import checks_directed as directed
from moreaugrad.attacks.base import MapAttack
from moreaugrad.attacks.space import Space
from moreaugrad.attacks.topk import salience, shares
from moreaugrad.attacks.victim import Victim
from moreaugrad.batch import total
from moreaugrad.metrics.localisation import regions
from moreaugrad.types import Images, PerImage

Inside = Bool[Tensor, "n h w"]


@dataclass(frozen=True, eq=False)
class Region(MapAttack):
    """Draws |map| into a region: the objective is minus the share of |map|, summed over channels, that lies there.

    region: a boolean mask (H, W) or (N, H, W), or a box of left, top, right, bottom in pixels, one or one per image.
    """

    region: Any = field(kw_only=True)

    def __post_init__(self) -> None:
        MapAttack.__post_init__(self)
        directed.region(self.region)

    def _space(self, x: Images) -> Space:
        directed.pictures(x)
        self._inside(x)
        return MapAttack._space(self, x)

    def _inside(self, x: Images) -> Inside:
        """The pixels of the region, for each image."""
        given = directed.region(self.region)
        directed.region_fits(given, x)
        if given.dtype == torch.bool:
            found = given.expand(len(x), *x.shape[-2:])
        else:
            found = regions(given.expand(len(x), 4), tuple(x.shape))
        directed.partial(found)
        return found.to(x.device)

    def reference(self, clean: Images, victim: Victim, space: Space) -> Inside:
        return self._inside(space.x)

    def objective(self, maps: Images, fixed: Any) -> PerImage:
        return -total(shares(salience(maps)) * fixed[:, None])
