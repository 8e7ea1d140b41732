"""Figures of many images as they are reported: mean, median with its interval, and how many were not defined."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from moreaugrad import validate

AT_ONCE = 2**20  # numbers drawn together


@dataclass(frozen=True, slots=True)
class Summary:
    """What a list of figures says; NaN throughout where none was defined."""

    mean: float
    median: float
    low: float  # of the interval of the median
    high: float
    count: int  # figures that are numbers
    undefined: int  # NaN, left out of all else

    def __str__(self) -> str:
        left = f", {self.undefined} undefined" if self.undefined else ""
        return f"median {self.median:.4g} [{self.low:.4g}, {self.high:.4g}], mean {self.mean:.4g} of {self.count}{left}"


def summary(values: Any, confidence: float = 0.95, draws: int = 2000, seed: int = 0) -> Summary:
    """Mean, median and the percentile bootstrap interval of the median; NaN figures are counted and left out.

    With few images the interval is coarse, and it says nothing of how they were chosen.
    """
    validate.positive("confidence", confidence)
    if confidence >= 1:
        raise ValueError(f"confidence must be below 1, got {confidence!r}; 0.95 is usual")
    validate.at_least("draws", draws, 1)
    validate.at_least("seed", seed, 0)
    figures = _figures(values)
    sound = figures[~np.isnan(figures)]
    missing = len(figures) - len(sound)
    if not len(sound):
        return Summary(np.nan, np.nan, np.nan, np.nan, 0, missing)
    medians = _medians(sound, draws, seed)
    share = (1 - confidence) / 2
    low, high = np.quantile(medians, [share, 1 - share], method="closest_observation")  # infinities do not blend
    return Summary(_mean(sound), float(np.median(sound)), float(low), float(high), len(sound), missing)


def class_average(hits: Tensor, classes: Tensor) -> float:
    """The mean of each class, averaged over the classes: every class counts alike. NaN figures are left out."""
    figures, labels = _figures(hits), _figures(classes)
    if len(figures) != len(labels):
        raise ValueError(f"classes must be one per figure, got {len(labels)} for {len(figures)} figures")
    sound = ~np.isnan(figures)
    means = [figures[sound & (labels == each)].mean() for each in np.unique(labels[sound])]
    return float(np.mean(means)) if means else float("nan")


def _figures(values: Any) -> NDArray[np.float64]:
    found = values.detach().cpu() if isinstance(values, Tensor) else torch.as_tensor(np.asarray(values))
    if found.ndim != 1 or found.is_complex():
        raise ValueError(f"values must be a list of numbers, one per image, got shape {tuple(found.shape)}")
    figures: NDArray[np.float64] = found.double().numpy()
    return figures


def _mean(figures: NDArray[np.float64]) -> float:
    with np.errstate(invalid="ignore"):  # infinities of both signs have no mean
        return float(figures.mean())


def _medians(figures: NDArray[np.float64], draws: int, seed: int) -> NDArray[np.float64]:
    """Medians of samples drawn from the figures with replacement."""
    random = np.random.default_rng(seed)
    size = max(1, AT_ONCE // len(figures))
    parts = [
        np.median(figures[random.integers(len(figures), size=(min(size, draws - start), len(figures)))], axis=1)
        for start in range(0, draws, size)
    ]
    return np.concatenate(parts)
