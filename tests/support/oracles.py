"""Slow second derivations, written from the definitions and sharing no code with the package."""

from __future__ import annotations

import torch
from torch import Tensor


def soft(v: Tensor, amount: float) -> Tensor:
    """Soft threshold, entry by entry, with the sign and the size taken apart."""
    return torch.sign(v) * torch.relu(v.abs() - amount)


def soft_groups(v: Tensor, labels: Tensor, amount: float) -> Tensor:
    """Group soft threshold: one group at a time."""
    out = torch.zeros_like(v)
    for group in labels.unique():
        member = labels == group
        size = v[:, member].norm(dim=1, keepdim=True)
        out[:, member] = v[:, member] * torch.where(size > amount, 1 - amount / size.clamp_min(1e-300), 0.0)
    return out


def minimise(score, x: Tensor, rho: float, threshold, gamma: float, steps: int) -> Tensor:
    """argmin over delta of score(x + delta) + |delta|^2/(2 rho) + prior, by many plain proximal steps."""
    delta = torch.zeros_like(x)
    for _ in range(steps):
        point = (x + delta).detach().requires_grad_()
        (grad,) = torch.autograd.grad(score(point).sum(), point)
        delta = threshold(delta - gamma * (grad + delta / rho), gamma)
    return delta
