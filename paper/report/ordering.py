"""Whether methods come in the same order as published, metric by metric and size by size, and how sure that is."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from paper import names
from paper.data.records import Line, number
from paper.report.summaries import curve

READING_ERROR = 0.02  # of a value that was read off the published plot
COLUMNS = (
    *("dataset", "metric", "epsilon", "statistic", "method", "other", "order"),
    *("ours", "ours_other", "ours_apart", "published", "published_other", "published_apart"),
    *("spearman", "kendall", "methods"),
)


@dataclass(frozen=True, slots=True)
class Ordering:
    """Methods from the most robust to the least, here and as published."""

    ours: tuple[str, ...]
    published: tuple[str, ...]
    spearman: float  # of the ranks; equal values share a rank
    kendall: float  # tau-b
    pairs: list[Line]  # one per pair of methods; `order` is same, differs or tied


def compare_order(
    lines: Sequence[Mapping[str, Any]],
    published: Sequence[Mapping[str, Any]],
    dataset: str,
    metric: str,
    epsilon: float,
    statistic: str = "mean",
) -> Ordering:
    """Over the methods that both have, by means or medians."""
    sign = 1.0 if names.is_lower_better(metric) else -1.0
    wanted = (dataset, names.base(metric), epsilon)
    theirs = {p["method"]: float(p["value"]) for p in published if _point(p) == wanted}
    some = [line for method in theirs for line in curve(lines, dataset, method, metric)]
    known = {line["method"]: line for line in some if number(line["epsilon"]) == epsilon}
    methods = [method for method in theirs if method in known]
    ours = {method: number(known[method][statistic]) for method in methods}
    values = [np.array([sign * of[method] for method in methods]) for of in (ours, theirs)]
    return Ordering(
        tuple(sorted(methods, key=lambda method: sign * ours[method])),
        tuple(sorted(methods, key=lambda method: sign * theirs[method])),
        *correlate(*values),
        [_compare_pair(known, theirs, one, other, statistic) for one, other in combinations(methods, 2)],
    )


def _point(line: Mapping[str, Any]) -> tuple[str, str, float]:
    return line["dataset"], line["metric"], number(line["epsilon"])


def _compare_pair(
    known: Mapping[str, Mapping[str, Any]], theirs: Mapping[str, float], one: str, other: str, statistic: str
) -> Line:
    """`ours_apart`: the 95 % intervals of the two do not meet; `published_apart`: the two values differ by more than
    the reading error."""
    middle = (statistic, f"{statistic}_low", f"{statistic}_high")
    (a, low, high), (b, low_b, high_b) = ([number(known[each][name]) for name in middle] for each in (one, other))
    agreement = (a - b) * (theirs[one] - theirs[other])
    return {
        "method": one,
        "other": other,
        "order": "same" if agreement > 0 else "differs" if agreement < 0 else "tied",
        "ours": a,
        "ours_other": b,
        "ours_apart": low > high_b or low_b > high,
        "published": theirs[one],
        "published_other": theirs[other],
        "published_apart": abs(theirs[one] - theirs[other]) > READING_ERROR,
    }


def compare_orders(
    lines: Sequence[Mapping[str, Any]],
    published: Sequence[Mapping[str, Any]],
    every: Sequence[Mapping[str, Any]] = (),
) -> list[Line]:
    """A line per data set, metric, size, statistic and pair of methods; only what both sides have.

    `every`: the lines with failed attacks, whose means are the statistic `all`.
    """
    known = {"mean": (lines, "mean"), "median": (lines, "median")} | ({"all": (every, "mean")} if every else {})
    both = {_point(line) for line in lines} & {_point(point) for point in published}
    found: list[Line] = []
    order = list(names.DATASETS), list(names.COMPARED)
    for dataset, metric, size in sorted(both, key=lambda of: (order[0].index(of[0]), order[1].index(of[1]), of[2])):
        for statistic, (some, column) in known.items():
            result = compare_order(some, published, dataset, metric, size, column)
            shared = {"dataset": dataset, "metric": metric, "epsilon": size, "statistic": statistic}
            shared |= {"methods": len(result.ours), "spearman": result.spearman, "kendall": result.kendall}
            found += [shared | pair for pair in result.pairs]
    return found


def correlate(a: NDArray[np.float64], b: NDArray[np.float64]) -> tuple[float, float]:
    """Spearman's correlation of the ranks, and Kendall's tau-b; NaN where one side has no order at all."""
    if min(len(set(a)), len(set(b))) < 2:
        return math.nan, math.nan
    return float(stats.spearmanr(a, b).statistic), float(stats.kendalltau(a, b).statistic)
