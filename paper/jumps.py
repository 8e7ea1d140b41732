"""Images whose maps jump: two seeds give maps that lie far apart, though nobody attacked them.

The noise of samples is about alike on all images, so a distance of several times the median is another solution.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from paper.records import Line, number
from paper.summaries import DRAWN, FLOOR, STRONGEST, Row, is_true

FAR = 2.0  # times the median: by then it is no noise
SPREAD = ("n", "median", "mean", "largest", "far", "far_share")
FLOORS = ("dataset", "method", *SPREAD)
WITHOUT = ("dataset", "method", "epsilon", "counted", "mean", "counted_without", "mean_without", "published")


def spread(values: Sequence[float]) -> Line:
    """Of the distances of two seeds' maps."""
    middle = float(np.median(values))
    found: Line = {"n": len(values), "median": middle, "mean": float(np.mean(values)), "largest": max(values)}
    far = sum(value > FAR * middle for value in values)
    return found | {"far": far, "far_share": far / len(values)}


def floors(rows: Sequence[Row], dataset: str) -> list[Line]:
    """For each method whose maps have noise."""
    known = {method: _floor(rows, method) for method in dict.fromkeys(row["method"] for row in rows)}
    return [
        {"dataset": dataset, "method": method} | spread(list(values.values()))
        for method, values in known.items()
        if any(values.values())
    ]


def _floor(rows: Sequence[Row], method: str) -> dict[str, float]:
    """By image."""
    return {row["key"]: number(row[DRAWN[0]]) for row in rows if (row["method"], row["mode"]) == (method, FLOOR)}


def without(rows: Sequence[Row], dataset: str, published: Sequence[Mapping[str, Any]]) -> list[Line]:
    """How far attacks move maps of MoreauGrad, with the images that jump by themselves and without them."""
    found: list[Line] = []
    for method in ("moreau", "sparse_moreau"):
        if not (floor := _floor(rows, method)):
            continue
        middle = float(np.median(list(floor.values())))
        some = [row for row in rows if (row["method"], row["mode"]) == (method, STRONGEST) and is_true(row["valid"])]
        for size in sorted({number(row["epsilon"]) for row in some}):
            at = [(row["key"], number(row[DRAWN[0]])) for row in some if number(row["epsilon"]) == size]
            still = [value for key, value in at if floor[key] <= FAR * middle]
            of = (dataset, method, DRAWN[0], size)
            told = [p["value"] for p in published if (p["dataset"], p["method"], p["metric"], p["epsilon"]) == of]
            line: Line = {"dataset": dataset, "method": method, "epsilon": size, "counted": len(at)}
            line |= {"mean": float(np.mean([value for _, value in at])), "counted_without": len(still)}
            line |= {"mean_without": float(np.mean(still)), "published": told[0] if told else None}
            found.append(line)
    return found
