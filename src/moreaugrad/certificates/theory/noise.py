"""What noise does to a score: the curvature of Gaussian averages h(x) = E f(x + sigma z), and errors of sampled means.

-lam <= Hess h <= beta. sigma must not depend on x. Never for a map on frozen noise, whose curvature is that of f.
Probabilities are carried as normal quantiles, in which a change of the input is a shift, and both tails keep their
digits. Samples are independent, an antithetic pair counts as one, and the input is fixed before the noise is drawn;
for several statements divide alpha by their number.

A steep h is nearly flat: with f L-Lipschitz, g = grad f(x + sigma z), n the direction of E g and r its length, for
every unit v and every m >= 0, sigma v'Hess v = E<g, <v,z> v + m n> - m r <= L E|<v,z> v + m n| - m r
<= L E sqrt(t^2 + m^2) - m r, t ~ N(0, 1); at the end +-z are averaged, sqrt being concave. Minimised over m it is the
least bound that |g| <= L and E g give.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from statistics import NormalDist
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from moreaugrad.certificates.theory.maps import check_epsilon, check_known, lip_prox, lip_vanilla, read_entries
from moreaugrad.model.bounded import check_range
from moreaugrad.validate import at_least, not_negative, number, positive

_NORMAL = NormalDist()
_PEAK = _NORMAL.inv_cdf(math.erf(math.sqrt(0.5)))  # the quantile at which lam is largest: p = P(|z| < 1)
_MOST = math.sqrt(2 / math.pi)  # at a zero gradient: the constant of lam_lipschitz
_SLACK = 1 + 1e-12  # relative, upwards: the sums of _moments are right to 1e-13
_ROUNDING = 1e-14  # of a length, as a share of L: near L it decides how far off the gradient is still long
_ROUNDS = 1000  # of each iteration; all may stop after any
# the variance proxy of (f - 1/2)<v, z> for f in [0, 1] and a unit v: a supremum over two numbers, 0.402181; the value
# that needs no numerics is 1
PROXY = 0.4022
_UNKNOWN_L = (
    "without a known Lipschitz constant take a bounded score (score='prob'): lam_range, local_certificate and "
    "err_stein need its range alone"
)


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
    check_lipschitz(L)
    positive("sigma", sigma)
    return L * math.sqrt(2 / math.pi) / sigma


def lam_range(low: float, high: float, sigma: float) -> float:
    """2 phi(1) (high - low)/sigma^2, lam and beta alike, for any f with values in [low, high]."""
    check_range(low, high)
    positive("sigma", sigma)
    return 2 * _NORMAL.pdf(1) * (high - low) / sigma**2


def gradient_cap(low: float, high: float, sigma: float) -> float:
    """phi(0) (high - low)/sigma: no gradient of the average is longer."""
    check_range(low, high)
    positive("sigma", sigma)
    return _NORMAL.pdf(0) * (high - low) / sigma


def certified_rho(lam: float, theta: float = 0.5) -> float:
    """theta/lam: theta near 0 leaves the smoothed gradient, at 1 the minimiser is no longer unique."""
    positive("lam", lam)
    check_between("theta", theta, "the share of the largest certified rho; 0.5 is usual")
    return theta / lam


def curvature_at(p: float, sigma: float = 1.0, width: float = 1.0) -> Curvature:
    """Sharp bounds where the average is at the share p of its range `width`.

    lam(p) = 2 t phi(t) width/sigma^2 with P(|z| < t) = p, beta(p) = lam(1 - p), |grad| <= phi(Phi^-1(p)) width/sigma.
    """
    check_share("p", p)
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
    for name, value in (("p_lo", p_lo), ("p_hi", p_hi)):
        number(name, value)
    if not 0 <= p_lo <= p_hi <= 1:
        raise ValueError(
            f"the score must lie in 0 <= p_lo <= p_hi <= 1, got p_lo={p_lo!r} and p_hi={p_hi!r}; "
            "give (score - low)/(high - low), and width=high - low, for another range"
        )
    for name, value in (("sigma", sigma), ("rho", rho), ("width", width)):
        positive(name, value)
    check_epsilon(epsilon)
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


def bend_lipschitz(r: float, L: float = 1.0, sigma: float = 1.0) -> float:
    """lam and beta alike where the gradient of the average is at least r long; it falls from lam_lipschitz to 0 at L.

    (1/sigma) min over m of L E sqrt(t^2 + m^2) - m r; with K the modified Bessel functions, for L = sigma = 1:
    sqrt(2/pi) a e^a (K1(a) - K0(a)) at r = sqrt(2a/pi) e^a K0(a), about sqrt(2(1 - r)) near 1.
    """
    check_lipschitz(L)
    check_length(r, r, L)
    positive("sigma", sigma)
    return L / sigma * _steep_bend(_missing(r, L))


def lam_steep(r: float, radius: float, L: float, sigma: float) -> float:
    """lam and beta alike on the ball of that radius around a point where the gradient is at least r long.

    bend_lipschitz of the shortest gradient there: Phi^-1((1 + |grad h|/L)/2) falls by radius/sigma at most, the shift
    of local_certificate, for (1 + <grad f, n>/L)/2 lies in [0, 1] for every unit n. Measure it at a solution, if you
    can: those of inputs within epsilon lie within (1 + rho lip) epsilon of it.
    """
    check_lipschitz(L)
    check_length(r, r, L)
    positive("sigma", sigma)
    not_negative("radius", radius)
    return L / sigma * _steep_bend(_missing_within(r, radius / sigma, L))


def local_lipschitz(
    r_lo: float, L: float, sigma: float, rho: float, epsilon: float, penalised: bool = True, r_hi: float | None = None
) -> LocalCertificate:
    """Constants near an input where the gradient of the average is surely r_lo to r_hi (None: L) long.

    All minimisers of inputs within epsilon lie within radius = epsilon + rho * (longest gradient) of it; lam_steep on
    that ball is lam and beta. It can certify a rho above that of lam_lipschitz. `penalised`: there is a prior, which
    changes nothing as long as lam = beta.
    """
    check_lipschitz(L)
    r_hi = L if r_hi is None else r_hi
    check_length(r_lo, r_hi, L)
    for name, value in (("sigma", sigma), ("rho", rho)):
        positive(name, value)
    check_epsilon(epsilon)
    last = _steep_quantile(max(0.0, _missing(r_hi, L) - _ROUNDING))
    radius = epsilon + rho * L
    for _ in range(_ROUNDS):
        high = L * min(1.0, _SLACK * math.erf((last + radius / sigma) / math.sqrt(2)))
        before, radius = radius, min(radius, epsilon + rho * high)
        if before - radius <= 1e-13 * before:
            break
    missing = _missing_within(r_lo, radius / sigma, L)
    lam = L / sigma * _steep_bend(missing)
    lip = math.inf
    if rho * lam < 1:
        lip = (lip_prox if penalised else lip_vanilla)(rho, lam, lam)
    return LocalCertificate(radius, L * (1 - missing), high, lam, lam, lip)


def kl_interval(p_hat: float, m: int, alpha: float) -> tuple[float, float]:
    """{q : m kl(p_hat, q) <= ln(2/alpha)}: holds the mean of m values in [0, 1] whose average is p_hat."""
    check_share("p_hat", p_hat)
    at_least("m", m, 1)
    check_alpha(alpha)
    ends = torch.tensor([p_hat, 1 - p_hat], dtype=torch.float64)
    low, high = kl_lower(ends, m, math.log(2 / alpha)).tolist()
    return low, 1 - high


def err_backprop(L: float, m: int, alpha: float) -> float:
    """(L/sqrt(m)) (1 + sqrt(2 ln(1/alpha))): of the mean gradient of an L-Lipschitz score, in any dimension."""
    check_lipschitz(L)
    at_least("m", m, 1)
    check_alpha(alpha)
    return L / math.sqrt(m) * (1 + math.sqrt(2 * math.log(1 / alpha)))


def err_bernstein(L: float, V: float, m: int, alpha: float) -> float:
    """sqrt(2 V t/m) + 4 L t/(3 m), t = ln(2/alpha); V bounds E|grad f - grad h|^2 (see variance_bound)."""
    check_lipschitz(L)
    not_negative("V", V)
    at_least("m", m, 1)
    check_alpha(alpha)
    t = math.log(2 / alpha)
    return math.sqrt(2 * V * t / m) + 4 * L * t / (3 * m)


def variance_bound(halves: Any, L: float, alpha: float) -> float:
    """The V of err_bernstein from data: halves are |g - g'|^2/2 of disjoint pairs of sample gradients."""
    check_lipschitz(L)
    check_alpha(alpha)
    values = read_entries("halves", halves)
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
    check_alpha(alpha)
    for name, value in (("sigma", sigma), ("width", width), ("proxy", proxy)):
        positive(name, value)
    t = math.log(1 / alpha)
    return width / sigma * math.sqrt(proxy * (k + 2 * math.sqrt(k * t) + 2 * t) / m)


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


def _missing(r: float, L: float) -> float:
    """1 - r/L, with all digits near 0, on which everything below rests."""
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


def check_lipschitz(L: float) -> None:
    check_known("L", L, _UNKNOWN_L)


def check_share(name: str, value: float) -> None:
    number(name, value)
    if not 0 <= value <= 1:
        raise ValueError(f"{name} must be in [0, 1], got {value!r}; rescale a score of another range first")


def check_between(name: str, value: float, meaning: str) -> None:
    number(name, value)
    if not 0 < value < 1:
        raise ValueError(f"{name} must be in (0, 1), {meaning}, got {value!r}")


def check_alpha(alpha: float) -> None:
    check_between("alpha", alpha, "the chance that the statement fails; 0.05 and 0.001 are usual")


def check_length(low: float, high: float, L: float) -> None:
    """Bounds on the length of a gradient of the average of an L-Lipschitz score."""
    for name, value in (("the lower", low), ("the upper", high)):
        number(f"{name} bound on the length of the gradient", value)
    if not 0 <= low <= high <= L:
        got = f"{low!r}" if low == high else f"{low!r} to {high!r}"
        raise ValueError(
            f"the length of the gradient must lie within [0, L], lower bound first, got {got} with L={L!r}; where "
            "an estimate less its error is negative give 0, where it passes L by rounding give L"
        )
