"""How far a certificate reaches: the promise as a function of epsilon. Costs no forward pass."""

from __future__ import annotations

import math
from dataclasses import dataclass

from moreaugrad.certificates.certificate import Certificate

POINTS = 61
FAR, NEAR = 1e9, 1e-12  # a promise beyond is one for all changes, before it one for none


@dataclass(frozen=True, slots=True)
class Curve:
    """At least so many of the top units stay, by the length of the change."""

    epsilons: list[float]
    overlaps: list[int]
    radii: dict[str, float | None]  # up to which all, half, one of them stay; None: not even without a change
    logarithmic: bool  # where everything happens far below the asked epsilon


def curve(certificate: Certificate) -> Curve:
    """From 0 to three times the asked epsilon; to where the promise ends if nothing was asked for."""
    k, asked = certificate.topk.k, certificate.epsilon
    radii = {name: radius(certificate, count) for name, count in (("all", k), ("half", -(-k // 2)), ("one", 1))}
    last = -1.0 if radii["one"] is None else radii["one"]
    end = 3 * asked or (1.2 * last if 0 < last < math.inf else 1.0)
    logarithmic = 0 < last < asked / 10
    if logarithmic:
        start = max(radii["all"] or last / 30, last / 30) / 2
        steps = [start * (end / start) ** (i / (POINTS - 1)) for i in range(POINTS)]
    else:
        steps = [end * (i / (POINTS - 1)) for i in range(POINTS)]
    jumps = [each for each in radii.values() if each is not None and steps[0] <= each <= end]
    epsilons = sorted({*steps, *jumps, asked} if steps[0] <= asked else {*steps, *jumps})
    overlaps = [certificate.at(each).topk.overlap if each <= 1.002 * last else 0 for each in epsilons]
    return Curve(epsilons, overlaps, radii, logarithmic)


def radius(certificate: Certificate, count: int) -> float | None:
    """The longest change, to a thousandth, that leaves so many of the top units."""

    def holds(epsilon: float) -> bool:
        return certificate.at(epsilon).topk.overlap >= count

    if not holds(0.0):
        return None
    low = certificate.epsilon or 1.0
    while holds(low):
        low *= 4
        if low > FAR:
            return math.inf
    while not holds(low):
        low /= 4
        if low < NEAR:
            return 0.0
    high = 4 * low
    while high > low * 1.001:
        middle = math.sqrt(low * high)
        low, high = (middle, high) if holds(middle) else (low, middle)
    return low
