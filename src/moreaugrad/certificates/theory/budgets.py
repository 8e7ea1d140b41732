"""From a budget, "the map moves by at most B in l2", to its top entries, its support and its direction.

All are exact for the l2 ball, and compare with a slack in favour of the attacker, so that rounding never certifies.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from moreaugrad.certificates import checks_theory as rules
from moreaugrad.validate import not_negative

_SLACK = 1e-9  # relative, on squares


def topk_overlap(scores: Any, k: int, budget: float) -> int:
    """How many of the k largest scores surely stay among the k largest; ties count against them.

    Scores of a pixel: the map, its sizes, their l2 norm or maximum over the channels, each with the budget of the map;
    sums over C channels with sqrt(C) times that.
    """
    values = rules.entries("scores", scores)
    rules.top(k, values.numel())
    rules.budget(budget)
    ordered = values.sort(descending=True).values
    members, rest = ordered[:k].flip(0), ordered[k:]
    lost, most = 0, min(k, len(rest))
    while lost < most:  # the cost grows with the number that leave
        leave = (lost + most + 1) // 2
        if affordable(swap_cost(members[:leave], rest[:leave]), budget):
            lost = leave
        else:
            most = leave - 1
    return k - lost


def topk_members(scores: Any, k: int, budget: float) -> Bool[Tensor, "d"]:
    """Which of the k largest scores surely stay, each by itself: whatever pushes one out lowers it to, or lifts
    above it, the first score outside, (score - first)^2/2 at the least. There are never more than `topk_overlap`."""
    values = rules.entries("scores", scores)
    rules.top(k, values.numel())
    rules.budget(budget)
    ordered = values.sort(descending=True, stable=True)
    stay = torch.zeros_like(values, dtype=torch.bool)
    outside = ordered.values[k] if k < len(values) else torch.tensor(-torch.inf)
    costs = (ordered.values[:k] - outside).square() / 2 * (1 - _SLACK)
    stay[ordered.indices[:k]] = costs > budget * budget
    return stay


def swap_cost(members: Float[Tensor, "j"], rest: Float[Tensor, "j"]) -> float:
    """The least squared change that puts every one of `rest` at or above every one of `members`.

    min over t of sum (members - t)_+^2 + sum (t - rest)_+^2, at the exact t: another would cost too much.
    """
    if float(members.max()) <= float(rest.min()):
        return 0.0
    centre = members.min()  # near it, where the cheap swaps are, differences are exact
    a, b = members - centre, rest - centre
    points = torch.cat([a, b]).unique()

    def falls(t: Tensor) -> bool:
        return float((t - b).clamp(min=0).sum() - (a - t).clamp(min=0).sum()) <= 0

    first, last = 0, len(points) - 1  # the cost falls up to the first point, and no longer at the last
    while last - first > 1:
        middle = (first + last) // 2
        first, last = (middle, last) if falls(points[middle]) else (first, middle)
    low, high = points[first], points[last]
    moved = torch.cat([a[a >= high], b[b <= low]])
    t = moved.mean().clamp(low, high)
    return float((a - t).clamp(min=0).square().sum() + (t - b).clamp(min=0).square().sum())


def support_survivors(magnitudes: Any, budget: float) -> int:
    """How many non-zeros of a sparse map surely stay so, given their sizes (of groups: their l2 norms)."""
    sizes = rules.entries("magnitudes", magnitudes).abs()
    sizes = sizes[sizes > 0]
    return sizes.numel() - _cheapest(sizes, budget)


def support_entrants(slacks: Any, budget: float) -> int:
    """At most how many zeros become non-zero: slacks are eta - |dual gradient| of the zeros (groups: of its norms).

    The budget is that of the dual gradient, lip_dual * epsilon and its error; a negative slack costs nothing.
    """
    return _cheapest(rules.entries("slacks", slacks).clamp(min=0), budget)


def normalised_distance(budget: float, norm: float, non_negative: bool = False) -> float:
    """2 sin(asin(s)/2), s = budget/norm: how far m/|m| may be from m'/|m'| when |m' - m| <= budget and |m| = norm.

    From s = 1 on only the trivial 2, or sqrt(2) for maps that are nowhere negative.
    """
    rules.budget(budget)
    not_negative("norm", norm)
    if budget >= norm:
        return math.sqrt(2) if non_negative else 2.0
    return 2 * math.sin(math.asin(budget / norm) / 2)


def affordable(cost: float, budget: float) -> bool:
    """Whether a squared change fits into the budget, within rounding."""
    return cost * (1 - _SLACK) <= budget * budget


def _cheapest(costs: Float[Tensor, "d"], budget: float) -> int:
    """The largest number of entries that can be moved by their costs at once."""
    rules.budget(budget)
    sums = costs.sort().values.square().cumsum(0)
    return int((sums * (1 - _SLACK) <= budget * budget).sum())
