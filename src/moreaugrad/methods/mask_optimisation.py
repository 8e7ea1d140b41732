"""What the methods that optimise a mask share: seeded draws, noisy copies, probabilities.

Every image of a batch has its own mask, and none of these operations mixes two of them.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from moreaugrad import validate
from moreaugrad.methods.base import Method
from moreaugrad.model.inputs import Owners, select_target, take_target
from moreaugrad.model.score import ClassScore
from moreaugrad.model.smoothing import Smoothing, antithetic
from moreaugrad.types import Images, PerImage, ScoreFunc

PHOTO = 3 * 224 * 224  # entries of the images for which published weights of a summed penalty were chosen


@dataclass(frozen=True, eq=False)
class MaskMethod(Method):
    """A method that compares masks by the probability of the class, which has bounds; a logit has none."""

    score: str | ScoreFunc = field(default="prob", kw_only=True)
    seed: int | torch.Generator | None = field(default=0, kw_only=True)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.score != "prob":
            raise ValueError(
                f"score must be 'prob' for {self.get_name()}, which is defined on probabilities, got {self.score!r}"
            )
        validate.seed(self.seed)

    def _require_budget(self, budget: int, least: int) -> None:
        """A budget that pays for at least one step."""
        validate.at_least("budget", budget, 1)
        if budget < least:
            raise ValueError(
                f"budget must be at least {least}, what one step of {self.get_name()} spends, got {budget}"
            )


def generator(seed: int, step: int, device: torch.device, stream: int = 1) -> torch.Generator:
    """The draws of one step, independent of the noise of the same seed and step; each stream has its own."""
    state = np.random.SeedSequence([seed, step, stream]).generate_state(1, np.uint64)[0]
    return torch.Generator(device).manual_seed(int(state >> np.uint64(1)))


def noisy_copies(
    x: Images, sigma: Tensor, smoothing: Smoothing, seed: int, step: int, rows: int
) -> Iterator[tuple[slice, Float[Tensor, "k m *shape"], int]]:
    """x + sigma z in blocks of whole images, (images, samples, ...), and how many rows to run together.

    All images share the noise of a step; the rows follow from the samples alone, not from the size of the batch.
    """
    samples = smoothing.samples
    noise = antithetic(tuple(x.shape[1:]), samples, seed, 0 if smoothing.fixed else step, x)
    together = max(1, rows // samples)
    for start in range(0, len(x), together):
        some = slice(start, min(start + together, len(x)))
        yield some, x[some, None] + sigma[some, None] * noise, min(rows, together * samples)


def class_probabilities(score: ClassScore, rows: Images, which: Owners) -> tuple[PerImage, PerImage]:
    """Probability of the explained class and of the likeliest, without a gradient; row r is of image which[r]."""
    some = score.take(which)
    every = some.outputs(rows).to(rows.dtype).softmax(1)
    return select_target(every, take_target(score.target, some.owners(rows))), every.amax(1)
