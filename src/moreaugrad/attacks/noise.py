"""Random noise as an attack: how far chance alone moves a map, the baseline of all other attacks."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

import torch

from moreaugrad.attacks.base import Attack, AttackedModel
from moreaugrad.attacks.descent import NORMS, Ball
from moreaugrad.attacks.result import AttackResult
from moreaugrad.batch import spread
from moreaugrad.model.smoothing import Smoothing, antithetic, independent_seed
from moreaugrad.types import Images, Watch


@dataclass(frozen=True, eq=False)
class RandomNoise(Attack):
    """A random change of given size that keeps the prediction: the baseline of the other attacks. No gradient.

    l2: a random point at distance epsilon; linf: a random corner of the cube; both drawn again until the prediction is
    kept, and as long as the box allows. plain: `x + epsilon (max x - min x) N(0, I)`, drawn once, which may change the
    prediction; `kept` tells. The objective is minus the length of the change. All images get the same noise.

    Args:
        attacked: a model, or a method, whose model is then meant.
        epsilon: size of the change in the units of the input; for "plain" relative to the range of each image.
        norm: "l2", "linf" or "plain".
        tries: most draws of an image, for "l2" and "linf".
        **options: those of `Attack`.

    Example:
        >>> found = mg.RandomNoise(net, epsilon=0.5).perturb(x)
        >>> torch.allclose(found.l2[found.success], torch.tensor(0.5))
        True
    """

    norms: ClassVar[tuple[str, ...]] = ("plain", *NORMS)

    tries: int = field(default=100, kw_only=True)

    def __post_init__(self) -> None:
        super().__post_init__()
        self.check_options(counts="tries")

    def run(self, ball: Ball, model: AttackedModel, watch: Watch) -> AttackResult:
        if self.norm == "plain":
            noise = antithetic(tuple(ball.x.shape[1:]), 1, independent_seed(self.seed, 2), 0, ball.x)
            at = ball.clip(ball.x + Smoothing(noise_level=self.epsilon).scale(ball.x) * noise)
        else:
            at = self._draw_until_kept(ball, model, watch)
        length = ball.length(at)
        success = model.keeps_class(at) & (length > 0)
        trace = torch.stack([torch.zeros_like(length), torch.where(success, -length, 0.0)])
        return self.make_result(ball, model, at, success, -length, trace, torch.zeros_like(model.target))

    def _draw_until_kept(self, ball: Ball, model: AttackedModel, watch: Watch) -> Images:
        """Each image's first draw that keeps the prediction; the image itself where none does."""
        at, missing = ball.x.clone(), torch.arange(len(ball.x), device=ball.x.device)
        for draw in range(self.tries):
            point = lengthen(ball, ball.random_point(self.seed, draw))[missing]
            good = model.predict(point) == model.predicted[missing]
            at[missing[good]], missing = point[good], missing[~good]
            watch(draw + 1, self.tries, {"missing": len(missing)})
            if not len(missing):
                break
        return at


def lengthen(ball: Ball, at: Images, halvings: int = 40) -> Images:
    """The point further along the same ray whose length after clipping is epsilon, where the box has room for it."""
    ray = at - ball.x
    if ball.norm != "l2" or bool((ball.length(at) >= ball.epsilon * (1 - 1e-6)).all()):
        return at
    low, high = torch.ones_like(ball.length(at)), torch.full_like(ball.length(at), 1e6)
    for _ in range(halvings):
        middle = (low * high).sqrt()
        short = ball.length(ball.clip(ball.x + spread(middle, ray) * ray)) <= ball.epsilon
        low, high = torch.where(short, middle, low), torch.where(short, high, middle)
    return ball.shift(spread(low, ray) * ray)
