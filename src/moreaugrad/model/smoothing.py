"""The class score averaged over Gaussian noise that depends on the seed, the draw and the sample alone.

So a map is the same alone, in a batch, in any chunking and in any process. The global random state is never read
or written.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from moreaugrad import limits, validate
from moreaugrad.model.inputs import Owners, Packing
from moreaugrad.model.score import ClassScore, even_chunk
from moreaugrad.model.statistics import Stack, mean_moments
from moreaugrad.types import Images, PerImage


@dataclass(frozen=True, slots=True)
class Smoothing:
    """Averages the score over Gaussian noise: E f(x + sigma z), estimated on antithetic pairs of noise vectors.

    Args:
        noise_level: standard deviation relative to the range (max - min) of each image; 0.1 where no sigma is given.
        samples: noise vectors per step; a pair counts as two.
        sigma: absolute standard deviation in the units of the input, instead of `noise_level`.
        fixed: the same noise at every step, which makes the problem deterministic.

    Example:
        >>> mg.Smoothing(noise_level=0.15, samples=64)
        Smoothing(noise_level=0.15, samples=64, sigma=None, fixed=False)
    """

    noise_level: float | None = None
    samples: int = 8
    sigma: float | None = None
    fixed: bool = False

    def __post_init__(self) -> None:
        limits.take_plain_numbers(self)
        if self.noise_level is not None and self.sigma is not None:
            raise ValueError(
                f"noise_level (relative to each image's range) and sigma (absolute) exclude each other, "
                f"got noise_level={self.noise_level} and sigma={self.sigma}; give one"
            )
        for name in ("noise_level", "sigma"):
            if getattr(self, name) is not None:
                validate.positive(name, getattr(self, name))
        validate.at_least("samples", self.samples, 1)
        if not isinstance(self.fixed, bool):
            raise TypeError(f"fixed must be True or False, got {self.fixed!r}")
        if self.noise_level is None and self.sigma is None:
            object.__setattr__(self, "noise_level", 0.1)

    def scale(self, x: Images) -> Tensor:
        """sigma of each image, shaped to broadcast over it."""
        shape = (len(x), *[1] * (x.ndim - 1))
        if self.sigma is not None:
            return x.new_full(shape, self.sigma)
        flat = x.flatten(1)
        return (self.noise_level or 0.0) * (flat.amax(1) - flat.amin(1)).view(shape)


def draw_seed(seed: int | torch.Generator | None) -> int:
    """The number that a seed stands for; None takes a fresh one, which the result records."""
    if isinstance(seed, torch.Generator):
        return int(torch.randint(2**62, (), generator=seed, device=seed.device))
    return secrets.randbits(62) if seed is None else int(seed)


def independent_seed(seed: int, purpose: int) -> int:
    """A seed whose noise never meets that of the seed itself: an attacker must not draw the defender's noise."""
    return int(np.random.SeedSequence([seed, purpose, 0x5EED]).generate_state(1, np.uint64)[0] >> np.uint64(1))


def antithetic(shape: tuple[int, ...], samples: int, seed: int, draw: int, like: Tensor) -> Float[Tensor, "m *s"]:
    """z_1, -z_1, z_2, -z_2, ...: one set of standard normal vectors. An odd last one has no partner."""
    state = np.random.SeedSequence([seed, draw]).generate_state(1, np.uint64)[0]
    generator = torch.Generator(like.device).manual_seed(int(state >> np.uint64(1)))
    noise = torch.empty((samples, *shape), dtype=like.dtype, device=like.device)
    for index in range(0, samples, 2):  # vector by vector: more samples extend the list, never change its start
        noise[index].normal_(generator=generator)
        if index + 1 < samples:
            torch.neg(noise[index], out=noise[index + 1])
    return noise


def part_size(samples: int, most: int) -> int:
    """Samples of each of at most so many parts of a draw: whole antithetic pairs, so that parts are independent."""
    return -(-samples // (2 * most)) * 2


@dataclass(eq=False)
class SmoothedScore:
    """E f_c(x + sigma z), estimated on `samples` antithetic noise vectors, shared by all images of one seed."""

    base: ClassScore
    smoothing: Smoothing
    sigma: Tensor  # broadcasts over x
    seed: int
    seeds: Sequence[int] | None = None  # one for each image of the whole call, instead of `seed`

    @classmethod
    def of(
        cls,
        score: ClassScore,
        smoothing: Smoothing,
        x: Images,
        packing: Packing,
        seed: int,
        seeds: Sequence[int] | None = None,
    ) -> SmoothedScore:
        """The score under noise, each input of a tuple by its own range."""
        pieces = packing.split(x)
        scales = [smoothing.scale(piece.detach()) for piece in pieces]
        if len(pieces) > 1:
            wide = [scale.expand_as(piece).flatten(1) for scale, piece in zip(scales, pieces, strict=True)]
            scales = [torch.cat(wide, dim=1)]
        return cls(score, smoothing, scales[0], seed, seeds)

    @property
    def samples(self) -> int:
        return self.smoothing.samples

    @property
    def random(self) -> bool:
        return not self.smoothing.fixed

    def value_and_grad(self, x: Images, draw: int = 0, most: int | None = None) -> tuple[PerImage, Images]:
        values, grads = x.new_empty(len(x)), torch.empty_like(x)
        for some, value, grad in self.each(x, draw, most or self.samples):
            values[some], grads[some] = value.mean(1), grad.mean(1)
        return values, grads

    def value_and_moments(self, x: Images, draw: int, most: int | None, keep: int) -> tuple[PerImage, Stack]:
        """As `value_and_grad`, with the mean of the squares and the votes beside the mean of the gradients.

        A copy votes for the `keep` largest entries of its gradient.
        """
        values, found = x.new_empty(len(x)), x.new_empty(len(x), 3, *x.shape[1:])
        for some, value, grad in self.each(x, draw, most or self.samples):
            values[some], found[some] = value.mean(1), mean_moments(grad, keep)
        return values, found

    def product(self, x: Images, along: Images, draw: int = 0) -> Images:
        """The Hessian times one direction per image, on the noise of a draw."""
        found = torch.empty_like(x)
        for some, _, product in self.each(x, draw, self.samples, along):
            found[some] = product.mean(1)
        return found

    def take(self, which: Owners) -> SmoothedScore:
        return replace(self, base=self.base.take(which), sigma=self.sigma[which])

    def parts(self, x: Images, draw: int, most: int = 8) -> tuple[Float[Tensor, "p n"], Float[Tensor, "p n *shape"]]:
        """Means over parts of the draw; antithetic partners stay together, or parts would not be independent."""
        size = part_size(self.samples, most)
        splits = -(-self.samples // size)
        share = splits / self.samples  # a short last part counts as what it is, so that the mean is the draw's
        values, grads = x.new_empty(splits, len(x)), x.new_empty(splits, *x.shape)
        for some, value, grad in self.each(x, draw, self.samples):
            for part, (v, g) in enumerate(zip(value.split(size, 1), grad.split(size, 1), strict=True)):
                values[part, some], grads[part, some] = v.sum(1) * share, g.sum(1) * share
        return values, grads

    def each(
        self, x: Images, draw: int, samples: int, along: Images | None = None
    ) -> Iterator[tuple[slice, Tensor, Tensor]]:
        """Per block of whole images: values and gradients of every noisy copy, (images, samples, ...)."""
        fixed, shape = 0 if self.smoothing.fixed else draw, tuple(x.shape[1:])
        shared = antithetic(shape, samples, self.seed, fixed, x) if self.seeds is None else None
        # as many images as a whole draw allows, so that few images fill a part of one too; a GPU is never half idle
        rows = self.base.engine.rows
        together = max(1, rows // self.samples, rows // 2 // samples if x.is_cuda else 0) if 2 * samples <= rows else 1
        # each shape is compiled again, so a compiled network sees one
        chunk = rows if self.base.engine.compiled else even_chunk(together * samples, rows)
        for start in range(0, len(x), together):
            some = slice(start, min(start + together, len(x)))
            whose = self.base.owners(x)[some]
            own = [] if self.seeds is None else [self.seeds[i] for i in whose.tolist()]
            noise = torch.stack([antithetic(shape, samples, s, fixed, x) for s in own]) if shared is None else shared
            copies = x[some, None] + self.sigma[some, None] * noise
            owners = whose.repeat_interleave(samples)
            ways = None if along is None else along[some].repeat_interleave(samples, 0)
            value, grad = self.base.evaluate(copies.flatten(0, 1), owners, chunk, ways)
            yield some, value.view(copies.shape[:2]), grad.view(copies.shape)
