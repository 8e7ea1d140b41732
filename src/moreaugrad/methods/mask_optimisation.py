"""Parts of the methods that optimise a mask: seeded draws, noisy copies, blur, total variation, Adam, probabilities.

Every image of a batch has its own mask, and none of these operations mixes two of them. Holds no objective and no
loop over steps: those belong to the methods.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from moreaugrad import validate
from moreaugrad.batch import spread
from moreaugrad.methods.base import Method
from moreaugrad.model import targets
from moreaugrad.model.noise import Smoothing, antithetic
from moreaugrad.model.score import ClassScore
from moreaugrad.types import Images, PerImage

PHOTO = 3 * 224 * 224  # entries of the images for which published weights of a summed penalty were chosen


@dataclass(frozen=True, eq=False)
class MaskMethod(Method):
    """A method that compares masks by the probability of the class, which has bounds; a logit has none."""

    score: str = field(default="prob", kw_only=True)
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


def class_probabilities(score: ClassScore, rows: Images, which: targets.Owners) -> tuple[PerImage, PerImage]:
    """Probability of the explained class and of the likeliest, without a gradient; row r is of image which[r]."""
    some = score.take(which)
    every = some.outputs(rows).to(rows.dtype).softmax(1)
    return targets.select(every, targets.take(score.target, some.everyone(rows))), every.amax(1)


def scale_to_unit(grad: Images) -> Images:
    """Each image's gradient divided by its largest entry; zero stays zero."""
    largest = grad.abs().flatten(1).amax(1)
    return grad / spread(torch.where(largest > 0, largest, torch.ones_like(largest)), grad)


def gaussian_matrix(size: int, sigma: float, like: Tensor) -> Float[Tensor, "s s"]:
    """A blur along one axis as a matrix. Rows sum to 1, at the border too, so that constants stay constant."""
    place = torch.arange(size, dtype=torch.float64)
    if sigma <= 0:
        return torch.eye(size).to(like)
    kernel = (-(place[:, None] - place).square() / (2 * sigma**2)).exp()
    return (kernel / kernel.sum(1, keepdim=True)).to(like)


def blur(x: Float[Tensor, "*n h w"], sigma: float) -> Float[Tensor, "*n h w"]:
    return gaussian_matrix(x.shape[-2], sigma, x) @ x @ gaussian_matrix(x.shape[-1], sigma, x).T


def upsampling_matrix(size: int, scale: int, sigma: float, like: Tensor) -> Float[Tensor, "s t"]:
    """From low resolution to `size` along one axis: each entry repeated `scale` times, then blurred."""
    low = -(-size // scale)
    repeated = torch.eye(low, dtype=torch.float64).repeat_interleave(scale, 0)[:size].to(like)
    return gaussian_matrix(size, sigma, like) @ repeated


def total_variation(mask: Float[Tensor, "n 1 h w"], beta: float) -> PerImage:
    """Sum over pixels of |forward difference|_2^beta; nothing lies beyond the border."""
    tall, wide = torch.zeros_like(mask), torch.zeros_like(mask)
    tall[..., :-1, :] = mask[..., 1:, :] - mask[..., :-1, :]
    wide[..., :, :-1] = mask[..., :, 1:] - mask[..., :, :-1]
    tiny = 1e-12 if beta < 2 else 0.0  # a power below one has no derivative at zero
    each: Tensor = (tall.square() + wide.square() + tiny).pow(beta / 2) - tiny ** (beta / 2)
    return each.flatten(1).sum(1)


def adam_step(grad: Images, first: Images, second: Images, step: int) -> tuple[Images, Images, Images]:
    """The direction of step 1, 2, ... and the two moments, with the usual decays .9 and .999."""
    first, second = 0.9 * first + 0.1 * grad, 0.999 * second + 0.001 * grad.square()
    size = (second / (1 - 0.999**step)).sqrt() + 1e-8
    return first / (1 - 0.9**step) / size, first, second
