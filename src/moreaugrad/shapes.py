"""The operations between a batch and one number per image that everyone needs."""

from __future__ import annotations

import torch
from torch import Tensor

from moreaugrad.contracts import Flags, Images, PerImage


def total(x: Images) -> PerImage:
    """Sum of each image, the same in any company.

    How a sum is split over threads depends on the shape of the batch; added up in float64 and rounded once,
    the order no longer shows. A last digit would: the kinks of a network amplify it.
    """
    wide = x.dtype if x.device.type == "mps" else torch.float64
    return x.flatten(1).sum(1, dtype=wide).to(x.dtype)


def norm(x: Images) -> PerImage:
    """Euclidean norm of each image."""
    return total(x.square()).sqrt()


def spread(number: PerImage | Flags, over: Images | Flags) -> Tensor:
    """One number per image, shaped to broadcast over a batch."""
    return number.view(-1, *[1] * (over.ndim - 1))
