"""The class score averaged over Gaussian noise. Draws no noise of its own and runs no network: both are the core's."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import torch
from jaxtyping import Float
from torch import Tensor

from moreaugrad.model import targets
from moreaugrad.model.noise import Smoothing, antithetic
from moreaugrad.model.score import ClassScore
from moreaugrad.types import Images, PerImage


@dataclass(eq=False)
class SmoothedScore:
    """E f_c(x + sigma z), estimated on `samples` antithetic noise vectors shared by all images."""

    base: ClassScore
    smoothing: Smoothing
    sigma: Tensor  # broadcasts over x
    seed: int

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

    def product(self, x: Images, along: Images, draw: int = 0) -> Images:
        """The Hessian times one direction per image, on the noise of a draw."""
        found = torch.empty_like(x)
        for some, _, product in self.each(x, draw, self.samples, along):
            found[some] = product.mean(1)
        return found

    def take(self, which: targets.Owners) -> SmoothedScore:
        return replace(self, base=self.base.take(which), sigma=self.sigma[which])

    def parts(self, x: Images, draw: int, most: int = 8) -> tuple[Float[Tensor, "p n"], Float[Tensor, "p n *shape"]]:
        """Means over parts of the draw; antithetic partners stay together, or parts would not be independent."""
        size = -(-self.samples // (2 * most)) * 2
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
        fixed = 0 if self.smoothing.fixed else draw
        noise = antithetic(tuple(x.shape[1:]), samples, self.seed, fixed, x)
        # as many images as a whole draw allows, so that few images fill a part of one too; a GPU is never half idle
        rows = self.base.engine.rows
        together = max(1, rows // self.samples, rows // 2 // samples if x.is_cuda else 0) if 2 * samples <= rows else 1
        chunk = rows if self.base.engine.compiled else min(rows, together * samples)  # each shape is compiled anew
        for start in range(0, len(x), together):
            some = slice(start, min(start + together, len(x)))
            copies = x[some, None] + self.sigma[some, None] * noise
            owners = self.base.everyone(x)[some].repeat_interleave(samples)
            ways = None if along is None else along[some].repeat_interleave(samples, 0)
            value, grad = self.base.evaluate(copies.flatten(0, 1), owners, chunk, ways)
            yield some, value.view(copies.shape[:2]), grad.view(copies.shape)
