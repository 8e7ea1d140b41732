"""A certificate as lines for people and as a picture, and its guarantee as a function of epsilon."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from torch import Tensor

from moreaugrad.certificates.certificate import Certificate
from moreaugrad.cli.report import Facts, shorten
from moreaugrad.plotting import certificate as plot

if TYPE_CHECKING:
    from matplotlib.figure import Figure

NOISE_ALONE = "new noise"  # the kind of a trial without a change
POINTS = 61
FAR, NEAR = 1e9, 1e-12  # a guarantee beyond is one for all changes, below it one for none


class Curve(NamedTuple):
    """How many of the top units stay at least, by the length of the change."""

    epsilons: list[float]
    overlaps: list[int]
    radii: dict[str, float | None]  # up to which all, half, one of them stay; None: not even without a change
    logarithmic: bool  # where everything happens far below the asked epsilon


def make_curve(certificate: Certificate) -> Curve:
    """From 0 to three times the asked epsilon; to where the guarantee ends if epsilon is 0. Runs no network."""
    k, asked = certificate.topk.k, certificate.epsilon
    radii = {name: find_radius(certificate, count) for name, count in (("all", k), ("half", -(-k // 2)), ("one", 1))}
    last = -1.0 if radii["one"] is None else radii["one"]
    end = 3 * asked or (1.2 * last if 0 < last < math.inf else 1.0)
    logarithmic = 0 < last < asked / 10
    steps = [end * (i / (POINTS - 1)) for i in range(POINTS)]
    if logarithmic:
        start = max(radii["all"] or last / 30, last / 30) / 2
        steps = [start * (end / start) ** (i / (POINTS - 1)) for i in range(POINTS)]
    jumps = [each for each in radii.values() if each is not None and steps[0] <= each <= end]
    epsilons = sorted({*steps, *jumps, asked} if steps[0] <= asked else {*steps, *jumps})
    overlaps = [certificate.at(each).topk.overlap if each <= 1.002 * last else 0 for each in epsilons]
    return Curve(epsilons, overlaps, radii, logarithmic)


def find_radius(certificate: Certificate, count: int) -> float | None:
    """The longest change, to a thousandth, that leaves this many of the top units."""

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


def describe(known: Facts, found: Certificate) -> list[str]:
    """The certificate's own words, how far it reaches, and what was tried."""
    k, units, trials = found.topk.k, found.topk.units, known["trials"]
    first = f"{known['key']}: {_target(known)}, probability {known['probability_of_target']:.3f}"
    first += "" if known["predicted"] == known["target"] else f" (class {known['predicted']} is predicted)"
    lines = [first, str(found), _describe_reach(known["radii"], k, units)]
    if trials:
        parts = [
            f"{each['overlap']} without a change, on new noise"
            if each["kind"] == NOISE_ALONE
            else f"{each['overlap']} at epsilon {each['epsilon']:.3g} ({each['kind']})"
            for each in trials
        ]
        lines.append(f"Tried: of the top {k} {units} there stayed {', '.join(parts)}.")
    if any(each["overlap"] < each["promised"] for each in trials):
        lines.append(
            "Fewer stayed than promised: the map of a changed input was measured with an error of its own, which "
            "only --compared computed allows for."
            if found.compared == "ideal"
            else f"Fewer stayed than promised: this may happen with probability {found.alpha:g}."
        )
    return lines


def _describe_reach(radii: Mapping[str, Any], k: int, units: str) -> str:
    """Up to which change how many stay."""
    if radii["one"] is None:
        return f"No change is so small that one of the top {k} {units} surely stays: the map's own error is too large."
    parts = [
        f"{words} up to {radii[name]:.3g}" if isinstance(radii[name], float) else f"{words} whatever the change"
        for name, words in (("all", f"all {k}"), ("half", "half of them"), ("one", "one"))
        if radii[name] is not None
    ]
    return f"Of the top {k} {units} there stay, by the length of the change: {'; '.join(parts)}."


def draw(known: Facts, found: Certificate, picture: Any) -> Figure:
    """Input, map with its certified units, and the guarantee against epsilon."""
    k, units = found.topk.k, found.topk.units
    sizes = found.map.norm(dim=0)
    if units == "pixels":
        sizes = found.topk.sizes(found.map[None])[0].view(sizes.shape)
    top = find_places(found, found.top(found.map)) if found.change.norm else None
    sure = None if found.topk.members is None else find_places(found, found.topk.members)
    length = "pixels, 0..1" if known["pixels"] else "units of the input"
    shares = [(each["kind"] == NOISE_ALONE, each["epsilon"], each["overlap"] / k) for each in known["trials"]]
    promise = plot.CertifiedCurve(
        known["curve"]["epsilon"],
        [each / k for each in known["curve"]["overlap"]],
        found.epsilon,
        [(epsilon, share) for alone, epsilon, share in shares if not alone],
        next((share for alone, _, share in shares if alone), None),
        (f"epsilon: l2 length of the change, {length}", f"share of the top {k} {units} that stays"),
        known["curve"]["logarithmic"],
        f"VACUOUS\nat {found.epsilon:g}" if found.vacuous else "",
    )
    headline = f"at least {found.topk.overlap} of the top {k} {units} stay"
    headline = f"VACUOUS, promises nothing: {headline}" if found.vacuous else headline
    title = f"{known['method']} by {found.recipe}, changes up to {found.epsilon:g}: {headline}"
    noise = "no noise" if found.constants.sigma is None else f"sigma {found.constants.sigma:g}"
    noise += "" if found.constants.rho is None else f", rho {found.constants.rho:.3g}"
    names = (f"input\n{shorten(_target(known))}", f"map of {units}\n{noise}")
    return plot.picture(picture, plot.MarkedMap(sizes, top, sure, _legend(found)), promise, title, names)


def find_places(found: Certificate, chosen: Tensor) -> plot.Mask:
    """Which places (H, W) belong to the chosen units."""
    chosen = chosen.cpu()
    groups = getattr(found.method, "groups", None)
    if found.topk.units == "groups" and isinstance(groups, Tensor):
        chosen = chosen[groups.cpu().reshape(-1)]
    if chosen.numel() == found.map.numel():
        chosen = chosen.view(found.map.shape).any(0)
    mask: plot.Mask = chosen.view(found.map.shape[1:]).bool().numpy()
    return mask


def _legend(found: Certificate) -> tuple[str, str]:
    """What is known of each unit, and what of the rest together."""
    k, overlap, members = found.topk.k, found.topk.overlap, found.topk.members
    if members is None:
        return "", f"top {k}, of which at least {overlap} stay, but not known which"
    sure = int(members.sum())
    others = f"the other {k - sure} of the top {k}" if sure else f"top {k}"
    more = f", of which at least {overlap - sure} stay" if overlap > sure else ""
    return f"each surely stays: {sure} of the top {k}", others + more


def _target(known: Facts) -> str:
    return str(known["label"] or f"class {known['target']}")
