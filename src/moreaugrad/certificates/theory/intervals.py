"""Intervals that hold all means of a map with entries in [0, 1] at once, with probability 1 - alpha.

Each takes the averages of `samples` independent maps and shares alpha among the entries and the two sides.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TypeAlias

import torch
from jaxtyping import Float
from torch import Tensor

from moreaugrad.certificates import checks_theory as rules

Entries: TypeAlias = Float[Tensor, "d"]
Bound: TypeAlias = Callable[[Entries, int, float, Entries | None], tuple[Entries, Entries]]


def hoeffding(means: Entries, samples: int, alpha: float, variance: Entries | None = None) -> tuple[Entries, Entries]:
    """means -+ sqrt(ln(2 d/alpha)/(2 samples)): one width for all, known before any sample is drawn."""
    width = hoeffding_width(len(means), samples, alpha)
    return (means - width).clamp(min=0), (means + width).clamp(max=1)


def hoeffding_width(entries: int, samples: int, alpha: float) -> float:
    return math.sqrt(math.log(2 * entries / alpha) / (2 * samples))


def bernstein(means: Entries, samples: int, alpha: float, variance: Entries | None = None) -> tuple[Entries, Entries]:
    """means -+ sqrt(2 V t/samples) + 7 t/(3 (samples - 1)), t = ln(4 d/alpha); V the variances among the samples.

    Without them, the largest that entries in [0, 1] with these means can have, which maps of 0 and 1 do have.
    """
    most = means * (1 - means) * samples / (samples - 1)
    used = most if variance is None else torch.minimum(variance, most)
    t = math.log(4 * len(means) / alpha)
    width = (2 * used * t / samples).sqrt() + 7 * t / (3 * (samples - 1))
    return (means - width).clamp(min=0), (means + width).clamp(max=1)


def kl(means: Entries, samples: int, alpha: float, variance: Entries | None = None) -> tuple[Entries, Entries]:
    """{q : samples kl(mean, q) <= ln(2 d/alpha)}: never wider than Hoeffding's, much narrower near 0 and 1."""
    t = math.log(2 * len(means) / alpha)
    return kl_lower(means, samples, t), 1 - kl_lower(1 - means, samples, t)


def clopper_pearson(
    means: Entries, samples: int, alpha: float, variance: Entries | None = None
) -> tuple[Entries, Entries]:
    """Exact binomial limits at level alpha/(2 d) per side: the narrowest, for independent maps of 0 and 1 alone."""
    counts, where = rules.counts(means, samples).unique(return_inverse=True)
    t = math.log(2 * len(means) / alpha)
    lower, upper = binomial_lower(counts, samples, t), 1 - binomial_lower(samples - counts, samples, t)
    return lower[where], upper[where]


def kl_lower(means: Entries, samples: int, t: float) -> Entries:
    """The smallest q with samples kl(mean, q) <= t, from below."""
    low, high, rest = (means - math.sqrt(t / (2 * samples))).clamp(min=0), means.clone(), 1 - means
    own = torch.xlogy(means, means) + torch.xlogy(rest, rest)
    for _ in range(60):
        q = (low + high) / 2
        inner = q.clamp(torch.finfo(q.dtype).tiny, 1 - torch.finfo(q.dtype).eps)  # 0 log 0 is 0
        outside = samples * (own - means * inner.log() - rest * torch.log1p(-inner)) > t
        low, high = torch.where(outside, q, low), torch.where(outside, high, q)
    return low


def binomial_lower(counts: Entries, samples: int, t: float) -> Entries:
    """The p at which ln P(Bin(samples, p) >= count) = -t, from below; 0 for a count of 0.

    That logarithm is concave in p, so Newton's method from the left, where Chernoff's bound is, never passes it.
    """
    some = counts[counts > 0]
    n = torch.tensor(float(samples), dtype=counts.dtype)
    ways = torch.lgamma(n + 1) - torch.lgamma(some + 1) - torch.lgamma(n - some + 1)
    start = kl_lower(some / n, samples, t)
    p = start.clamp(min=torch.finfo(counts.dtype).tiny)
    for _ in range(60):
        tail = _tail(some, samples, p)
        value = ways + some * p.log() + torch.special.xlog1py(n - some, -p) + tail.log()
        step = ((-t - value) * p * tail / some).clamp(min=0)
        p = p + step
        if not bool((step > 1e-14 * p).any()):
            break
    found = torch.zeros_like(counts)
    found[counts > 0] = torch.maximum(p * (1 - 4e-16 * torch.lgamma(n + 1)), start)  # `ways` has lost some digits
    return found


def _tail(counts: Entries, samples: int, p: Entries) -> Entries:
    """P(Bin >= count)/P(Bin = count), by its terms, which fall because p is below count/samples."""
    odds = p / (1 - p)
    term, total = torch.ones_like(p), torch.ones_like(p)
    for more in range(samples):
        term = term * ((samples - counts - more).clamp(min=0) / (counts + 1 + more)) * odds
        total = total + term
        if not bool((term > 1e-17 * total).any()):
            break
    return total


BOUNDS: dict[str, Bound] = {
    "hoeffding": hoeffding,
    "bernstein": bernstein,
    "clopper": clopper_pearson,
    "kl": kl,
}
