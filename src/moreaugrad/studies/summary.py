"""Rows of a study -> what they say: the strongest mode of each image, medians with intervals, curves.

A figure counts over all images, and over those whose attack was valid. Runs no model.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from moreaugrad.metrics.summary import summary
from moreaugrad.plotting.curves import Curve, Panel
from moreaugrad.studies.plan import DISTANCE, FLOOR, STRONGEST, Study
from moreaugrad.studies.resumable_csv import Row
from moreaugrad.studies.setup import changes_class
from moreaugrad.studies.setup import metric as metric_of

GROUP = ("method", "attack", "norm", "epsilon", "mode")
TABLE = (
    *GROUP,
    *("metric", "over", "n", "valid_share", "median", "low", "high", "mean", "undefined"),
    *("won_share", "attack_gradients", "map_gradients"),
)
SPENT = ("attack_gradients", "seconds")  # summed where several attacks were made
MOSTLY = 0.9  # share of valid attacks below which a point of a curve is drawn hollow


def strongest(rows: Sequence[Row], metrics: Sequence[str]) -> Row:
    """Of the attacks on one image: for each metric the worst figure for the defender, of valid attacks if any.

    All else is of the `winner`, whose map went farthest from the clean one; the cost is that of all together.
    """
    able = [row for row in rows if row["valid"]] or list(rows)
    winner = max(able, key=lambda row: (not math.isnan(row[DISTANCE]), row[DISTANCE]))
    worst = {name: _worst(name, [row[name] for row in able]) for name in metrics}
    spent = {name: sum(row[name] for row in rows) for name in SPENT}
    return winner | worst | spent | {"mode": STRONGEST, "winner": winner["mode"]}


def _worst(metric: str, values: Sequence[float]) -> float:
    known = [value for value in values if not math.isnan(value)]
    if not known:
        return math.nan
    return max(known) if metric_of(metric)[0].direction == "lower" else min(known)


def table(rows: Iterable[Row], metrics: Sequence[str]) -> list[Row]:
    """One line per group of rows, metric, and images that count."""
    groups: dict[tuple[Any, ...], list[Row]] = {}
    for row in rows:
        groups.setdefault(tuple(row[name] for name in GROUP), []).append(row)
    won = _wins(groups)
    found: list[Row] = []
    for group, members in groups.items():
        sound = [row for row in members if row["valid"]]
        shared = dict(zip(GROUP, group, strict=True)) | {
            "valid_share": len(sound) / len(members),
            "won_share": won.get(group),
            "attack_gradients": _mean([row["attack_gradients"] for row in members]),
            "map_gradients": _mean([row["map_gradients"] for row in members]),
        }
        found += [
            shared | {"metric": metric, "over": over} | _told([row[metric] for row in some])
            for metric in metrics
            for over, some in (("all", members), ("valid", sound))
        ]
    return found


def _told(values: list[float]) -> Row:
    of = summary(values)
    return {"n": len(values), "undefined": of.undefined} | {
        name: float(getattr(of, name)) for name in ("median", "low", "high", "mean")
    }


def _mean(values: list[float]) -> float:
    return sum(values) / len(values)


def _wins(groups: Mapping[tuple[Any, ...], list[Row]]) -> dict[tuple[Any, ...], float]:
    """The share of the images in which a mode was the strongest."""
    found: dict[tuple[Any, ...], float] = {}
    for group in groups:
        best = groups.get((*group[:-1], STRONGEST))
        if best is not None and group[-1] not in (STRONGEST, FLOOR):
            found[group] = _mean([float(row["winner"] == group[-1]) for row in best])
    return found


@dataclass(frozen=True, slots=True)
class Summaries:
    """The lines of a table, to be looked up."""

    lines: dict[tuple[Any, ...], Row]

    @classmethod
    def of(cls, found: Iterable[Row]) -> Summaries:
        names = ("method", "attack", "epsilon", "mode", "metric", "over")
        return cls({tuple(line[name] for name in names): line for line in found})

    def curve(self, study: Study, label: str, attack: str, metric: str) -> Curve:
        """The strongest mode against the size, over valid attacks, and what two seeds alone differ by."""
        floor = self.lines.get((label, "none", 0.0, FLOOR, metric, "all"))
        keys = [(label, attack, epsilon, STRONGEST, metric, "valid") for epsilon in study.epsilons]
        lines = sorted((self.lines[key] for key in keys if key in self.lines), key=lambda line: line["epsilon"])
        median, low, high = ([line[name] for line in lines] for name in ("median", "low", "high"))
        sizes, hollow = [line["epsilon"] for line in lines], [line["valid_share"] < MOSTLY for line in lines]
        return Curve(label, sizes, median, low, high, hollow, None if floor is None else floor["median"])

    def panels(self, study: Study) -> list[list[Panel]]:
        """A row for each attack, a column for each metric."""
        better = {"lower": "lower is more robust", "higher": "higher is more robust", None: ""}
        return [
            [
                Panel(
                    f"{attack}{' (changes the class)' * changes_class(attack)}: {metric.replace('_', ' ')}",
                    f"size of the change, {study.norm}",
                    better[metric_of(metric)[0].direction],
                    [self.curve(study, label, attack, metric) for label in study.methods],
                )
                for metric in study.metrics
            ]
            for attack in study.attacks
        ]
