"""Results of many images as they are reported: mean, median with its interval, and how many were not defined."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from moreaugrad import validate

AT_ONCE = 2**20  # numbers drawn together


@dataclass(frozen=True, slots=True)
class Summary:
    """What a list of numbers shows; NaN throughout where none was defined.

    Attributes:
        mean: of the defined numbers.
        median: of the defined numbers.
        low: lower end of the interval of the median.
        high: upper end of that interval.
        count: how many numbers are defined.
        undefined: how many are NaN; these are left out of all else.

    Example:
        >>> mg.summary([1.0, 2.0, 6.0]).mean
        3.0
    """

    mean: float
    median: float
    low: float
    high: float
    count: int
    undefined: int

    def __str__(self) -> str:
        left = f", {self.undefined} undefined" if self.undefined else ""
        return f"median {self.median:.4g} [{self.low:.4g}, {self.high:.4g}], mean {self.mean:.4g} of {self.count}{left}"


def summary(values: Any, confidence: float = 0.95, draws: int = 2000, seed: int = 0) -> Summary:
    """Mean, median and the percentile bootstrap interval of the median.

    With few images the interval is coarse, and it says nothing about how they were chosen.

    Args:
        values: one number per image: a tensor, an array or a list (N,). NaN is counted and left out.
        confidence: of the interval, in (0, 1).
        draws: number of bootstrap samples.
        seed: of the draws.

    Returns:
        A `Summary` with mean, median, low, high, count and undefined.

    Example:
        >>> print(mg.summary([1.0, 2.0, 3.0, float("nan")]))
        median 2 [1, 3], mean 2 of 3, 1 undefined
    """
    validate.positive("confidence", confidence)
    if confidence >= 1:
        raise ValueError(f"confidence must be below 1, got {confidence!r}; 0.95 is usual")
    validate.at_least("draws", draws, 1)
    validate.at_least("seed", seed, 0)
    numbers = _to_array(values)
    defined = numbers[~np.isnan(numbers)]
    missing = len(numbers) - len(defined)
    if not len(defined):
        return Summary(np.nan, np.nan, np.nan, np.nan, 0, missing)
    medians = _medians(defined, draws, seed)
    share = (1 - confidence) / 2
    low, high = np.quantile(medians, [share, 1 - share], method="closest_observation")  # no interpolation: infinities
    with np.errstate(invalid="ignore"):  # infinities of both signs have no mean
        mean = float(defined.mean())
    return Summary(mean, float(np.median(defined)), float(low), float(high), len(defined), missing)


def _to_array(values: Any) -> NDArray[np.float64]:
    try:
        found = values.detach().cpu() if isinstance(values, Tensor) else validate.read_array(values)
    except (TypeError, ValueError, RuntimeError):
        raise TypeError(f"values must be a list of numbers, one per image, got {values!r}") from None
    if found.ndim != 1 or found.is_complex():
        raise ValueError(f"values must be a list of numbers, one per image, got shape {tuple(found.shape)}")
    numbers: NDArray[np.float64] = found.double().numpy()
    return numbers


def _medians(numbers: NDArray[np.float64], draws: int, seed: int) -> NDArray[np.float64]:
    """Medians of samples drawn from the numbers with replacement."""
    random = np.random.default_rng(seed)
    size = max(1, AT_ONCE // len(numbers))
    parts = [
        np.median(numbers[random.integers(len(numbers), size=(min(size, draws - start), len(numbers)))], axis=1)
        for start in range(0, draws, size)
    ]
    return np.concatenate(parts)
