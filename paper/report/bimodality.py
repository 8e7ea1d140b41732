"""Images whose maps jump: two seeds give maps that lie far from each other, though nobody attacked them.

The noise of samples is about alike on all images, so a distance of several times the median is another solution.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from moreaugrad.studies.plan import FLOOR
from paper.data.records import Line, number
from paper.report.summaries import DISTANCE, Row, is_hit

FAR = 2.0  # times the median: more than noise
SPREAD = ("n", "median", "mean", "largest", "far", "far_share")
FLOORS = ("dataset", "method", *SPREAD)
WITHOUT = ("dataset", "method", "epsilon", "counted", "mean", "counted_without", "mean_without", "published")


def spread(values: Sequence[float]) -> Line:
    """Of the distances between two seeds' maps."""
    middle = float(np.median(values))
    far = sum(value > FAR * middle for value in values)
    found: Line = {"n": len(values), "median": middle, "mean": float(np.mean(values)), "largest": max(values)}
    return found | {"far": far, "far_share": far / len(values)}


def floors(rows: Sequence[Row], dataset: str) -> list[Line]:
    """The spread of each method whose maps have noise."""
    known = {method: _floor(rows, method) for method in dict.fromkeys(row["method"] for row in rows)}
    return [
        {"dataset": dataset, "method": method} | spread(list(values.values()))
        for method, values in known.items()
        if any(values.values())
    ]


def _floor(rows: Sequence[Row], method: str) -> dict[str, float]:
    """The distance between two seeds, by image."""
    return {row["key"]: number(row[DISTANCE]) for row in rows if (row["method"], row["mode"]) == (method, FLOOR)}


def find_jumping(floor: Mapping[str, float]) -> set[str]:
    """The images on which two seeds lie farther apart than noise explains."""
    middle = float(np.median(list(floor.values())))
    return {key for key, value in floor.items() if value > FAR * middle}


def drop_jumping(rows: Sequence[Row], method: str) -> list[Row]:
    """The rows of a method on the other images."""
    jumping = find_jumping(_floor(rows, method))
    return [row for row in rows if row["method"] == method and row["key"] not in jumping]


def without_jumps(rows: Sequence[Row], dataset: str, published: Sequence[Mapping[str, Any]]) -> list[Line]:
    """How far attacks move maps of MoreauGrad, with the images that jump by themselves and without them."""
    found: list[Line] = []
    values = {(p["dataset"], p["method"], p["metric"], p["epsilon"]): p["value"] for p in published}
    for method in ("moreau", "sparse_moreau"):
        if not (floor := _floor(rows, method)):
            continue
        jumping = find_jumping(floor)
        hits = [(row["key"], number(row["epsilon"]), number(row[DISTANCE])) for row in rows if is_hit(row, method)]
        for size in sorted({epsilon for _, epsilon, _ in hits}):
            every = {key: value for key, epsilon, value in hits if epsilon == size}
            still = [value for key, value in every.items() if key not in jumping]
            line: Line = {"dataset": dataset, "method": method, "epsilon": size, "counted": len(every)}
            line |= {"mean": float(np.mean(list(every.values()))), "counted_without": len(still)}
            line |= {"mean_without": float(np.mean(still)), "published": values.get((dataset, method, DISTANCE, size))}
            found.append(line)
    return found
