"""The Hessian of a smoothed score from first gradients alone: it sees the kinks that a second derivative misses."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from moreaugrad import validate
from moreaugrad.model.noise import antithetic
from moreaugrad.model.smoothing import SmoothedScore
from moreaugrad.types import Images


@dataclass(frozen=True, eq=False)
class Covariance:
    """H v = E[(g - E g) <z, v> + z <g - E g, v>] / (2 sigma), g the gradient at x + sigma z: Stein's identity.

    Unbiased up to (m - 1)/m, but noisy, of rank 2 m at most and perhaps indefinite: for few steps of a solve.
    """

    grads: Float[Tensor, "n m *shape"]  # centred, over sigma
    noise: Float[Tensor, "m *shape"]

    @classmethod
    def of(cls, draws: Sequence[tuple[Any, int]], at: Images) -> Covariance:
        """From the gradients at x under the noise of some draws."""
        grads, noise = [], []
        for score, draw in draws:
            validate.under_noise(isinstance(score, SmoothedScore))
            found = torch.empty(len(at), score.samples, *at.shape[1:], dtype=at.dtype, device=at.device)
            for some, _, grad in score.each(at, draw, score.samples):
                found[some] = grad
            grads.append(found / score.sigma[:, None])
            noise.append(antithetic(tuple(at.shape[1:]), score.samples, score.seed, draw if score.random else 0, at))
        every = torch.cat(grads, 1)
        return cls(every - every.mean(1, keepdim=True), torch.cat(noise))

    def __call__(self, v: Images) -> Images:
        grads, noise, flat = self.grads.flatten(2), self.noise.flatten(1), v.flatten(1)
        of_noise = flat @ noise.T  # (n, m)
        of_grads = torch.einsum("nmd,nd->nm", grads, flat)
        both = torch.einsum("nm,nmd->nd", of_noise, grads) + of_grads @ noise
        return (both / (2 * len(noise))).view_as(v)
