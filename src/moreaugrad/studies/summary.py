"""Rows of a study -> what they say: the strongest mode of each image, medians with intervals, curves.

A metric is summarised over all images, and over those whose attack was valid. Runs no model.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from operator import itemgetter
from statistics import fmean
from typing import Any

from moreaugrad.metrics.summary import summary
from moreaugrad.plotting.curves import Curve, Panel
from moreaugrad.studies.plan import DISTANCE, FLOOR, STRONGEST, Study
from moreaugrad.studies.resumable_csv import Row
from moreaugrad.studies.setup import changes_class, find_metric

GROUP = ("method", "attack", "norm", "epsilon", "mode")
TABLE = (
    *GROUP,
    *("metric", "over", "n", "valid_share", "median", "low", "high", "mean", "undefined"),
    *("won_share", "attack_gradients", "map_gradients"),
)
SPENT = ("attack_gradients", "seconds")  # summed where several attacks were made
MOSTLY = 0.9  # share of valid attacks below which a point of a curve is drawn hollow


def choose_strongest(rows: Sequence[Row], metrics: Sequence[str]) -> Row:
    """Of the attacks on one image: for each metric the worst value for the defender, of valid attacks if any.

    All else is that of the `winner`, whose map moved farthest from the clean one; the cost is that of all together.
    """
    able = [row for row in rows if row["valid"]] or list(rows)
    winner = max(able, key=lambda row: (not math.isnan(row[DISTANCE]), row[DISTANCE]))
    worst = {}
    for name in metrics:
        known = [row[name] for row in able if not math.isnan(row[name])]
        worst[name] = (max if find_metric(name)[0].direction == "lower" else min)(known, default=math.nan)
    spent = {name: sum(row[name] for row in rows) for name in SPENT}
    return winner | worst | spent | {"mode": STRONGEST, "winner": winner["mode"]}


def group_rows(rows: Iterable[Mapping[str, Any]], columns: Sequence[str]) -> dict[tuple[Any, ...], list[Any]]:
    """The rows that agree in some columns, in the order in which they come up."""
    groups: dict[tuple[Any, ...], list[Any]] = {}
    for row in rows:
        groups.setdefault(tuple(row[name] for name in columns), []).append(row)
    return groups


def summarise(rows: Iterable[Row], metrics: Sequence[str]) -> list[Row]:
    """One line per group of rows, metric, and images that count."""
    groups = group_rows(rows, GROUP)
    found: list[Row] = []
    for group, members in groups.items():
        valid = [row for row in members if row["valid"]]
        best = [] if group[-1] in (STRONGEST, FLOOR) else groups.get((*group[:-1], STRONGEST), [])
        shared = dict(zip(GROUP, group, strict=True)) | {
            "valid_share": len(valid) / len(members),
            "won_share": fmean(row["winner"] == group[-1] for row in best) if best else None,
            "attack_gradients": fmean(row["attack_gradients"] for row in members),
            "map_gradients": fmean(row["map_gradients"] for row in members),
        }
        for metric in metrics:
            for over, some in (("all", members), ("valid", valid)):
                of = summary([row[metric] for row in some])
                figures = {name: float(getattr(of, name)) for name in ("median", "low", "high", "mean")}
                counts = {"n": len(some), "undefined": of.undefined}
                found.append(shared | {"metric": metric, "over": over} | counts | figures)
    return found


def make_panels(study: Study, table: Iterable[Row]) -> list[list[Panel]]:
    """The curves of a table: a row of panels for each attack, a column for each metric."""
    key = itemgetter("method", "attack", "epsilon", "mode", "metric", "over")
    lines = {key(line): line for line in table}
    better = {"lower": "lower is more robust", "higher": "higher is more robust", None: ""}
    return [
        [
            Panel(
                f"{attack}{' (changes the class)' * changes_class(attack)}: {metric.replace('_', ' ')}",
                f"size of the change, {study.norm}",
                better[find_metric(metric)[0].direction],
                [_curve(lines, study, label, attack, metric) for label in study.methods],
            )
            for metric in study.metrics
        ]
        for attack in study.attacks
    ]


def _curve(lines: Mapping[tuple[Any, ...], Row], study: Study, label: str, attack: str, metric: str) -> Curve:
    """The strongest mode against the size, over valid attacks, and what two seeds alone differ by."""
    floor = lines.get((label, "none", 0.0, FLOOR, metric, "all"))
    keys = [(label, attack, epsilon, STRONGEST, metric, "valid") for epsilon in sorted(study.epsilons)]
    some = [lines[key] for key in keys if key in lines]
    median, low, high = ([line[name] for line in some] for name in ("median", "low", "high"))
    sizes, hollow = [line["epsilon"] for line in some], [line["valid_share"] < MOSTLY for line in some]
    return Curve(label, sizes, median, low, high, hollow, None if floor is None else floor["median"])
