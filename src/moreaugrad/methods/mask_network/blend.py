"""An image under a mask: Phi(x, M) = M x' + (1 - M) A, with A a blur or noise around one colour."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Generator, Tensor
from torch.nn import functional as F

Pictures = Float[Tensor, "n c h w"]


@dataclass(frozen=True, eq=False)
class Phi:
    """Keeps x where the mask is 1. Noise and colours are in units in which a picture spans [-1, 1].

    `low` and `high` are what black and white are in the space of x; the mask keeps its gradient, x and A have none.
    """

    low: Float[Tensor, "c 1 1"]
    high: Float[Tensor, "c 1 1"]
    noise: float = 0.03  # added to what is kept
    colour: float = 0.33  # of what takes its place: uniform up to this, per channel
    grain: float = 0.11  # and noise around it
    blurred: float = 0.5  # share of the images whose rest is blurred instead
    sigma: float | None = None  # of the blur, in pixels; None: by the size of the image

    def __call__(self, x: Pictures, mask: Float[Tensor, "n 1 h w"], rest: Pictures) -> Pictures:
        return mask * x + (1 - mask) * rest

    def noisy(self, x: Pictures, generator: Generator) -> Pictures:
        """x', the image that is kept."""
        return (x + self.noise * self._span * _normal(x, generator)).detach() if self.noise else x.detach()

    def rest(self, x: Pictures, generator: Generator) -> Pictures:
        """A, the image that takes the place of what is removed."""
        shape = (len(x), x.shape[1], 1, 1)
        uniform = torch.rand(shape, generator=generator, device=x.device) * 2 - 1
        plain = self.colour * uniform.to(x.dtype) + self.grain * _normal(x, generator)
        chosen = torch.rand((len(x), 1, 1, 1), generator=generator, device=x.device) < self.blurred
        return torch.where(chosen, self.blur(x), self._centre + self._span * plain).detach()

    def blur(self, x: Pictures) -> Pictures:
        size = min(x.shape[2:])
        sigma = self.sigma or (2.0 if size <= 64 else 11 * size / 224)
        reach = min(int(2.46 * sigma), size - 1)  # 9 pixels wide at sigma 2, 55 at sigma 11
        at = torch.arange(-reach, reach + 1, device=x.device, dtype=x.dtype)
        weights = torch.softmax(-at.square() / (2 * sigma**2), 0)
        channels = x.shape[1]
        wide = F.pad(x, (reach,) * 4, mode="reflect")
        across = F.conv2d(wide, weights.view(1, 1, 1, -1).expand(channels, 1, 1, -1), groups=channels)
        return F.conv2d(across, weights.view(1, 1, -1, 1).expand(channels, 1, -1, 1), groups=channels)

    @property
    def _span(self) -> Tensor:
        return (self.high - self.low) / 2

    @property
    def _centre(self) -> Tensor:
        return (self.high + self.low) / 2


def _normal(x: Pictures, generator: Generator) -> Pictures:
    return torch.randn(x.shape, generator=generator, device=x.device, dtype=x.dtype)
