"""The two operations between a batch and one number per image that everyone needs."""

from __future__ import annotations

from torch import Tensor

from moreaugrad.contracts import Flags, Images, PerImage


def norm(x: Images) -> PerImage:
    """Euclidean norm of each image."""
    return x.flatten(1).square().sum(1).sqrt()


def spread(number: PerImage | Flags, over: Images | Flags) -> Tensor:
    """One number per image, shaped to broadcast over a batch."""
    return number.view(-1, *[1] * (over.ndim - 1))
