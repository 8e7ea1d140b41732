"""Whether methods come in the same order as published, metric by metric and size by size, and how sure that is."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np

from paper import names, records
from paper.records import Line, number
from paper.summaries import DRAWN, curve

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

    @property
    def differing(self) -> list[Line]:
        return [pair for pair in self.pairs if pair["order"] == "differs"]


def ordering(
    lines: Iterable[Mapping[str, Any]],
    published: Iterable[Mapping[str, Any]],
    dataset: str,
    metric: str,
    epsilon: float,
    statistic: str = "mean",
) -> Ordering:
    """Over the methods that both have, by means or medians.

    `ours_apart`: the 95 % intervals of the two do not meet; `published_apart`: the two values differ by more than the
    reading error.
    """
    lines, sign = list(lines), 1.0 if names.is_lower_better(metric) else -1.0
    told = {
        point["method"]: float(point["value"])
        for point in published
        if (point["dataset"], point["metric"], float(point["epsilon"])) == (dataset, names.base(metric), epsilon)
    }
    found = [line for method in told for line in curve(lines, dataset, method, metric)]
    known = {line["method"]: line for line in found if number(line["epsilon"]) == epsilon}
    methods = [method for method in told if method in known]
    ours = {method: number(known[method][statistic]) for method in methods}
    values = [np.array([sign * of[method] for method in methods]) for of in (ours, told)]
    pairs = [_pair(known, told, one, other, statistic) for one, other in combinations(methods, 2)]
    return Ordering(
        tuple(sorted(methods, key=lambda method: sign * ours[method])),
        tuple(sorted(methods, key=lambda method: sign * told[method])),
        spearman(*values),
        kendall(*values),
        pairs,
    )


def _pair(
    known: Mapping[str, Mapping[str, Any]], told: Mapping[str, float], one: str, other: str, statistic: str
) -> Line:
    middle = (statistic, f"{statistic}_low", f"{statistic}_high")
    (a, low, high), (b, low_b, high_b) = ([number(known[each][name]) for name in middle] for each in (one, other))
    way = (a - b) * (told[one] - told[other])
    return {
        "method": one,
        "other": other,
        "order": "same" if way > 0 else "differs" if way < 0 else "tied",
        "ours": a,
        "ours_other": b,
        "ours_apart": low > high_b or low_b > high,
        "published": told[one],
        "published_other": told[other],
        "published_apart": abs(told[one] - told[other]) > READING_ERROR,
    }


def write_orderings(
    path: Path,
    lines: Sequence[Mapping[str, Any]],
    published: Sequence[Mapping[str, Any]],
    metrics: Sequence[str] = DRAWN,
    every: Sequence[Mapping[str, Any]] = (),
) -> list[Line]:
    """A line per data set, metric, size, statistic and pair of methods; only what both sides have.

    `every`: the lines with failed attacks, whose means are the statistic `all`.
    """
    known = {"mean": (lines, "mean"), "median": (lines, "median")} | ({"all": (every, "mean")} if every else {})
    ours = {(line["dataset"], line["metric"], number(line["epsilon"])) for line in lines}
    told = {(point["dataset"], point["metric"], point["epsilon"]) for point in published}
    found: list[Line] = []
    for dataset in names.DATASETS:
        for metric in metrics:
            sizes = {size for of, name, size in ours if (of, name) == (dataset, metric)}
            for size in sorted(size for size in sizes if (dataset, names.base(metric), size) in told):
                for statistic, (some, column) in known.items():
                    order = ordering(some, published, dataset, metric, size, column)
                    shared = {"dataset": dataset, "metric": metric, "epsilon": size, "statistic": statistic}
                    shared |= {"methods": len(order.ours), "spearman": order.spearman, "kendall": order.kendall}
                    found += [shared | pair for pair in order.pairs]
    records.write(path, found, COLUMNS)
    return found


def spearman(a: np.ndarray, b: np.ndarray) -> float:
    """Correlation of the ranks; NaN where one side has no order at all."""
    one, other = (_ranks(each) for each in (a, b))
    spread = np.sqrt((one @ one) * (other @ other))
    return float(one @ other / spread) if spread > 0 else float("nan")


def _ranks(values: np.ndarray) -> np.ndarray:
    """Centred; equal values share the mean of their ranks."""
    below, equal = (values[:, None] > values).sum(1), (values[:, None] == values).sum(1)
    ranks = below + (equal + 1) / 2
    return np.asarray(ranks - ranks.mean() if len(ranks) else ranks, dtype=float)


def kendall(a: np.ndarray, b: np.ndarray) -> float:
    """tau-b: pairs in the same order less those in the other, over the geometric mean of those that have one."""
    one, other = (np.sign(each[:, None] - each) for each in (a, b))
    spread = np.sqrt((one**2).sum() * (other**2).sum())
    return float((one * other).sum() / spread) if spread > 0 else float("nan")
