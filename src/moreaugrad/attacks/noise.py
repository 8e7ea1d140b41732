"""Random noise as an attack: what a map owes to chance, beside which the others are measured. Needs no gradient."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

import torch

from moreaugrad import checks
from moreaugrad.attacks.base import Attack
from moreaugrad.attacks.result import Attacked
from moreaugrad.attacks.space import NORMS, Space
from moreaugrad.attacks.victim import Victim
from moreaugrad.contracts import Images, Watch
from moreaugrad.core.noise import Smoothing, antithetic


@dataclass(frozen=True, eq=False)
class Noise(Attack):
    """x + epsilon (max x - min x) N(0, I): `plain`, where epsilon is relative to each image's range.

    It may change the prediction; `kept` tells. l2: a random point at distance epsilon; linf: a random corner of the
    cube; both drawn again until the prediction is kept. The objective is minus the length of the change. All images
    get the same noise; another `seed` gives another. To compare: plain has length epsilon * range * sqrt(entries).
    """

    norms: ClassVar[tuple[str, ...]] = ("plain", *NORMS)

    norm: str = field(default="plain", kw_only=True)  # or l2, linf
    tries: int = field(default=100, kw_only=True)  # most draws of an image, for l2 and linf

    def __post_init__(self) -> None:
        Attack.__post_init__(self)
        checks.at_least("tries", self.tries, 1)

    def run(self, space: Space, victim: Victim, watch: Watch) -> Attacked:
        at = self._once(space) if self.norm == "plain" else self._redrawn(space, victim, watch)
        kept, length = victim.kept(at), space.length(at)
        success = kept & (length > 0)
        trace = torch.stack([torch.zeros_like(length), torch.where(success, -length, 0.0)])
        return self._result(space, victim, at, success, -length, trace, torch.zeros_like(victim.target))

    def _once(self, space: Space) -> Images:
        noise = antithetic(tuple(space.x.shape[1:]), 1, self.seed, 0, space.x)
        return space.clip(space.x + Smoothing(noise_level=self.epsilon).scale(space.x) * noise)

    def _redrawn(self, space: Space, victim: Victim, watch: Watch) -> Images:
        """Each image's first draw that keeps the prediction; the image itself where none does."""
        at, missing = space.x.clone(), torch.arange(len(space.x), device=space.x.device)
        for draw in range(self.tries):
            point = space.random(self.seed, draw)[missing]
            good = victim.predict(point) == victim.clean[missing]
            at[missing[good]], missing = point[good], missing[~good]
            watch(draw + 1, self.tries, {"missing": len(missing)})
            if not len(missing):
                break
        return at
