"""Curvature of Gaussian averages h(x) = E f(x + sigma z): -lam <= Hess h <= beta. sigma must not depend on x.

Probabilities are carried as normal quantiles, in which a change of the input is a shift, and both tails keep their
digits. Never for a map on frozen noise, whose curvature is that of f.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from statistics import NormalDist

from moreaugrad.certificates import checks_theory as rules
from moreaugrad.certificates.theory.constants import lip_prox, lip_vanilla
from moreaugrad.validate import at_least, positive

_NORMAL = NormalDist()
_PEAK = _NORMAL.inv_cdf(math.erf(math.sqrt(0.5)))  # the quantile at which lam is largest: p = P(|z| < 1)
_ROUNDS = 1000  # of the local certificate; it may stop after any


@dataclass(frozen=True, slots=True)
class Curvature:
    """Bounds at the points where the average takes one value."""

    lam: float
    beta: float
    gradient: float  # the largest possible length of the gradient


@dataclass(frozen=True, slots=True)
class LocalCertificate:
    """What holds near one input: for all inputs within epsilon of it, the minimiser is within `radius` of it."""

    radius: float
    low: float  # on that ball the average, as a share of its range, or the length of its gradient, is in [low, high]
    high: float
    lam: float
    beta: float
    lip: float  # of the map, between any two inputs of the epsilon-ball; inf: no certificate, rho * lam >= 1

    @property
    def certified(self) -> bool:
        return math.isfinite(self.lip)


def lam_lipschitz(L: float, sigma: float) -> float:
    """L sqrt(2/pi)/sigma, lam and beta alike, for an L-Lipschitz f in any dimension."""
    rules.lipschitz(L)
    positive("sigma", sigma)
    return L * math.sqrt(2 / math.pi) / sigma


def lam_range(low: float, high: float, sigma: float) -> float:
    """2 phi(1) (high - low)/sigma^2, lam and beta alike, for any f with values in [low, high]."""
    rules.score_range(low, high)
    positive("sigma", sigma)
    return 2 * _NORMAL.pdf(1) * (high - low) / sigma**2


def gradient_cap(low: float, high: float, sigma: float) -> float:
    """phi(0) (high - low)/sigma: no gradient of the average is longer."""
    rules.score_range(low, high)
    positive("sigma", sigma)
    return _NORMAL.pdf(0) * (high - low) / sigma


def certified_rho(lam: float, theta: float = 0.5) -> float:
    """theta/lam: theta near 0 leaves the smoothed gradient, at 1 the minimiser is no longer unique."""
    positive("lam", lam)
    rules.between("theta", theta, "the share of the largest certified rho; 0.5 is usual")
    return theta / lam


def mean_noise_norm(size: int, sigma: float = 1.0) -> float:
    """E|sigma z| = sigma sqrt(2) Gamma((d + 1)/2)/Gamma(d/2) in d = size dimensions."""
    at_least("size", size, 1)
    positive("sigma", sigma)
    return sigma * math.sqrt(2) * math.exp(math.lgamma((size + 1) / 2) - math.lgamma(size / 2))


def curvature_at(p: float, sigma: float = 1.0, width: float = 1.0) -> Curvature:
    """Sharp bounds where the average is at the share p of its range `width`.

    lam(p) = 2 t phi(t) width/sigma^2 with P(|z| < t) = p, beta(p) = lam(1 - p), |grad| <= phi(Phi^-1(p)) width/sigma.
    """
    rules.share("p", p)
    positive("sigma", sigma)
    positive("width", width)
    scale = width / sigma**2
    return Curvature(_bend(p, 1 - p) * scale, _bend(1 - p, p) * scale, _density(_quantile(p)) * width / sigma)


def local_certificate(
    p_lo: float, p_hi: float, sigma: float, rho: float, epsilon: float, penalised: bool = True, width: float = 1.0
) -> LocalCertificate:
    """Constants near an input whose average lies in [p_lo, p_hi], as shares of the range `width`.

    All minimisers of inputs within epsilon lie within r = epsilon + rho * (longest gradient) of it; on that ball the
    average stays in an interval, which shortens the gradients, and r again. It can certify a rho above that of
    lam_range where the average is near an end of its range. `penalised`: there is a prior.
    """
    rules.probabilities(p_lo, p_hi)
    for name, value in (("sigma", sigma), ("rho", rho), ("width", width)):
        positive(name, value)
    rules.radius(epsilon)
    pull = rho * width / sigma
    first, last = _quantile(p_lo), _quantile(p_hi)
    radius = epsilon + pull * _NORMAL.pdf(0)
    for _ in range(_ROUNDS):
        ends = first - radius / sigma, last + radius / sigma
        before, radius = radius, epsilon + pull * _density(_clip(0.0, *ends))
        if before - radius <= 1e-13 * before:
            break
    lam, beta = (_bend_at(sign * _clip(sign * _PEAK, *ends)) * width / sigma**2 for sign in (1, -1))
    lip = math.inf
    if rho * lam < 1:
        lip = (lip_prox if penalised else lip_vanilla)(rho, lam, beta)
    return LocalCertificate(radius, _below(ends[0]), _below(ends[1]), lam, beta, lip)


def _quantile(p: float) -> float:
    """Phi^-1, at the ends too."""
    if p in (0, 1):
        return math.inf if p else -math.inf
    return -_NORMAL.inv_cdf(1 - p) if p > 0.5 else _NORMAL.inv_cdf(p)


def _density(z: float) -> float:
    return math.exp(-z * z / 2) / math.sqrt(2 * math.pi)


def _below(z: float) -> float:
    """Phi, with all digits in its lower tail."""
    return math.erfc(-z / math.sqrt(2)) / 2


def _clip(value: float, low: float, high: float) -> float:
    return min(max(value, low), high)


def _bend_at(z: float) -> float:
    return _bend(_below(z), _below(-z))


def _bend(p: float, q: float) -> float:
    """2 t phi(t) where P(|z| < t) = p = 1 - q; both are given, for one of them has the digits."""
    if p == 0 or q / 2 == 0:
        return 0.0
    if p >= 0.5:
        t = -_NORMAL.inv_cdf(q / 2)
    else:
        t = _NORMAL.inv_cdf(0.5 + p / 2)
        for _ in range(2):  # the sum above lost the digits of a small p; Newton brings them back
            t -= (math.erf(t / math.sqrt(2)) - p) / (2 * _density(t))
    return 2 * t * _density(t)
