"""Lipschitz constants of solved maps, and how far a computed map is from the ideal one.

Throughout: curvatures of the score lie in [-lam, beta], rho * lam < 1; beta = inf means that no upper bound is known.
With a prior the constants hold for every convex penalty of delta alone, the same at both inputs.
"""

from __future__ import annotations

import math

from moreaugrad.certificates import checks_theory as rules
from moreaugrad.validate import at_least, not_negative, positive


def lip_vanilla(rho: float, lam: float, beta: float) -> float:
    """max{lam/(1 - rho lam), beta/(1 + rho beta)}: the sharp constant of the map without a prior."""
    rules.curvatures(rho, lam, beta)
    convex = 1 / rho if math.isinf(beta) else beta / (1 + rho * beta)
    return max(lam / (1 - rho * lam), convex)


def lip_prox(rho: float, lam: float, beta: float) -> float:
    """The sharp constant of the map with any convex prior; inf for an unknown beta (see holder_prox).

    (1/rho) max over h in [-l, b] of sqrt((b - l) h + l b)/(1 + h), with l = rho lam and b = rho beta.
    """
    rules.curvatures(rho, lam, beta)
    low, high = rho * lam, rho * beta
    if math.isinf(high):
        return math.inf
    best = -low if high <= low else min(1 - 2 * low / (1 - low / high), high)
    if best <= -low:
        return lam / (1 - low)
    share = low / high  # as shares of high no square can underflow
    return high * math.sqrt((1 - share) * (best / high) + share) / (1 + best) / rho


def lip_dual(rho: float, lam: float, beta: float) -> float:
    """max{beta, lam/(1 - rho lam)}: of the dual gradient grad g(x + delta), the gradient of every envelope."""
    rules.curvatures(rho, lam, beta)
    return max(beta, lam / (1 - rho * lam))


def holder_prox(rho: float, lam: float, epsilon: float, prior_of_change: float) -> float:
    """How far a map with a norm as prior moves when beta is unknown; it grows like the root of epsilon.

    `prior_of_change` is the prior, with its weight, of the change of the input. Weak in many dimensions.
    """
    rules.weak_convexity(rho, lam)
    rules.radius(epsilon)
    not_negative("prior_of_change", prior_of_change)
    left = 1 - rho * lam
    root = math.sqrt((epsilon / (2 * left)) ** 2 + 2 * rho * prior_of_change / left)
    return (abs(1 - 2 * rho * lam) / (2 * left) * epsilon + root) / rho


def prior_of_change(eta: float, units: int, epsilon: float) -> float:
    """eta sqrt(units) epsilon: the most that the L1 (units: entries) or group prior says of a change that long."""
    not_negative("eta", eta)
    at_least("units", units, 1)
    rules.radius(epsilon)
    return eta * math.sqrt(units) * epsilon


def residual_constant(rho: float, lam: float, beta: float, gamma: float) -> tuple[float, float]:
    """(c, 1 + c) with |T - delta*| <= c |r| and |delta - delta*| <= (1 + c) |r|.

    T is the proximal gradient step of length gamma from delta, and r = delta - T; inf for an unknown beta.
    """
    rules.curvatures(rho, lam, beta)
    positive("gamma", gamma)
    mu, steep = (1 / rho - lam) * gamma, (1 / rho + beta) * gamma
    if math.isinf(steep):
        return math.inf, math.inf
    found = [abs(1 - mu) / mu, abs(1 - steep) / steep]
    constant, slope = 1 - mu * steep, mu + steep - 2
    if slope > 0 and constant < 0 and mu < -2 * constant / slope < steep:
        found.append(slope / (2 * math.sqrt(-constant)))
    return max(found), 1 + max(found)


def map_error(res: float, e: float, rho: float, lam: float, beta: float, penalised: bool = True) -> float:
    """(1 + rho lip_prox)(res + e): how far a computed map is from the ideal one, surely if e is sure.

    res = |delta - prox(-rho grad)|/rho with the gradient estimated on fresh noise; e bounds the error of that gradient.
    Without a prior it is (res + e)/(1 - rho lam), whatever beta.
    """
    not_negative("res", res)
    not_negative("e", e)
    rules.curvatures(rho, lam, beta)
    if not penalised:
        return (res + e) / (1 - rho * lam)
    return 0.0 if res + e == 0 else (1 + rho * lip_prox(rho, lam, beta)) * (res + e)


def dual_error(e: float, error: float, rho: float, lam: float, beta: float) -> float:
    """e + rho max(lam, beta) error: how far a computed dual gradient is from the ideal one.

    `error` is that of the map (map_error). Added to lip_dual * epsilon it makes the budget of support_entrants.
    """
    not_negative("e", e)
    not_negative("error", error)
    rules.curvatures(rho, lam, beta)
    return e if error == 0 else e + rho * max(lam, beta) * error
