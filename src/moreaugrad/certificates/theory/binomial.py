"""Exact bounds for shares of independent draws: Clopper and Pearson's intervals, and where a new count will lie.

P(X >= k) for X of `samples` draws at p is the regularised incomplete beta function I_p(k, samples - k + 1). Ends are
rounded outwards.
"""

from __future__ import annotations

import math
from functools import lru_cache
from typing import TypeAlias

import torch
from jaxtyping import Float, Int
from torch import Tensor

from moreaugrad.certificates.theory.noise import kl_lower

Counts: TypeAlias = Int[Tensor, "d"]
Shares: TypeAlias = Float[Tensor, "d"]

_STEPS = 50
_TABLE = 20_000  # the most samples of which all limits are kept
_TERMS = 20_000  # of the continued fraction; about sqrt(samples) are needed
_EXACT = 1e-13  # of the fraction
_OUTWARDS = 1e-9  # of a tail, more than the fraction's error


def clopper_pearson(counts: Counts, samples: int, alpha: float) -> tuple[Shares, Shares]:
    """The limits of each share, each of which is wrong with probability at most alpha, whatever the share is."""
    if samples <= _TABLE:  # one table serves all images
        table = _all_limits(samples, alpha)
        return table[counts], 1 - table[samples - counts]
    found, place = counts.unique(return_inverse=True)  # few of many entries differ
    mirrored, again = (samples - counts).unique(return_inverse=True)
    lower = _lower_limit(found, samples, alpha)[place]
    return lower, 1 - _lower_limit(mirrored, samples, alpha)[again]


@lru_cache(maxsize=8)
def _all_limits(samples: int, alpha: float) -> Shares:
    return _lower_limit(torch.arange(samples + 1), samples, alpha)


def _lower_limit(counts: Counts, samples: int, alpha: float) -> Shares:
    """The largest p at which so many votes or more are still as rare as alpha, from below.

    The tail is log-concave in p, so Newton's steps from a smaller p, here Chernoff's limit, never pass it.
    """
    k, wanted = counts.clamp_min(1).double(), math.log(alpha) - _OUTWARDS
    p = kl_lower(k / samples, samples, -wanted)
    for _ in range(_STEPS):
        tail, density = _tail_and_density(k, samples, p)
        step = (wanted - tail.log()) * tail / density
        p = p + step.clamp_min(0)
        if bool((step <= 1e-12 * p).all()):
            break
    return torch.where(counts == 0, 0.0, p * (1 - _OUTWARDS))


def predict_counts(lower: Shares, upper: Shares, samples: int, alpha: float) -> tuple[Shares, Shares]:
    """Between which numbers of votes so many new draws will lie, at shares in [lower, upper]; alpha for each side."""
    (low, place), (high, again) = (each.unique(return_inverse=True) for each in (lower, 1 - upper))
    return _least_count(low, samples, alpha)[place], samples - _least_count(high, samples, alpha)[again]


def _least_count(p: Shares, samples: int, alpha: float) -> Shares:
    """The largest c that fewer votes than c are as rare as alpha."""
    low, high = torch.zeros_like(p), torch.full_like(p, float(samples))
    for _ in range(samples.bit_length() + 1):
        middle = ((low + high + 1) / 2).floor()
        rare = upper_tail(samples - middle + 1, samples, 1 - p) <= alpha * (1 - _OUTWARDS)
        low, high = torch.where(rare, middle, low), torch.where(rare, high, (middle - 1).clamp_min(0))
    return low


def upper_tail(k: Shares, samples: int, p: Shares) -> Shares:
    """P(at least k of so many draws), each with probability p."""
    tail = _tail_and_density(k, samples, p)[0]
    tail = torch.where(p <= 0, 0.0, torch.where(p >= 1, 1.0, tail))
    return torch.where(k <= 0, 1.0, torch.where(k > samples, 0.0, tail))


def _tail_and_density(k: Shares, samples: int, p: Shares) -> tuple[Shares, Shares]:
    """The tail for k from 1 to the number of draws, and its derivative by p."""
    inner, k = p.clamp(1e-300, 1 - 1e-16), k.clamp(1, samples)
    a, b = k, samples - k + 1
    swap = inner > (a + 1) / (a + b + 2)  # there the fraction of the other tail converges quickly
    x, a, b = torch.where(swap, 1 - inner, inner), torch.where(swap, b, a), torch.where(swap, a, b)
    scale = torch.lgamma(a + b) - torch.lgamma(a) - torch.lgamma(b) + a * x.log() + b * torch.log1p(-x)
    tail = scale.exp() * _beta_fraction(x, a, b) / a
    return torch.where(swap, 1 - tail, tail), scale.exp() / (x * (1 - x))


def _beta_fraction(x: Shares, a: Shares, b: Shares) -> Shares:
    """The continued fraction of I_x(a, b), by Lentz's recursion."""
    d = 1 / (1 - (a + b) * x / (a + 1))
    c, found = torch.ones_like(x), d
    for m in range(1, _TERMS):
        before = found
        for term in (
            m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m)),
            -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1)),
        ):
            d, c = 1 / (1 + term * d), 1 + term / c
            found = found * c * d
        if bool(((found - before).abs() <= _EXACT * found.abs()).all()):
            return found
    raise ArithmeticError(f"the binomial tail did not converge in {_TERMS} terms")
