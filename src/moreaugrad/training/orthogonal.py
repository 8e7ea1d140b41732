"""Matrices that stay orthonormal while they are trained, and when they are stored in half precision."""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor, nn

from moreaugrad.model.lipschitz_bounds import spectral_norm
from moreaugrad.models.checkpoint import State
from moreaugrad.models.lipschitz import matrices

ROUNDS = 6  # of `polar`: enough after one step of training
ROUNDED_UP = 1e-11  # more than `spectral_norm` adds to a norm that is 1
STEP = 2.0**-13  # a quarter of the distance between numbers in half precision: less might change none of them


def polar(matrix: Float[Tensor, "m n"], rounds: int = ROUNDS) -> Float[Tensor, "m n"]:
    """U V' of the decomposition U S V': the nearest matrix with orthonormal rows or columns, by Newton and Schulz.

    Products of matrices only. First divided by a sure bound of its norm; then each round takes a singular value s to
    s (3 - s^2)/2, which grows towards 1, by 3/2 while it is small. The next call continues where this one stops.
    """
    wide = matrix.shape[0] < matrix.shape[1]
    a = matrix.mT if wide else matrix
    gram = a.mT @ a
    bound = torch.minimum(gram.abs().sum(1).max(), gram.norm())  # each at least the square of the spectral norm
    a = a * bound.clamp(min=torch.finfo(a.dtype).tiny).rsqrt()
    for _ in range(rounds):
        a = 1.5 * a - 0.5 * a @ (a.mT @ a)
    return a.mT if wide else a


def project(network: nn.Module) -> None:
    """After each step of training: every matrix to its polar factor, the rows of the last one to length 1."""
    *inner, head = matrices(network)
    with torch.no_grad():
        for layer in inner:
            layer.weight.copy_(polar(layer.weight.flatten(1)).view_as(layer.weight))
        head.weight.copy_(nn.functional.normalize(head.weight, dim=1))


def to_half(network: nn.Module) -> State:
    """The weights in half precision, with norms that do not exceed 1."""
    *_, head = matrices(network)
    found: State = {}
    for name, layer in network.named_modules():
        if layer in matrices(network):
            weight = layer.weight.detach().flatten(1).cpu().double()
            if layer is head:
                short = torch.cat([_shorten(row[None] / row.norm()) for row in weight])
            else:
                u, _, v = torch.linalg.svd(weight, full_matrices=False)
                short = _shorten(u @ v)
            found |= {
                f"{name}.weight": short.view(layer.weight.shape),
                f"{name}.bias": layer.bias.detach().cpu().half(),
            }
    return found


def _shorten(matrix: Float[Tensor, "m n"]) -> Float[Tensor, "m n"]:
    """In half precision, shortened until the norm is at most 1."""
    found, factor = matrix.half(), 1.0
    while (norm := spectral_norm(found)) > 1 + ROUNDED_UP:
        factor *= (1 - STEP) / norm
        found = (matrix * factor).half()
    return found
