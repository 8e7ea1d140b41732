"""What noise does to a score: the curvature of Gaussian averages h(x) = E f(x + sigma z), and errors of sampled means.

-lam <= Hess h <= beta. Samples are independent (an antithetic pair counts as one) and the input is fixed before they
are drawn. Probabilities are carried as normal quantiles, in which a change of the input is a shift.
"""

from __future__ import annotations

import math
from statistics import NormalDist
from typing import Any, NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from moreaugrad.certificates.theory.maps import check, lip_prox, lip_vanilla, read_entries
from moreaugrad.envelope.envelope import range_curvature
from moreaugrad.model.bounded import check_range
from moreaugrad.validate import at_least, number

_NORMAL = NormalDist()
_PEAK = _NORMAL.inv_cdf(math.erf(math.sqrt(0.5)))  # the quantile at which lam is largest: p = P(|z| < 1)
_MOST = math.sqrt(2 / math.pi)  # at a zero gradient: the constant of lam_lipschitz
_SLACK = 1 + 1e-12  # relative, upwards: the sums of _moments are right to 1e-13
_ROUNDING = 1e-14  # of a length, as a share of L: near L it decides how far off the gradient is still long
_ROUNDS = 1000  # of each iteration; all may stop after any
# the variance proxy of (f - 1/2)<v, z> for f in [0, 1] and a unit v: a supremum over two numbers, 0.402181; the value
# that needs no numerics is 1
PROXY = 0.4022


class Curvature(NamedTuple):
    """Bounds at the points where the average takes one value."""

    lam: float
    beta: float
    gradient: float  # the largest possible length of the gradient


class LocalCertificate(NamedTuple):
    """What holds near one input: for all inputs within epsilon of it, the minimiser is within `radius` of it."""

    radius: float
    low: float  # on that ball the average, as a share of its range, or the length of its gradient, is in [low, high]
    high: float
    lam: float
    beta: float
    lip: float  # of the map, between any two inputs of the epsilon-ball; inf: no certificate, rho * lam >= 1


def lam_lipschitz(L: float, sigma: float) -> float:
    """L sqrt(2/pi)/sigma, lam and beta alike, for an L-Lipschitz f in any dimension."""
    check(L=L, sigma=sigma)
    return L * math.sqrt(2 / math.pi) / sigma


def lam_range(low: float, high: float, sigma: float) -> float:
    """2 phi(1) (high - low)/sigma^2, lam and beta alike, for any f with values in [low, high]."""
    check_range(low, high)
    check(sigma=sigma)
    return range_curvature(low, high, sigma)


def gradient_cap(low: float, high: float, sigma: float) -> float:
    """phi(0) (high - low)/sigma: no gradient of the average is longer."""
    check_range(low, high)
    check(sigma=sigma)
    return _NORMAL.pdf(0) * (high - low) / sigma


def curvature_at(p: float, sigma: float = 1.0, width: float = 1.0) -> Curvature:
    """Sharp bounds where the average is at the share p of its range `width`.

    lam(p) = 2 t phi(t) width/sigma^2 with P(|z| < t) = p, beta(p) = lam(1 - p), |grad| <= phi(Phi^-1(p)) width/sigma.
    """
    check(p=p, sigma=sigma, width=width)
    scale = width / sigma**2
    return Curvature(_bend(p, 1 - p) * scale, _bend(1 - p, p) * scale, _NORMAL.pdf(_quantile(p)) * width / sigma)


def local_certificate(
    p_lo: float, p_hi: float, sigma: float, rho: float, epsilon: float, penalised: bool = True, width: float = 1.0
) -> LocalCertificate:
    """Constants near an input whose average lies in [p_lo, p_hi], as shares of the range `width`.

    All minimisers of inputs within epsilon lie within r = epsilon + rho * (longest gradient) of it; on that ball the
    average stays in an interval, which shortens the gradients, and r again. `penalised`: there is a prior.
    """
    for name, value in (("p_lo", p_lo), ("p_hi", p_hi)):
        number(name, value)
    if not 0 <= p_lo <= p_hi <= 1:
        raise ValueError(
            f"the score must lie in 0 <= p_lo <= p_hi <= 1, got p_lo={p_lo!r} and p_hi={p_hi!r}; "
            "give (score - low)/(high - low), and width=high - low, for another range"
        )
    check(sigma=sigma, rho=rho, width=width, epsilon=epsilon)
    pull, first, last = rho * width / sigma, _quantile(p_lo), _quantile(p_hi)
    radius = epsilon + pull * _NORMAL.pdf(0)
    for _ in range(_ROUNDS):
        ends = first - radius / sigma, last + radius / sigma
        before, radius = radius, epsilon + pull * _NORMAL.pdf(_clip(0.0, *ends))
        if before - radius <= 1e-13 * before:
            break
    peaks = [sign * _clip(sign * _PEAK, *ends) for sign in (1, -1)]
    lam, beta = (_bend(_below(z), _below(-z)) * width / sigma**2 for z in peaks)
    return LocalCertificate(radius, _below(ends[0]), _below(ends[1]), lam, beta, lip_map(rho, lam, beta, penalised))


def bend_lipschitz(r: float, L: float = 1.0, sigma: float = 1.0) -> float:
    """lam and beta alike where the gradient of the average is at least r long; it falls from lam_lipschitz to 0 at L.

    (1/sigma) min over m of L E sqrt(t^2 + m^2) - m r; with K the modified Bessel functions, for L = sigma = 1:
    sqrt(2/pi) a e^a (K1(a) - K0(a)) at r = sqrt(2a/pi) e^a K0(a), about sqrt(2(1 - r)) near 1.
    """
    check(L=L, sigma=sigma)
    _check_length(r, r, L)
    return L / sigma * _steep_bend(_missing(r, L))


def lam_steep(r: float, radius: float, L: float, sigma: float) -> float:
    """lam and beta alike on the ball of that radius around a point where the gradient is at least r long.

    bend_lipschitz of the shortest gradient there: Phi^-1((1 + |grad h|/L)/2) falls by radius/sigma at most.
    """
    check(L=L, sigma=sigma, radius=radius)
    _check_length(r, r, L)
    return L / sigma * _steep_bend(_missing_within(r, radius / sigma, L))


def local_lipschitz(
    r_lo: float, L: float, sigma: float, rho: float, epsilon: float, penalised: bool = True, r_hi: float | None = None
) -> LocalCertificate:
    """Constants near an input where the gradient of the average is surely r_lo to r_hi (None: L) long.

    All minimisers of inputs within epsilon lie within radius = epsilon + rho * (longest gradient) of it; lam_steep on
    that ball is lam and beta. `penalised`: there is a prior.
    """
    check(L=L, sigma=sigma, rho=rho, epsilon=epsilon)
    r_hi = L if r_hi is None else r_hi
    _check_length(r_lo, r_hi, L)
    last = _steep_quantile(max(0.0, _missing(r_hi, L) - _ROUNDING))
    radius = epsilon + rho * L
    for _ in range(_ROUNDS):
        high = L * min(1.0, _SLACK * math.erf((last + radius / sigma) / math.sqrt(2)))
        before, radius = radius, min(radius, epsilon + rho * high)
        if before - radius <= 1e-13 * before:
            break
    missing = _missing_within(r_lo, radius / sigma, L)
    lam = L / sigma * _steep_bend(missing)
    return LocalCertificate(radius, L * (1 - missing), high, lam, lam, lip_map(rho, lam, lam, penalised))


def lip_map(rho: float, lam: float, beta: float, penalised: bool) -> float:
    """The constant of the map; inf where the minimiser need not be unique."""
    return math.inf if rho * lam >= 1 else (lip_prox if penalised else lip_vanilla)(rho, lam, beta)


def kl_interval(p_hat: float, m: int, alpha: float) -> tuple[float, float]:
    """{q : m kl(p_hat, q) <= ln(2/alpha)}: holds the mean of m values in [0, 1] whose average is p_hat."""
    check(p_hat=p_hat, m=m, alpha=alpha)
    ends = torch.tensor([p_hat, 1 - p_hat], dtype=torch.float64)
    low, high = kl_lower(ends, m, math.log(2 / alpha)).tolist()
    return low, 1 - high


def err_backprop(L: float, m: int, alpha: float) -> float:
    """(L/sqrt(m)) (1 + sqrt(2 ln(1/alpha))): of the mean gradient of an L-Lipschitz score, in any dimension."""
    check(L=L, m=m, alpha=alpha)
    return L / math.sqrt(m) * (1 + math.sqrt(2 * math.log(1 / alpha)))


def err_bernstein(L: float, V: float, m: int, alpha: float) -> float:
    """sqrt(2 V t/m) + 4 L t/(3 m), t = ln(2/alpha); V bounds E|grad f - grad h|^2 (see variance_bound)."""
    check(L=L, V=V, m=m, alpha=alpha)
    t = math.log(2 / alpha)
    return math.sqrt(2 * V * t / m) + 4 * L * t / (3 * m)


def variance_bound(halves: Any, L: float, alpha: float) -> float:
    """The V of err_bernstein from data: halves are |g - g'|^2/2 of disjoint pairs of sample gradients."""
    check(L=L, alpha=alpha)
    values = read_entries("halves", halves)
    n = values.numel()
    at_least("the number of halves", n, 2)
    t = math.log(2 / alpha)
    sure = 2 * L**2  # no two gradients differ by more than 2 L
    estimate = float(values.mean()) + math.sqrt(2 * float(values.var()) * t / n) + 7 * sure * t / (3 * (n - 1))
    return min(estimate, float(L) ** 2)


def err_stein(k: int, m: int, alpha: float, sigma: float, width: float) -> float:
    """(width/sigma) sqrt(PROXY (k + 2 sqrt(k t) + 2 t)/m), t = ln(1/alpha): of the score-function estimator.

    That is (1/(m sigma)) sum (f(x + sigma z_i) - middle) z_i on k coordinates, for any f of that range and middle.
    """
    check(k=k, m=m, alpha=alpha, sigma=sigma, width=width)
    t = math.log(1 / alpha)
    return width / sigma * math.sqrt(PROXY * (k + 2 * math.sqrt(k * t) + 2 * t) / m)


def kl_lower(means: Float[Tensor, "d"], samples: int, t: float) -> Float[Tensor, "d"]:
    """The smallest q with samples kl(mean, q) <= t, from below."""
    low, high, rest = (means - math.sqrt(t / (2 * samples))).clamp(min=0), means.clone(), 1 - means
    own = torch.xlogy(means, means) + torch.xlogy(rest, rest)
    for _ in range(60):
        q = (low + high) / 2
        inner = q.clamp(torch.finfo(q.dtype).tiny, 1 - torch.finfo(q.dtype).eps)  # 0 log 0 is 0
        outside = samples * (own - means * inner.log() - rest * torch.log1p(-inner)) > t
        low, high = torch.where(outside, q, low), torch.where(outside, high, q)
    return low


def _quantile(p: float) -> float:
    """Phi^-1, at the ends too."""
    if p in (0, 1):
        return math.inf if p else -math.inf
    return -_NORMAL.inv_cdf(1 - p) if p > 0.5 else _NORMAL.inv_cdf(p)


def _below(z: float) -> float:
    """Phi, with all digits in its lower tail."""
    return math.erfc(-z / math.sqrt(2)) / 2


def _clip(value: float, low: float, high: float) -> float:
    return min(max(value, low), high)


def _bend(p: float, q: float) -> float:
    """2 t phi(t) where P(|z| < t) = p = 1 - q; both are given, for one of them has the digits."""
    if p == 0 or q / 2 == 0:
        return 0.0
    if p >= 0.5:
        t = -_NORMAL.inv_cdf(q / 2)
    else:
        t = _NORMAL.inv_cdf(0.5 + p / 2)
        for _ in range(2):  # the sum above lost the digits of a small p; Newton brings them back
            t -= (math.erf(t / math.sqrt(2)) - p) / (2 * _NORMAL.pdf(t))
    return 2 * t * _NORMAL.pdf(t)


def _missing(r: float, L: float) -> float:
    """1 - r/L, with all digits near 0."""
    return (L - r) / L if L else 0.0


def _steep_quantile(missing: float) -> float:
    """Phi^-1((1 + r/L)/2)."""
    return -_NORMAL.inv_cdf(missing / 2) if missing else math.inf


def _missing_within(r: float, distance: float, L: float) -> float:
    """The largest missing share up to a distance, in units of sigma; where the quantile is 0 no gradient is left."""
    quantile = _steep_quantile(min(1.0, _missing(r, L) + _ROUNDING)) - distance
    return min(1.0, _SLACK * math.erfc(quantile / math.sqrt(2)))


def _steep_bend(missing: float) -> float:
    """min over m of (E sqrt(t^2 + m^2) - m) + m missing, from above: an m off the minimum bounds it too."""
    if missing < 1e-16:  # E sqrt(t^2 + m^2) <= m + 1/(2 m)
        return _SLACK * math.sqrt(2 * missing)
    if missing >= 1 - 1e-8:  # the gain would be below the rounding
        return _MOST
    m, target = 1 / math.sqrt(2 * missing), 1 / math.sqrt(missing)
    for _ in range(_ROUNDS):
        _, rest, slope = _moments(m)
        # Newton on rest(m)^(-1/2), which is nearly linear in m
        step = 2 * (target * math.sqrt(rest) - 1) * rest / slope
        m = max(m + step, m / 10)
        if abs(step) <= 1e-9 * m:
            break
    return min(_MOST, _SLACK * (_moments(m)[0] + m * missing))


def _moments(m: float) -> tuple[float, float, float]:
    """E of s - m, 1 - m/s and t^2/s^3, with s = sqrt(t^2 + m^2): F(m) - m, 1 - F'(m) and F''(m).

    Sums at even distances in u, t = m sinh(u), where the integrands are entire: the error falls like exp(-c/step).
    """
    step = min(1 / 12, 0.4 / m)
    excess = rest = slope = 0.0
    t, k = 0.0, 0
    while t < 9:
        k += 1
        above = 2 * math.sinh(k * step / 2) ** 2  # cosh(u) - 1
        t, cosh = m * math.sinh(k * step), 1 + above
        weight = step * math.exp(-t * t / 2)
        excess += weight * above * cosh
        rest += weight * above
        slope += weight * (t / cosh) ** 2
    return _MOST * m * m * excess, _MOST * m * rest, _MOST * slope / (m * m)


def _check_length(low: float, high: float, L: float) -> None:
    """Bounds on the length of a gradient of the average of an L-Lipschitz score."""
    for name, value in (("the lower", low), ("the upper", high)):
        number(f"{name} bound on the length of the gradient", value)
    if not 0 <= low <= high <= L:
        got = f"{low!r}" if low == high else f"{low!r} to {high!r}"
        raise ValueError(
            f"the length of the gradient must lie within [0, L], lower bound first, got {got} with L={L!r}; where "
            "an estimate less its error is negative give 0, where it passes L by rounding give L"
        )
