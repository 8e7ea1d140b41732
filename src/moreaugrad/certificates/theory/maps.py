"""How far a solved map moves, and what follows for its top entries, its support and its direction.

Curvatures of the score lie in [-lam, beta], rho * lam < 1; beta = inf: no upper bound is known. Comparisons have a
slack in favour of the attacker, so that rounding never certifies.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from moreaugrad.validate import at_least, not_negative, number, positive

_SLACK = 1e-9  # relative, on squares
_UNKNOWN_LAM = "lam_range gives it for a bounded score, lam_lipschitz for a known Lipschitz constant"
_UNKNOWN_L = (
    "without a known Lipschitz constant take a bounded score (score='prob'): lam_range, local_certificate and "
    "err_stein need its range alone"
)
_INF = "math.inf stands for an unknown one"
_SHARE = (lambda v: 0 <= v <= 1, "in [0, 1]", "; rescale a score of another range first")
_RANGES: dict[str, tuple[Callable[[float], bool], str, str]] = {  # by the name of a number, the same everywhere
    "epsilon": (lambda v: 0 <= v < math.inf, "a finite number >= 0, the l2 length of the change of the input", ""),
    "budget": (lambda v: v >= 0, "at least 0, how far the map may move (Lipschitz constant * epsilon)", f"; {_INF}"),
    "alpha": (lambda v: 0 < v < 1, "in (0, 1), the chance that the statement fails; 0.05 and 0.001 are usual", ""),
    "theta": (lambda v: 0 < v < 1, "in (0, 1), the share of the largest certified rho; 0.5 is usual", ""),
    "p": _SHARE,
    "p_hat": _SHARE,
}


def lip_vanilla(rho: float, lam: float, beta: float) -> float:
    """max{lam/(1 - rho lam), beta/(1 + rho beta)}: the sharp constant of the map without a prior."""
    check_curvatures(rho, lam, beta)
    convex = 1 / rho if math.isinf(beta) else beta / (1 + rho * beta)
    return max(lam / (1 - rho * lam), convex)


def lip_prox(rho: float, lam: float, beta: float) -> float:
    """The sharp constant of the map with any convex prior; inf for an unknown beta (see holder_prox).

    (1/rho) max over h in [-l, b] of sqrt((b - l) h + l b)/(1 + h), with l = rho lam and b = rho beta.
    """
    check_curvatures(rho, lam, beta)
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
    check_curvatures(rho, lam, beta)
    return max(beta, lam / (1 - rho * lam))


def holder_prox(rho: float, lam: float, epsilon: float, prior_of_change: float) -> float:
    """How far a map with a norm as prior moves when beta is unknown; weak in many dimensions.

    `prior_of_change` is the prior, with its weight, of the change of the input.
    """
    check_convexity(rho, lam)
    check(epsilon=epsilon, prior_of_change=prior_of_change)
    left = 1 - rho * lam
    root = math.sqrt((epsilon / (2 * left)) ** 2 + 2 * rho * prior_of_change / left)
    return (abs(1 - 2 * rho * lam) / (2 * left) * epsilon + root) / rho


def map_error(res: float, e: float, rho: float, lam: float, beta: float, penalised: bool = True) -> float:
    """(1 + rho lip_prox)(res + e): how far a computed map is from the ideal one, surely if e is sure.

    res = |delta - prox(-rho grad)|/rho with the gradient estimated on fresh noise; e bounds the error of that gradient.
    Without a prior it is (res + e)/(1 - rho lam), whatever beta.
    """
    check(res=res, e=e)
    check_curvatures(rho, lam, beta)
    if not penalised:
        return (res + e) / (1 - rho * lam)
    return 0.0 if res + e == 0 else (1 + rho * lip_prox(rho, lam, beta)) * (res + e)


def dual_error(e: float, error: float, rho: float, lam: float, beta: float) -> float:
    """e + rho max(lam, beta) error: how far a computed dual gradient is from the ideal one; `error`: of the map."""
    check(e=e, error=error)
    check_curvatures(rho, lam, beta)
    return e if error == 0 else e + rho * max(lam, beta) * error


def topk_overlap(scores: Any, k: int, budget: float) -> int:
    """How many of the k largest scores surely stay among the k largest; ties count against them.

    l2 norms and maxima over channels take the budget of the map, sums over C channels sqrt(C) times that.
    """
    ordered = _sort_scores(scores, k, budget).values
    members, rest = ordered[:k].flip(0), ordered[k:]
    lost, most = 0, min(k, len(rest))
    while lost < most:  # the cost grows with the number that leave
        leave = (lost + most + 1) // 2
        fits = swap_cost(members[:leave], rest[:leave]) * (1 - _SLACK) <= budget * budget
        lost, most = (leave, most) if fits else (lost, leave - 1)
    return k - lost


def topk_members(scores: Any, k: int, budget: float) -> Bool[Tensor, "d"]:
    """Which of the k largest scores surely stay, each by itself: whatever pushes one out lowers it to, or lifts
    above it, the first score outside, (score - first)^2/2 at the least. There are never more than `topk_overlap`."""
    values, places = _sort_scores(scores, k, budget)
    outside = values[k] if k < len(values) else -torch.inf
    stay = torch.zeros_like(values, dtype=torch.bool)
    stay[places[:k]] = (values[:k] - outside).square() / 2 * (1 - _SLACK) > budget * budget
    return stay


def _sort_scores(scores: Any, k: int, budget: float) -> Any:
    """(values, indices), the largest first."""
    values = read_entries("scores", scores)
    check_top(k, values.numel())
    check(budget=budget)
    return values.sort(descending=True, stable=True)


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
    sizes = read_entries("magnitudes", magnitudes).abs()
    sizes = sizes[sizes > 0]
    return sizes.numel() - _cheapest(sizes, budget)


def support_entrants(slacks: Any, budget: float) -> int:
    """At most how many zeros become non-zero: slacks are eta - |dual gradient| of the zeros (groups: of its norms).

    The budget is that of the dual gradient, lip_dual * epsilon + dual_error; a negative slack costs nothing.
    """
    return _cheapest(read_entries("slacks", slacks).clamp(min=0), budget)


def normalised_distance(budget: float, norm: float) -> float:
    """2 sin(asin(s)/2), s = budget/norm: how far m/|m| may be from m'/|m'| when |m' - m| <= budget and |m| = norm.

    From s = 1 on only the trivial 2.
    """
    check(budget=budget, norm=norm)
    return 2.0 if budget >= norm else 2 * math.sin(math.asin(budget / norm) / 2)


def _cheapest(costs: Float[Tensor, "d"], budget: float) -> int:
    """The largest number of entries that can be moved by their costs at once."""
    check(budget=budget)
    sums = costs.sort().values.square().cumsum(0)
    return int((sums * (1 - _SLACK) <= budget * budget).sum())


def check(**given: Any) -> None:
    """Refuse numbers outside the range that their names stand for."""
    for name, value in given.items():
        if name == "L":
            check_known(name, value, _UNKNOWN_L)
        elif name in ("m", "k"):
            at_least(name, value, 1)
        elif name in ("sigma", "rho", "width"):
            positive(name, value)
        elif name in _RANGES:
            fits, wanted, way = _RANGES[name]
            number(name, value)
            if not fits(value):
                raise ValueError(f"{name} must be {wanted}, got {value!r}{way}")
        else:
            not_negative(name, value)


def check_convexity(rho: float, lam: float) -> None:
    """rho * lam in [0, 1): the minimiser is unique."""
    positive("rho", rho)
    check_known("lam", lam, _UNKNOWN_LAM)
    if not rho * lam < 1:
        raise ValueError(
            f"rho * lam must be below 1, or the minimiser need not be unique, got rho={rho:g} and lam={lam:g}: "
            f"take rho below {1 / lam:.6g}, or lower lam by a larger sigma or a score of smaller range"
        )


def check_curvatures(rho: float, lam: float, beta: float) -> None:
    """Curvatures from -lam to beta, of which beta may be infinite."""
    check_convexity(rho, lam)
    if beta is None:
        raise TypeError(f"beta must be a number, got None; {_INF}")
    number("beta", beta)
    if not beta >= -lam:
        raise ValueError(
            f"beta must be at least -lam: curvatures lie between the two, got beta={beta!r} and lam={lam!r}; {_INF}"
        )


def check_known(name: str, value: Any, way: str = "") -> None:
    """A finite number >= 0 that must not be missing."""
    if value is None:
        raise TypeError(f"{name} must be a known number, got None{way and '; ' + way}")
    number(name, value)
    if not (value >= 0 and math.isfinite(value)):
        raise ValueError(f"{name} must be a known finite number >= 0, got {value!r}{way and '; ' + way}")


def read_entries(name: str, given: Any) -> Float[Tensor, "d"]:
    """Numbers of any shape, as one row in float64."""
    try:
        found = torch.as_tensor(given, dtype=torch.float64, device="cpu").detach().flatten()
    except (TypeError, ValueError, RuntimeError):
        raise TypeError(f"{name} must be numbers: a tensor, an array or a list, got {type(given).__name__}") from None
    if not bool(found.isfinite().all()):
        raise ValueError(f"{name} must be finite, got {int((~found.isfinite()).sum())} entries that are not")
    return found


def check_top(k: int, size: int) -> None:
    at_least("k", k, 1)
    if k > size:
        raise ValueError(f"k must be at most the number of entries, got k={k} of {size}; lower k")
