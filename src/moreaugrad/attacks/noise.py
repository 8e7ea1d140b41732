"""Random noise as an attack: what a map owes to chance, beside which the others are measured. Needs no gradient."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

import torch

from moreaugrad import validate
from moreaugrad.attacks.base import Attack
from moreaugrad.attacks.result import Attacked
from moreaugrad.attacks.space import NORMS, Space
from moreaugrad.attacks.victim import Victim
from moreaugrad.batch import spread
from moreaugrad.model.smoothing import Smoothing, antithetic, independent_seed
from moreaugrad.types import Images, Watch


@dataclass(frozen=True, eq=False)
class Noise(Attack):
    """l2: a random point at distance epsilon; linf: a random corner of the cube; drawn again until the prediction is
    kept, and as long as the box allows. plain: x + epsilon (max x - min x) N(0, I), epsilon relative to each range.

    plain may change the prediction, and returns the changed image all the same; `kept` tells. Its length is about
    epsilon * range * sqrt(entries). The objective is minus the length of the change. All images get the same noise.
    """

    norms: ClassVar[tuple[str, ...]] = ("plain", *NORMS)

    norm: str = field(default="l2", kw_only=True)  # or linf, plain
    tries: int = field(default=100, kw_only=True)  # most draws of an image, for l2 and linf

    def __post_init__(self) -> None:
        Attack.__post_init__(self)
        validate.at_least("tries", self.tries, 1)

    def run(self, space: Space, victim: Victim, watch: Watch) -> Attacked:
        at = self._once(space) if self.norm == "plain" else self._redrawn(space, victim, watch)
        kept, length = victim.kept(at), space.length(at)
        success = kept & (length > 0)
        trace = torch.stack([torch.zeros_like(length), torch.where(success, -length, 0.0)])
        return self._result(space, victim, at, success, -length, trace, torch.zeros_like(victim.target))

    def _once(self, space: Space) -> Images:
        noise = antithetic(tuple(space.x.shape[1:]), 1, independent_seed(self.seed, 2), 0, space.x)
        return space.clip(space.x + Smoothing(noise_level=self.epsilon).scale(space.x) * noise)

    def _redrawn(self, space: Space, victim: Victim, watch: Watch) -> Images:
        """Each image's first draw that keeps the prediction; the image itself where none does."""
        at, missing = space.x.clone(), torch.arange(len(space.x), device=space.x.device)
        for draw in range(self.tries):
            point = reaching(space, space.random(self.seed, draw))[missing]
            good = victim.predict(point) == victim.clean[missing]
            at[missing[good]], missing = point[good], missing[~good]
            watch(draw + 1, self.tries, {"missing": len(missing)})
            if not len(missing):
                break
        return at


def reaching(space: Space, at: Images, halvings: int = 40) -> Images:
    """The point further on the same way whose length after clipping is epsilon, where the box has room for it."""
    way = at - space.x
    if space.norm != "l2" or bool((space.length(at) >= space.epsilon * (1 - 1e-6)).all()):
        return at
    low, high = torch.ones_like(space.length(at)), torch.full_like(space.length(at), 1e6)
    for _ in range(halvings):
        middle = (low * high).sqrt()
        short = space.length(space.clip(space.x + spread(middle, way) * way)) <= space.epsilon
        low, high = torch.where(short, middle, low), torch.where(short, high, middle)
    return space.moved(spread(low, way) * way)
