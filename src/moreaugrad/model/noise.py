"""Gaussian noise that depends on the seed, the draw and the sample alone.

So a map is the same alone, in a batch, in any chunking and in any process. The global random
state is never read or written.
"""

from __future__ import annotations

import secrets
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from moreaugrad import validate
from moreaugrad.types import Images


@dataclass(frozen=True, slots=True)
class Smoothing:
    """Averages the score over x + N(0, sigma^2): E f(x + z).

    Relative noise is sigma = noise_level * (max x - min x), per image. Samples come in antithetic pairs.
    """

    noise_level: float | None = None  # relative to each image's range; 0.1 where neither is given
    samples: int = 8  # noise vectors per step; a pair counts two
    sigma: float | None = None  # absolute, in the units of the input
    fixed: bool = False  # the same noise at every step: a deterministic problem, for tests and attacks

    def __post_init__(self) -> None:
        validate.smoothing(self.noise_level, self.samples, self.sigma)
        if self.noise_level is None and self.sigma is None:
            object.__setattr__(self, "noise_level", 0.1)

    def scale(self, x: Images) -> Tensor:
        """sigma of each image, shaped to broadcast over it."""
        shape = (len(x), *[1] * (x.ndim - 1))
        if self.sigma is not None:
            return x.new_full(shape, self.sigma)
        assert self.noise_level is not None
        flat = x.flatten(1)
        return self.noise_level * (flat.amax(1) - flat.amin(1)).view(shape)


def settle(seed: int | torch.Generator | None) -> int:
    """The number that a seed stands for; None takes a fresh one, which the result records."""
    if isinstance(seed, torch.Generator):
        return int(torch.randint(2**62, (), generator=seed, device=seed.device))
    return secrets.randbits(62) if seed is None else int(seed)


def apart(seed: int, purpose: int) -> int:
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
