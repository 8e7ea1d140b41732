"""Where an attack may go: a ball around each input, and the box of what a picture can be.

All lengths are in the units of the tensor that is explained. Knows no model and no objective.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from moreaugrad.batch import norm, spread
from moreaugrad.model.smoothing import antithetic, independent_seed
from moreaugrad.types import Images, PerImage

NORMS = ("l2", "linf")


@dataclass(frozen=True, eq=False)
class Space:
    """The points within `epsilon` of x that lie between low and high. x itself must be one of them."""

    x: Images
    epsilon: float
    norm: str  # l2 or linf
    low: Tensor | None = None  # broadcasts over x
    high: Tensor | None = None

    def project(self, at: Images) -> Images:
        """The nearest point of the ball, then of the box: x is in the box, so clipping never leaves the ball."""
        delta = at - self.x
        if self.norm == "linf":
            delta = delta.clamp(-self.epsilon, self.epsilon)
        else:
            length = norm(delta).clamp_min(torch.finfo(delta.dtype).tiny)
            delta = delta * spread((self.epsilon / length).clamp_max(1), delta)
        return self.moved(delta)

    def moved(self, delta: Images) -> Images:
        """x + delta in the box. The sum has the digits of x, so where rounding left the ball it is rounded inwards."""
        at = self.clip(self.x + delta)
        over = self.length(at) > self.epsilon * (1 + 5e-7)
        if not bool(over.any()):
            return at
        further = (at - self.x).abs() > delta.abs().clamp_max(self.epsilon)
        return torch.where(spread(over, at) & further, torch.nextafter(at, self.x), at)

    def clip(self, at: Images) -> Images:
        return at if self.low is None and self.high is None else at.clamp(self.low, self.high)

    def length(self, at: Images) -> PerImage:
        """How far each image is from where it began, in the norm of the ball."""
        return distance(at - self.x, self.norm)

    def random(self, seed: int, draw: int, surface: bool = True) -> Images:
        """A random point: on the sphere (uniform), or in the ball; the same direction for all images of a batch."""
        shape = tuple(self.x.shape[1:])
        towards = antithetic(shape, 1, independent_seed(seed, 0), draw, self.x)
        if self.norm == "linf":  # normal to uniform in (-1, 1), or its sign for the corners
            towards = towards.sign() if surface else torch.erf(towards / 2**0.5)
        else:
            towards = towards / norm(towards).view(-1, *[1] * len(shape))
            inner = (
                antithetic((1,), 1, independent_seed(seed, 1), draw, self.x)
                .div(2**0.5)
                .erf()
                .abs()
                .pow(1 / self.x[0].numel())
            )
            towards = towards if surface else towards * inner.view(-1, *[1] * len(shape))
        return self.moved((self.epsilon * towards).expand_as(self.x))


def distance(delta: Images, kind: str) -> PerImage:
    return delta.flatten(1).abs().amax(1) if kind == "linf" else norm(delta)


def pixels(delta: Images, box: tuple[Any, Any] | None) -> Images | None:
    """A displacement in steps of 8-bit pixels, where the box of the input tells how wide those are."""
    if box is None:
        return None
    low, high = (torch.as_tensor(end, device=delta.device, dtype=delta.dtype) for end in box)
    return delta * (255 / (high - low))
