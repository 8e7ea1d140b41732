"""Rows of the frontier -> its curves, the goal line by line, and which attack won. Runs no model.

Moved: the distance that the strongest attack reaches, divided by the mean distance between the maps of different
images, of the same method and share of entries.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from moreaugrad.studies.summary import group_rows
from paper.data.records import Line
from paper.report.summaries import DRAWS, MIDDLE, SEED, statistics

SPARSE, SPARSIFIED, RELAXED, STATISTICS = "sparse_moreau", "sparsified_smoothgrad", "relaxed", "statistics"
SLOPES = ("mean", "square", "log_square", RELAXED)
MAP = ("dataset", "method", "noise", "rho", "statistic", "share")
GROUP = (*MAP, "epsilon")
MEASURES = ("moved", "insertion", "deletion")
COLUMNS = (*GROUP, "n", "chance", *(f"{name}{end}" for name in MEASURES for end in ("", "_low", "_high")))
GOAL = (*GROUP, "over", "other", "measure", "n", *MIDDLE)
ATTACKS = (*GROUP, "n", *(f"{kind}_{slope}" for kind in ("won", "reached") for slope in SLOPES))
AIM = 0.1  # the share of entries that the goal speaks of
HALVES = {"chosen on": 0, "confirmed on": 1}  # of the images, by their number

Row: TypeAlias = Mapping[str, Any]
Values: TypeAlias = NDArray[np.float64]


def strongest(row: Row) -> float:
    """The farthest that any attack has moved the map."""
    return max((row[f"moved_{slope}"] for slope in SLOPES if row[f"moved_{slope}"] is not None), default=math.nan)


def summarise(rows: Sequence[Row]) -> list[Line]:
    """One line per map and size of the attack: means over the images with 95 % intervals."""
    found = []
    for key, some in group_rows(_attacked(rows), GROUP).items():
        chance = float(np.mean([row["other"] for row in some]))
        given = {
            "moved": [strongest(row) / chance for row in some],
            "insertion": [row["insertion"] for row in some],
            "deletion": [row["deletion"] for row in some],
        }
        line: Line = dict(zip(GROUP, key, strict=True)) | {"n": len(some), "chance": chance}
        for name, values in given.items():
            of = statistics(values)
            line |= {name: of["mean"], f"{name}_low": of["mean_low"], f"{name}_high": of["mean_high"]}
        found.append(line)
    return found


def _attacked(rows: Sequence[Row]) -> list[Row]:
    return [row for row in rows if row["epsilon"] > 0]


def compare(rows: Sequence[Row]) -> list[Line]:
    """Every map with a tenth of the entries against the two published ones, image by image.

    `ratio`: how far it is moved, over how far the other is; insertion and deletion: its own minus the other's, over
    the images that were not attacked too.
    """
    some = [row for row in rows if row["share"] == AIM]
    found = []
    for measure, names, of in (("ratio", GROUP, _attacked(some)), ("faithfulness", MAP, some)):
        by_map = {key: {row["key"]: row for row in each} for key, each in group_rows(of, names).items()}
        for key, mine in by_map.items():
            one = dict(zip(names, key, strict=True))
            for name, other in _published(by_map, names, one):
                for over, keys in _halves(mine, other):
                    shared = one | {"over": over, "other": name, "n": len(keys)}
                    lines = _ratio if measure == "ratio" else _difference
                    found += [shared | line for line in lines(mine, other, keys)] if keys and mine is not other else []
    return found


def _published(by_map: Mapping[Any, Any], names: Sequence[str], one: Line) -> Iterator[tuple[str, dict[str, Row]]]:
    for key, rows in by_map.items():
        other = dict(zip(names, key, strict=True))
        same = all(other.get(name) == one.get(name) for name in ("dataset", "epsilon"))
        if same and other["method"] in (SPARSE, SPARSIFIED):
            yield other["method"], rows


def _halves(mine: Mapping[str, Row], other: Mapping[str, Row]) -> Iterator[tuple[str, list[str]]]:
    """The images on which both are known: all of them, and the halves that a choice is made and confirmed on."""
    keys = [key for key in mine if key in other]
    yield "all", keys
    for name, half in HALVES.items():
        yield name, [key for key in keys if mine[key]["image"] % 2 == half]


def _ratio(mine: Mapping[str, Row], other: Mapping[str, Row], keys: Sequence[str]) -> Iterator[Line]:
    pair = [[(strongest(each[key]), each[key]["other"]) for key in keys] for each in (mine, other)]
    yield {"measure": "ratio"} | ratio(*(np.array(each) for each in pair))


def _difference(mine: Mapping[str, Row], other: Mapping[str, Row], keys: Sequence[str]) -> Iterator[Line]:
    for name in ("insertion", "deletion"):
        of = statistics([mine[key][name] - other[key][name] for key in keys])
        yield {"measure": name} | {end: of[end] for end in MIDDLE}


def ratio(one: Values, two: Values) -> Line:
    """(mean distance over mean chance) of one map over that of another, with the percentile bootstrap's interval.

    Each is (images, 2): the distance that the strongest attack reaches, and that of other images' maps.
    """
    draws = np.random.default_rng(SEED).integers(len(one), size=(DRAWS, len(one)))
    drawn = _moved(one[draws]) / _moved(two[draws])
    low, high = np.quantile(drawn, [0.025, 0.975])
    return {"mean": float(_moved(one) / _moved(two)), "mean_low": float(low), "mean_high": float(high)}


def _moved(pairs: Values) -> Values:
    means: Values = pairs.mean(-2)
    found: Values = means[..., 0] / means[..., 1]
    return found


def rank_attacks(rows: Sequence[Row]) -> list[Line]:
    """Which slope went farthest on how many of the images, and how far each went on average, over chance."""
    found = []
    for key, some in group_rows(_attacked(rows), GROUP).items():
        chance = float(np.mean([row["other"] for row in some]))
        line: Line = dict(zip(GROUP, key, strict=True)) | {"n": len(some)}
        known = [slope for slope in SLOPES if all(row[f"moved_{slope}"] is not None for row in some)]
        for slope in known:
            reached = [row[f"moved_{slope}"] for row in some]
            line[f"reached_{slope}"] = float(np.mean(reached)) / chance
            line[f"won_{slope}"] = float(
                np.mean([far == strongest(row) for far, row in zip(reached, some, strict=True)])
            )
        found.append(line)
    return found
