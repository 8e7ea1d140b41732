"""Checks of the conditions under which something is certified: which one failed, and the option that would meet it."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from moreaugrad.validate import at_least, number, one_of, positive

_UNKNOWN_L = (
    "without a known Lipschitz constant take a bounded score (score='prob'): lam_range, local_certificate and "
    "err_stein need its range alone"
)
_UNKNOWN_LAM = "lam_range gives it for a bounded score, lam_lipschitz for a known Lipschitz constant"
_UNKNOWN_BETA = "math.inf stands for an unknown one"


def weak_convexity(rho: float, lam: float) -> None:
    """rho * lam in [0, 1): the minimiser is unique."""
    positive("rho", rho)
    known("lam", lam, _UNKNOWN_LAM)
    if not rho * lam < 1:
        raise ValueError(
            f"rho * lam must be below 1, or the minimiser need not be unique, got rho={rho:g} and lam={lam:g}: "
            f"take rho below {1 / lam:.6g}, or lower lam by a larger sigma or a score of smaller range"
        )


def curvatures(rho: float, lam: float, beta: float) -> None:
    """Curvatures from -lam to beta, of which beta may be infinite."""
    weak_convexity(rho, lam)
    if beta is None:
        raise TypeError(f"beta must be a number, got None; {_UNKNOWN_BETA}")
    number("beta", beta)
    if not beta >= -lam:
        raise ValueError(
            f"beta must be at least -lam, for curvatures lie between the two, got beta={beta!r} and lam={lam!r}; "
            + _UNKNOWN_BETA
        )


def known(name: str, value: Any, way: str = "") -> None:
    """A finite number >= 0 that must not be missing."""
    if value is None:
        raise TypeError(f"{name} must be a known number, got None{way and '; ' + way}")
    number(name, value)
    if not (value >= 0 and math.isfinite(value)):
        raise ValueError(f"{name} must be a known finite number >= 0, got {value!r}{way and '; ' + way}")


def lipschitz(L: float) -> None:
    known("L", L, _UNKNOWN_L)


def score_range(low: float, high: float) -> None:
    for name, value in (("low", low), ("high", high)):
        number(name, value)
    if not (low < high and math.isfinite(high - low)):
        raise ValueError(
            f"low and high must be finite with low < high, got low={low!r} and high={high!r}; "
            "a logit has no range: clip it, or take score='prob', whose range is 0 to 1"
        )


def probabilities(low: float, high: float) -> None:
    """An interval within [0, 1]."""
    for name, value in (("p_lo", low), ("p_hi", high)):
        number(name, value)
    if not 0 <= low <= high <= 1:
        raise ValueError(
            f"the score must lie in 0 <= p_lo <= p_hi <= 1, got p_lo={low!r} and p_hi={high!r}; "
            "give (score - low)/(high - low), and width=high - low, for another range"
        )


def share(name: str, value: float) -> None:
    number(name, value)
    if not 0 <= value <= 1:
        raise ValueError(f"{name} must be in [0, 1], got {value!r}; rescale a score of another range first")


def between(name: str, value: float, meaning: str) -> None:
    number(name, value)
    if not 0 < value < 1:
        raise ValueError(f"{name} must be in (0, 1), {meaning}, got {value!r}")


def level(alpha: float) -> None:
    between("alpha", alpha, "the chance that the statement fails; 0.05 and 0.001 are usual")


def twice(alpha: float, needed: bool) -> None:
    if needed and alpha >= 0.5:
        raise ValueError(
            f"alpha must be below 0.5 for compared='empirical', where both averages may fail, got {alpha!r}; "
            "lower alpha, or take compared='population'"
        )


def steepness(low: float, high: float, L: float) -> None:
    """Bounds on the length of a gradient of the average of an L-Lipschitz score."""
    for name, value in (("the lower", low), ("the upper", high)):
        number(f"{name} bound on the length of the gradient", value)
    if not 0 <= low <= high <= L:
        got = f"{low!r}" if low == high else f"{low!r} to {high!r}"
        raise ValueError(
            f"the length of the gradient must lie within [0, L], lower bound first, got {got} with L={L!r}; where "
            "an estimate less its error is negative give 0, where it passes L by rounding give L"
        )


def radius(epsilon: float) -> None:
    number("epsilon", epsilon)
    if not (epsilon >= 0 and math.isfinite(epsilon)):
        raise ValueError(
            f"epsilon must be a finite number >= 0, the l2 length of the change of the input, got {epsilon!r}"
        )


def budget(value: float) -> None:
    """How far a map may move; infinite where nothing is known."""
    number("budget", value)
    if not value >= 0:
        raise ValueError(
            f"budget must be at least 0, how far the map may move (Lipschitz constant * epsilon), got {value!r}; "
            "math.inf stands for an unknown one"
        )


def entries(name: str, given: Any) -> Float[Tensor, "d"]:
    """Numbers of any shape, as one row in float64."""
    try:
        found = torch.as_tensor(given, dtype=torch.float64, device="cpu").detach().flatten()
    except (TypeError, ValueError, RuntimeError):
        raise TypeError(f"{name} must be numbers: a tensor, an array or a list, got {type(given).__name__}") from None
    if not bool(found.isfinite().all()):
        raise ValueError(f"{name} must be finite, got {int((~found.isfinite()).sum())} entries that are not")
    return found


def shares(name: str, given: Any) -> Float[Tensor, "d"]:
    """A map with entries in [0, 1], as one row in float64."""
    found = entries(name, given)
    if not found.numel():
        raise ValueError(f"{name} must have at least one entry, got none")
    if float(found.min()) < 0 or float(found.max()) > 1:
        raise ValueError(
            f"{name} must lie in [0, 1], on which the certificate rests, got {float(found.min()):.4g} to "
            f"{float(found.max()):.4g}; the method `sparsified_smoothgrad` makes such maps"
        )
    return found


def top(k: int, size: int) -> None:
    at_least("k", k, 1)
    if k > size:
        raise ValueError(f"k must be at most the number of entries, got k={k} of {size}; lower k")


def bound(name: str, table: Mapping[str, Any], samples: int) -> None:
    one_of("bound", name, table)
    at_least("samples", samples, 2)


def spreads(variance: Any, size: int) -> Float[Tensor, "d"]:
    """A variance for each entry of a map."""
    found = entries("variance", variance)
    if found.numel() != size or float(found.min()) < 0:
        raise ValueError(f"variance must hold one number >= 0 for each of the {size} entries, got {found.numel()}")
    return found


def counts(means: Float[Tensor, "d"], samples: int) -> Float[Tensor, "d"]:
    """How many of the copies had a one, which is a whole number where every copy is 0 or 1."""
    found = means * samples
    whole = found.round()
    # a float32 mean is off by 6e-8 of itself
    if bool(((found - whole).abs() > 1e-3 + 1e-6 * whole).any()):
        raise ValueError(
            f"bound='clopper' needs a mean of {samples} independent maps of 0 and 1, got entries that are none; "
            "take variant='basic' without antithetic pairs (a pair counts as one sample, and is not 0 or 1), "
            "or bound='kl', which holds for any map in [0, 1]"
        )
    return whole
