"""What the rows of a job tell together: distributions, classes, confusions, failures. Pure functions of their facts."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

BARS = 40
QUANTILES = {"smallest": 0.0, "5 %": 0.05, "median": 0.5, "95 %": 0.95, "largest": 1.0}
FENCE = 3  # distances of the quartiles, beyond which values go to the outermost bars: few slow images flatten nothing
_QUOTED = re.compile(r"(?<!\w)(['\"]).*?\1(?!\w)")


@dataclass(frozen=True)
class Distribution:
    """One number of all images.

    Attributes:
        count: images that have it.
        quantiles: by their names.
        span: what the bars of the histogram cover; smaller and larger values are in the outermost bars.
        bars: how many images are in each.
    """

    count: int
    quantiles: Mapping[str, float]
    span: tuple[float, float]
    bars: Sequence[int]


@dataclass(frozen=True)
class ClassSummary:
    """The images in which one class was explained.

    Attributes:
        target, label: the class, and its name.
        count: how many images.
        known, right: how many have a known true class, and how many of these it is.
        score, relative_error: means; None where no image has the number.
    """

    target: int | None
    label: str
    count: int
    known: int
    right: int
    score: float | None
    relative_error: float | None


@dataclass(frozen=True)
class Confusion:
    """Images of one class in which another one was predicted."""

    truth: str
    predicted: str
    count: int


@dataclass(frozen=True)
class Failure:
    """Images with the same error, in the order of the source."""

    sentence: str
    keys: Sequence[str]


def describe_numbers(facts: pa.Table, name: str) -> Distribution | None:
    """How a column is distributed; None where no image has it."""
    values: NDArray[np.float64] = facts.column(name).drop_null().to_numpy().astype(np.float64)
    values = values[np.isfinite(values)]  # parts that others have written may hold NaN
    if not len(values):
        return None
    quantiles = dict(zip(QUANTILES, np.quantile(values, list(QUANTILES.values())).tolist(), strict=True))
    low, high = _find_span(values)
    bars, _ = np.histogram(values.clip(low, high), BARS, (low, high))
    return Distribution(len(values), quantiles, (low, high), bars.tolist())


def _find_span(values: NDArray[np.float64]) -> tuple[float, float]:
    """All values but those far outside of the middle half."""
    first, last = np.quantile(values, [0.25, 0.75]).tolist()
    low, high = float(values.min()), float(values.max())
    reach = FENCE * (last - first)
    return (max(low, first - reach), min(high, last + reach)) if reach else (low, high)


def find_labels(facts: pa.Table) -> dict[int | None, str]:
    """The names of the classes by number, as far as an explained image tells them."""
    found = facts.filter(facts.column("error").is_null()).group_by(["target", "label"]).aggregate([])
    return {row["target"]: name_class(row["target"], row["label"]) for row in found.to_pylist()}


def name_class(target: int | None, label: str | None = None) -> str:
    """A class for people."""
    return label or ("the only output" if target is None else f"class {target}")


def summarise_classes(facts: pa.Table) -> list[ClassSummary]:
    """Every explained class, the most frequent first."""
    labels, explained = find_labels(facts), facts.filter(facts.column("error").is_null())
    right = pc.equal(explained.column("target"), explained.column("truth"))
    wanted = [("key", "count"), ("right", "count"), ("right", "sum"), ("score", "mean"), ("relative_error", "mean")]
    table = explained.append_column("right", right).group_by("target").aggregate(wanted)
    found = [
        ClassSummary(
            *(row["target"], labels[row["target"]], row["key_count"], row["right_count"], row["right_sum"] or 0),
            *(row["score_mean"], row["relative_error_mean"]),
        )
        for row in table.to_pylist()
    ]
    return sorted(found, key=lambda each: (-each.count, -1 if each.target is None else each.target))


def count_confusions(facts: pa.Table, most: int) -> list[Confusion]:
    """Which true classes were taken for which other ones, the most frequent first; of no use unless targets are
    predicted classes."""
    labels = find_labels(facts)
    wrong = facts.filter(pc.not_equal(facts.column("target"), facts.column("truth")))
    table = wrong.group_by(["truth", "target"]).aggregate([("key", "count")]).to_pylist()
    table.sort(key=lambda row: (-row["key_count"], row["truth"], row["target"]))
    return [
        Confusion(labels.get(row["truth"], name_class(row["truth"])), labels[row["target"]], row["key_count"])
        for row in table[:most]
    ]


def group_failures(errors: Mapping[str, str]) -> list[Failure]:
    """Errors by sentence, the most frequent first. Sentences that differ only in what they quote, such as the name of
    the file, are one."""
    groups: dict[str, dict[str, str]] = {}
    for key, sentence in errors.items():
        groups.setdefault(_QUOTED.sub(r"\1...\1", sentence), {})[key] = sentence
    found = [
        Failure(next(iter(each.values())) if len(set(each.values())) == 1 else pattern, list(each))
        for pattern, each in groups.items()
    ]
    return sorted(found, key=lambda each: -len(each.keys))


def pick_evenly(count: int, most: int) -> list[int]:
    """At most so many of `count` places, evenly spread, the first and the last among them."""
    return sorted({round(place) for place in np.linspace(0, count - 1, min(count, most)).tolist()}) if count else []


def find_extremes(facts: pa.Table, name: str, most: int) -> tuple[list[int], list[int]]:
    """The places of the smallest and of the largest values of a column; none where all are equal."""
    values: NDArray[np.float64] = facts.column(name).cast(pa.float64()).to_numpy()
    places: Any = np.flatnonzero(np.isfinite(values))
    order = places[np.argsort(values[places], kind="stable")].tolist()
    if not order or values[order[0]] == values[order[-1]]:
        return [], []
    most = min(most, len(order) // 2)
    return order[:most], order[::-1][:most]
