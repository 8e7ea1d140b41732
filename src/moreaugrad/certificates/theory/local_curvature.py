"""Curvature of h(x) = E f(x + sigma z), f L-Lipschitz, where the gradient of h is long: a steep h is nearly flat.

With g = grad f(x + sigma z), n the direction of E g and r its length: for every unit v and every m >= 0,
sigma v'Hess v = E<g, <v,z> v + m n> - m r <= L E|<v,z> v + m n| - m r <= L E sqrt(t^2 + m^2) - m r, t ~ N(0, 1);
at the end +-z are averaged, sqrt being concave. Minimised over m it is the least bound that |g| <= L and E g give.
"""

from __future__ import annotations

import math
from statistics import NormalDist

from moreaugrad.certificates import checks_theory as rules
from moreaugrad.certificates.theory.constants import lip_prox, lip_vanilla
from moreaugrad.certificates.theory.curvature import LocalCertificate
from moreaugrad.validate import not_negative, positive

_NORMAL = NormalDist()
_MOST = math.sqrt(2 / math.pi)  # at a zero gradient: the constant of lam_lipschitz
_SLACK = 1 + 1e-12  # relative, upwards: the sums below are right to 1e-13
_ROUNDING = 1e-14  # of a length, as a share of L: near L it decides how far off the gradient is still long
_ROUNDS = 1000  # of each iteration; both may stop after any


def bend_lipschitz(r: float, L: float = 1.0, sigma: float = 1.0) -> float:
    """lam and beta alike where the gradient of the average is at least r long; it falls from lam_lipschitz to 0 at L.

    (1/sigma) min over m of L E sqrt(t^2 + m^2) - m r; with K the modified Bessel functions, for L = sigma = 1:
    sqrt(2/pi) a e^a (K1(a) - K0(a)) at r = sqrt(2a/pi) e^a K0(a), about sqrt(2(1 - r)) near 1.
    """
    rules.lipschitz(L)
    rules.steepness(r, r, L)
    positive("sigma", sigma)
    return L / sigma * _bend(_missing(r, L))


def lam_steep(r: float, radius: float, L: float, sigma: float) -> float:
    """lam and beta alike on the ball of that radius around a point where the gradient is at least r long.

    bend_lipschitz of the shortest gradient there: Phi^-1((1 + |grad h|/L)/2) falls by radius/sigma at most, the shift
    of local_certificate, for (1 + <grad f, n>/L)/2 lies in [0, 1] for every unit n. Measure it at a solution, if you
    can: those of inputs within epsilon lie within (1 + rho lip) epsilon of it.
    """
    rules.lipschitz(L)
    rules.steepness(r, r, L)
    positive("sigma", sigma)
    not_negative("radius", radius)
    return L / sigma * _bend(_missing_within(r, radius / sigma, L))


def local_lipschitz(
    r_lo: float, L: float, sigma: float, rho: float, epsilon: float, penalised: bool = True, r_hi: float | None = None
) -> LocalCertificate:
    """Constants near an input where the gradient of the average is surely r_lo to r_hi (None: L) long.

    All minimisers of inputs within epsilon lie within radius = epsilon + rho * (longest gradient) of it; lam_steep on
    that ball is lam and beta. It can certify a rho above that of lam_lipschitz. `penalised`: there is a prior, which
    changes nothing as long as lam = beta.
    """
    rules.lipschitz(L)
    r_hi = L if r_hi is None else r_hi
    rules.steepness(r_lo, r_hi, L)
    for name, value in (("sigma", sigma), ("rho", rho)):
        positive(name, value)
    rules.radius(epsilon)
    last = _quantile(max(0.0, _missing(r_hi, L) - _ROUNDING))
    radius = epsilon + rho * L
    for _ in range(_ROUNDS):
        high = L * min(1.0, _SLACK * math.erf((last + radius / sigma) / math.sqrt(2)))
        before, radius = radius, min(radius, epsilon + rho * high)
        if before - radius <= 1e-13 * before:
            break
    missing = _missing_within(r_lo, radius / sigma, L)
    lam = L / sigma * _bend(missing)
    lip = math.inf
    if rho * lam < 1:
        lip = (lip_prox if penalised else lip_vanilla)(rho, lam, lam)
    return LocalCertificate(radius, L * (1 - missing), high, lam, lam, lip)


def _missing(r: float, L: float) -> float:
    """1 - r/L, with all digits near 0, on which everything below rests."""
    return (L - r) / L if L else 0.0


def _quantile(missing: float) -> float:
    """Phi^-1((1 + r/L)/2)."""
    return -_NORMAL.inv_cdf(missing / 2) if missing else math.inf


def _missing_within(r: float, distance: float, L: float) -> float:
    """The largest missing share up to a distance, in units of sigma; where the quantile is 0 no gradient is left."""
    quantile = _quantile(min(1.0, _missing(r, L) + _ROUNDING)) - distance
    return min(1.0, _SLACK * math.erfc(quantile / math.sqrt(2)))


def _bend(missing: float) -> float:
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
