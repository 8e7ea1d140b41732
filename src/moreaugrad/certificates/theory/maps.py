"""How far a solved map moves, and what follows for its top entries, its support and its direction.

Throughout: curvatures of the score lie in [-lam, beta], rho * lam < 1; beta = inf means that no upper bound is known.
With a prior the constants hold for every convex penalty of delta alone, the same at both inputs. From a budget, "the
map moves by at most B in l2", the statements follow exactly for the l2 ball; they compare with a slack in favour of the
attacker, so that rounding never certifies.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from moreaugrad.validate import at_least, not_negative, number, positive

_SLACK = 1e-9  # relative, on squares
_UNKNOWN_LAM = "lam_range gives it for a bounded score, lam_lipschitz for a known Lipschitz constant"
_UNKNOWN_BETA = "math.inf stands for an unknown one"


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
    """How far a map with a norm as prior moves when beta is unknown; it grows like the root of epsilon.

    `prior_of_change` is the prior, with its weight, of the change of the input. Weak in many dimensions.
    """
    check_convexity(rho, lam)
    check_epsilon(epsilon)
    not_negative("prior_of_change", prior_of_change)
    left = 1 - rho * lam
    root = math.sqrt((epsilon / (2 * left)) ** 2 + 2 * rho * prior_of_change / left)
    return (abs(1 - 2 * rho * lam) / (2 * left) * epsilon + root) / rho


def map_error(res: float, e: float, rho: float, lam: float, beta: float, penalised: bool = True) -> float:
    """(1 + rho lip_prox)(res + e): how far a computed map is from the ideal one, surely if e is sure.

    res = |delta - prox(-rho grad)|/rho with the gradient estimated on fresh noise; e bounds the error of that gradient.
    Without a prior it is (res + e)/(1 - rho lam), whatever beta.
    """
    not_negative("res", res)
    not_negative("e", e)
    check_curvatures(rho, lam, beta)
    if not penalised:
        return (res + e) / (1 - rho * lam)
    return 0.0 if res + e == 0 else (1 + rho * lip_prox(rho, lam, beta)) * (res + e)


def dual_error(e: float, error: float, rho: float, lam: float, beta: float) -> float:
    """e + rho max(lam, beta) error: how far a computed dual gradient is from the ideal one.

    `error` is that of the map (map_error). Added to lip_dual * epsilon it makes the budget of support_entrants.
    """
    not_negative("e", e)
    not_negative("error", error)
    check_curvatures(rho, lam, beta)
    return e if error == 0 else e + rho * max(lam, beta) * error


def topk_overlap(scores: Any, k: int, budget: float) -> int:
    """How many of the k largest scores surely stay among the k largest; ties count against them.

    Scores of a pixel: the map, its sizes, their l2 norm or maximum over the channels, each with the budget of the map;
    sums over C channels with sqrt(C) times that.
    """
    values = read_entries("scores", scores)
    check_top(k, values.numel())
    check_budget(budget)
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
    values = read_entries("scores", scores)
    check_top(k, values.numel())
    check_budget(budget)
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
    sizes = read_entries("magnitudes", magnitudes).abs()
    sizes = sizes[sizes > 0]
    return sizes.numel() - _cheapest(sizes, budget)


def support_entrants(slacks: Any, budget: float) -> int:
    """At most how many zeros become non-zero: slacks are eta - |dual gradient| of the zeros (groups: of its norms).

    The budget is that of the dual gradient, lip_dual * epsilon and its error; a negative slack costs nothing.
    """
    return _cheapest(read_entries("slacks", slacks).clamp(min=0), budget)


def normalised_distance(budget: float, norm: float, non_negative: bool = False) -> float:
    """2 sin(asin(s)/2), s = budget/norm: how far m/|m| may be from m'/|m'| when |m' - m| <= budget and |m| = norm.

    From s = 1 on only the trivial 2, or sqrt(2) for maps that are nowhere negative.
    """
    check_budget(budget)
    not_negative("norm", norm)
    if budget >= norm:
        return math.sqrt(2) if non_negative else 2.0
    return 2 * math.sin(math.asin(budget / norm) / 2)


def affordable(cost: float, budget: float) -> bool:
    """Whether a squared change fits into the budget, within rounding."""
    return cost * (1 - _SLACK) <= budget * budget


def _cheapest(costs: Float[Tensor, "d"], budget: float) -> int:
    """The largest number of entries that can be moved by their costs at once."""
    check_budget(budget)
    sums = costs.sort().values.square().cumsum(0)
    return int((sums * (1 - _SLACK) <= budget * budget).sum())


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
        raise TypeError(f"beta must be a number, got None; {_UNKNOWN_BETA}")
    number("beta", beta)
    if not beta >= -lam:
        raise ValueError(
            f"beta must be at least -lam, for curvatures lie between the two, got beta={beta!r} and lam={lam!r}; "
            + _UNKNOWN_BETA
        )


def check_known(name: str, value: Any, way: str = "") -> None:
    """A finite number >= 0 that must not be missing."""
    if value is None:
        raise TypeError(f"{name} must be a known number, got None{way and '; ' + way}")
    number(name, value)
    if not (value >= 0 and math.isfinite(value)):
        raise ValueError(f"{name} must be a known finite number >= 0, got {value!r}{way and '; ' + way}")


def check_epsilon(epsilon: float) -> None:
    number("epsilon", epsilon)
    if not (epsilon >= 0 and math.isfinite(epsilon)):
        raise ValueError(
            f"epsilon must be a finite number >= 0, the l2 length of the change of the input, got {epsilon!r}"
        )


def check_budget(value: float) -> None:
    """How far a map may move; infinite where nothing is known."""
    number("budget", value)
    if not value >= 0:
        raise ValueError(
            f"budget must be at least 0, how far the map may move (Lipschitz constant * epsilon), got {value!r}; "
            "math.inf stands for an unknown one"
        )


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
