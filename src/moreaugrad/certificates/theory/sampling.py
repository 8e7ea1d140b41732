"""How far an average over noise may be from its mean, with probability 1 - alpha.

Everywhere the samples are independent: an antithetic pair counts as one. The input is fixed before the noise is
drawn. Several statements: divide alpha by their number.
"""

from __future__ import annotations

import math
from typing import Any

import torch

from moreaugrad.certificates import checks_theory as rules
from moreaugrad.certificates.theory.intervals import kl_lower
from moreaugrad.validate import at_least, not_negative, positive

# the variance proxy of (f - 1/2)<v, z> for f in [0, 1] and a unit v: a supremum over two numbers, 0.402181; the value
# that needs no numerics is 1
PROXY = 0.4022


def kl_interval(p_hat: float, m: int, alpha: float) -> tuple[float, float]:
    """{q : m kl(p_hat, q) <= ln(2/alpha)}: holds the mean of m values in [0, 1] whose average is p_hat."""
    rules.share("p_hat", p_hat)
    at_least("m", m, 1)
    rules.level(alpha)
    ends = torch.tensor([p_hat, 1 - p_hat], dtype=torch.float64)
    low, high = kl_lower(ends, m, math.log(2 / alpha)).tolist()
    return low, 1 - high


def err_backprop(L: float, m: int, alpha: float) -> float:
    """(L/sqrt(m)) (1 + sqrt(2 ln(1/alpha))): of the mean gradient of an L-Lipschitz score, in any dimension."""
    rules.lipschitz(L)
    at_least("m", m, 1)
    rules.level(alpha)
    return L / math.sqrt(m) * (1 + math.sqrt(2 * math.log(1 / alpha)))


def err_bernstein(L: float, V: float, m: int, alpha: float) -> float:
    """sqrt(2 V t/m) + 4 L t/(3 m), t = ln(2/alpha); V bounds E|grad f - grad h|^2 (see variance_bound)."""
    rules.lipschitz(L)
    not_negative("V", V)
    at_least("m", m, 1)
    rules.level(alpha)
    t = math.log(2 / alpha)
    return math.sqrt(2 * V * t / m) + 4 * L * t / (3 * m)


def variance_bound(halves: Any, L: float, alpha: float) -> float:
    """The V of err_bernstein from data: halves are |g - g'|^2/2 of disjoint pairs of sample gradients."""
    rules.lipschitz(L)
    rules.level(alpha)
    values = rules.entries("halves", halves)
    n = values.numel()
    at_least("the number of halves", n, 2)
    t = math.log(2 / alpha)
    sure = 2 * L**2  # no pair is further apart than 2 L
    estimate = float(values.mean()) + math.sqrt(2 * float(values.var()) * t / n) + 7 * sure * t / (3 * (n - 1))
    return min(estimate, float(L) ** 2)


def err_stein(k: int, m: int, alpha: float, sigma: float, width: float, proxy: float = PROXY) -> float:
    """(width/sigma) sqrt(proxy (k + 2 sqrt(k t) + 2 t)/m), t = ln(1/alpha): of the score-function estimator

    (1/(m sigma)) sum (f(x + sigma z_i) - middle) z_i on k coordinates, for any f whose range is that wide and has that
    middle. The mean of backpropagated gradients has no such bound.
    """
    at_least("k", k, 1)
    at_least("m", m, 1)
    rules.level(alpha)
    for name, value in (("sigma", sigma), ("width", width), ("proxy", proxy)):
        positive(name, value)
    t = math.log(1 / alpha)
    return width / sigma * math.sqrt(proxy * (k + 2 * math.sqrt(k * t) + 2 * t) / m)
