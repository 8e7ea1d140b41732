"""What follows for a map whose entries are votes: shares of noisy copies x + sigma z, each an average of 0 and 1.

A change of the input by s sigma moves the normal quantile of such an average by at most s, whatever the network is
(Levine 2019). So every value of the map at x' lies in an interval, all of them together in a box; the statements below
hold for every map in it. Ties count against what is claimed.
"""

from __future__ import annotations

import math
from typing import NamedTuple, TypeAlias

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from moreaugrad.certificates.theory.binomial import clopper_pearson, predict_counts
from moreaugrad.certificates.theory.maps import check, check_top
from moreaugrad.validate import at_least, one_of

Values: TypeAlias = Float[Tensor, "d"]

_SLACK = 1e-12  # of shares, outwards
_SPLITS, _WORK = 200, 5000  # of the box of a cosine: the more entries, the less does one of them decide


class Box(NamedTuple):
    """An interval for each of d values."""

    lower: Values
    upper: Values

    def threshold(self, eta: float) -> Box:
        """Of max(v - eta, 0)."""
        return Box((self.lower - eta).clamp_min(0), (self.upper - eta).clamp_min(0))

    def mean(self, over: int) -> Box:
        """Of the means over channels, where the values of each channel follow those of the one before."""
        return Box(*(each.view(over, -1).mean(0) for each in self))

    def meet(self, other: Box) -> Box:
        """Of values that lie in both."""
        return Box(torch.maximum(self.lower, other.lower), torch.minimum(self.upper, other.upper))


def shift(box: Box, distance: float) -> Box:
    """[Phi(Phi^-1(lower) - s), Phi(Phi^-1(upper) + s)]: averages of values in [0, 1] at inputs s sigma away."""
    check(distance=distance)
    if distance == 0:
        return box
    low, high = torch.special.ndtri(box.lower) - distance, torch.special.ndtri(1 - box.upper) - distance
    found = Box(torch.special.ndtr(low) - _SLACK, 1 - torch.special.ndtr(high) + _SLACK)
    return Box(*(each.clamp(0, 1) for each in found))


def vote_box(counts: Tensor, samples: int, alpha: float, intervals: int | None = None) -> Box:
    """Clopper and Pearson's limits of all shares at once; alpha over all `intervals`, by default as many as counts."""
    check(alpha=alpha)
    at_least("samples", samples, 1)
    return Box(*clopper_pearson(counts, samples, alpha / (2 * (intervals or len(counts)))))


def reach(box: Box, distance: float, samples: int, alpha: float, compared: str = "ideal") -> Box:
    """Where shares at x' lie: the ideal ones, or those that so many new draws will show, alpha for all at once."""
    one_of("compared", compared, {"ideal": None, "computed": None})
    moved = shift(box, distance)
    if compared == "ideal":
        return moved
    counts = predict_counts(*moved, samples, alpha / (2 * len(box.lower)))
    return Box(*(each / samples for each in counts))


def box_overlap(values: Values, box: Box, k: int) -> int:
    """How many of the k largest values surely stay among the k largest in every map of the box; exact.

    j of them can leave if and only if, for some level t, j members reach down to t and j others up to it: others are
    on top in place of members only if some t separates them. Zeros are never on top.
    """
    check_top(k, len(values))
    members, others = _split(values, k)
    if not len(others):
        return k - int((box.lower[members] <= 0).sum())
    down, up = box.lower[members].sort().values, box.upper[others].sort(descending=True).values
    most = min(len(down), len(up))
    swapped = int((down[:most] <= up[:most]).sum())  # one falls and the other rises with j
    return k - max(swapped, int((down <= 0).sum()))


def box_members(values: Values, box: Box, k: int) -> Bool[Tensor, "d"]:
    """Which of the k largest values surely stay, each by itself: fewer than k of the rest can reach its lower limit."""
    members, _ = _split(values, k)
    upper = box.upper.sort().values
    rivals = len(upper) - torch.searchsorted(upper, box.lower[members].contiguous())  # itself among them
    found = torch.zeros(len(values), dtype=torch.bool)
    found[members] = (rivals <= k) & (box.lower[members] > 0)
    return found


def _split(values: Values, k: int) -> tuple[Tensor, Tensor]:
    order = values.argsort(descending=True, stable=True)
    return order[:k], order[k:]


def box_distance(values: Values, box: Box) -> float:
    """The l2 distance between the map and the farthest of the box."""
    return float(torch.maximum(box.upper - values, values - box.lower).clamp_min(0).norm()) * (1 + _SLACK)


def box_cosine(values: Values, box: Box, sizes: Tensor | None = None) -> float:
    """The cosine between a map m and any m' of the box is at least this; -1 where m' may be zero.

    Neither has a negative entry; `sizes` says how often each occurs. For every kappa > 0 let g = sum of the least of
    m_i y - kappa y^2/2 for y in [lower_i, upper_i], which is at an end, so that
    <m, m'> >= g + kappa |m'|^2/2 >= sqrt(2 kappa g) |m'| and the cosine is at least sqrt(2 kappa g)/|m|.
    The best kappa may leave one entry between its ends. The worst map has none there: the cosine is a quasi-concave
    function, whose minimum is at a corner. So the bound of both halves, that entry at either end, holds as well.
    """
    size = torch.ones_like(values) if sizes is None else sizes.to(values)
    norm = float((size * values.square()).sum().sqrt())
    if norm == 0 or not bool((box.lower > 0).any()):
        return -1.0
    squares = [(*_dual_bound(values, box, size), box)]
    for _ in range(min(_SPLITS, _WORK // len(values))):
        least, between, part = squares[0]
        if between is None:
            break
        for end in part:
            fixed = [each.clone() for each in part]
            fixed[0][between] = fixed[1][between] = end[between]
            half = Box(*fixed)
            found, place = _dual_bound(values, half, size)
            squares.append((max(least, found), place, half))
        squares = sorted(squares[1:], key=lambda each: each[0])
    best = squares[0][0]
    return min(1.0, math.sqrt(best) / norm) * (1 - _SLACK) if best > 0 else -1.0


def _dual_bound(m: Values, box: Box, size: Values) -> tuple[float, int | None]:
    """The largest 2 kappa g, and the entry that is between its ends there, if one is.

    Entry i is at its upper end for kappa above 2 m_i/(lower_i + upper_i). Between two such values g is linear.
    """
    breaks, order = (2 * m / (box.lower + box.upper).clamp_min(1e-300)).sort()
    low, high, m, size = box.lower[order], box.upper[order], m[order], size[order]
    inner, half = _running(size * m * low, size * m * high), _running(size * low.square(), size * high.square()) / 2
    edges = torch.cat([breaks.new_zeros(1), breaks, breaks.new_full((1,), math.inf)])
    wanted = inner / (2 * half)
    kappa = wanted.clamp(edges[:-1], edges[1:])
    found = (2 * kappa * (inner - kappa * half)).nan_to_num(-1.0)
    place = int(found.argmax())
    if float(kappa[place]) == float(wanted[place]):
        return float(found[place]), None
    between = int(order[place - 1 if float(kappa[place]) > float(wanted[place]) else place])
    return float(found[place]), None if bool(box.lower[between] == box.upper[between]) else between


def _running(low: Values, high: Values) -> Float[Tensor, "d+1"]:
    """The sum with the first j entries at their upper ends and the others at their lower, j = 0 .. d."""
    return torch.cat([low.new_zeros(1), (high - low).cumsum(0)]) + low.sum()


def normal_distance(cosine: float) -> float:
    """sqrt(2 - 2 cosine): between two maps over their lengths, at most; 2 where nothing is known."""
    return math.sqrt(max(0.0, 2 - 2 * cosine)) if cosine > 0 else 2.0


def needed_samples(units: int, distance: float, alpha: float, compared: str = "ideal", eta: float = 0.0) -> int:
    """The fewest draws with which anything can be certified at that distance: a unit with all votes stays above one
    with none, or above eta. With fewer even the clearest map promises nothing."""
    check(alpha=alpha, distance=distance)
    few, many = 0, 1
    while not tells_apart(many, units, distance, alpha, compared, eta):
        few, many = many, 2 * many
        if many > 2**53:
            raise ValueError(
                f"epsilon must be a few sigma at most to be certified by votes, got {distance:g} sigma; lower epsilon"
            )
    while many - few > 1:
        middle = (few + many) // 2
        few, many = (few, middle) if tells_apart(middle, units, distance, alpha, compared, eta) else (middle, many)
    return many


def tells_apart(samples: int, units: int, distance: float, alpha: float, compared: str, eta: float) -> bool:
    """Whether the clearest votes of all, every one or none, are told apart after the change."""
    sure = (alpha / (2 * units)) ** (1 / samples)
    ends = torch.tensor([sure, 0.0], dtype=torch.float64), torch.tensor([1.0, 1 - sure], dtype=torch.float64)
    box = shift(Box(*ends), distance)
    if compared != "ideal":
        counts = predict_counts(*box, samples, alpha / (2 * units))
        box = Box(*(each / samples for each in counts))
    return float(box.lower[0]) > float(box.upper[1]) or float(box.lower[0]) > eta > 0
