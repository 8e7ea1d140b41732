"""Rows of a study -> means and medians with intervals, and which derivative won. Runs no model.

A metric is summarised over the images whose attack was valid; the share of those stands beside it.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

import moreaugrad as mg
from moreaugrad.studies.plan import STRONGEST
from moreaugrad.studies.summary import group_rows
from paper import names
from paper.data import records
from paper.data.records import Line, number

Row = Mapping[str, str]
CHANCE = "chance"  # mode of lines that compare an image's map with another image's
MODES = ("exact", "frozen", "unrolled", "implicit", "covariance", "transfer", "sign", "square")  # that can win
GROUP = ("dataset", "protocol", "method", "attack", "epsilon", "mode")
MIDDLE = ("mean", "mean_low", "mean_high")
STATISTICS = (*MIDDLE, "median", "median_low", "median_high")
WON = tuple(f"won_{mode}" for mode in MODES)
COLUMNS = (*GROUP, "metric", "n", "valid_share", "counted", "undefined", *STATISTICS, *WON)
DISTANCE = names.COMPARED[0]
AS_PUBLISHED = ("normalised_distance_signed", "topk_signed", "ssim_raw")
DRAWS, SEED = 2000, 0  # of the bootstrap
PUBLISHED = Path(__file__).parents[1] / "published.csv"


def summarise(rows: Iterable[Row], dataset: str, protocol: str) -> list[Line]:
    """One line per method, attack, size, mode and metric; floors (two seeds, no attack) too."""
    groups = group_rows(rows, GROUP[2:])
    found: list[Line] = []
    for key, members in groups.items():
        valid = [row for row in members if is_true(row["valid"])]
        shared = dict(zip(GROUP, (dataset, protocol, *key), strict=True)) | {"epsilon": float(key[2])}
        shared |= {"n": len(members), "valid_share": len(valid) / len(members)}
        if key[-1] == STRONGEST:
            tried = [other[-1] for other in groups if other[:-1] == key[:-1]]
            shared |= _shares_won(tried, [row.get("winner") or "" for row in valid])
        known = [name for name in (*names.COMPARED, *AS_PUBLISHED) if name in members[0]]
        found += [shared | {"metric": name} | statistics([number(row[name]) for row in valid]) for name in known]
    return found


def is_true(text: Any) -> bool:
    return str(text) in ("1", "1.0", "True")


def is_hit(row: Row, method: str) -> bool:
    """Whether a row is the strongest attack on a method, and valid."""
    return (row["method"], row["mode"]) == (method, STRONGEST) and is_true(row["valid"])


def _shares_won(tried: Sequence[str], winners: Sequence[str]) -> Line:
    """The share of the images in which each mode went farthest; nothing for modes that were not tried."""
    bare, known = ([each.partition(":")[0] for each in some] for some in (winners, tried))
    return {f"won_{mode}": bare.count(mode) / len(bare) for mode in MODES if mode in known and bare}


def statistics(values: Sequence[float]) -> Line:
    """Mean and median with the percentile bootstrap's 95 % intervals; NaN values are counted and left out."""
    defined = np.array([value for value in values if not math.isnan(value)])
    of = mg.summary(np.asarray(values, dtype=float), draws=DRAWS, seed=SEED)
    low = high = math.nan
    if len(defined):
        low, high = map(float, np.quantile(defined[_draw(len(defined), DRAWS)].mean(1), [0.025, 0.975]))
    middle = {"mean": of.mean, "mean_low": low, "mean_high": high}
    middle |= {"median": of.median, "median_low": of.low, "median_high": of.high}
    return {"counted": of.count, "undefined": of.undefined} | middle


@lru_cache(maxsize=8)
def _draw(count: int, draws: int) -> NDArray[np.int64]:
    return np.random.default_rng(SEED).integers(count, size=(draws, count))


def difference(one: Mapping[str, Row], two: Mapping[str, Row], metric: str) -> Line:
    """One method minus another over the images, by key, on which both are defined: surer than two intervals."""
    values = [number(one[key][metric]) - number(two[key][metric]) for key in one if key in two]
    found = statistics(values)
    positive = sum(value > 0 for value in values) / max(found["counted"], 1)
    return {"n": found["counted"], "positive": positive} | {name: found[name] for name in MIDDLE}


def as_published(lines: Iterable[Mapping[str, Any]]) -> list[Line]:
    """The lines whose metrics are those of the published code, under the names of its metrics.

    It compares MoreauGrad's maps with their signs, those of the other methods without, and takes SSIM of the maps
    themselves instead of pictures.
    """
    found: list[Line] = []
    for line in lines:
        signed = line["method"].endswith("moreau") or line["metric"] == "ssim_raw"
        if line["metric"] in (AS_PUBLISHED if signed else names.COMPARED[:2]):
            found.append(dict(line) | {"metric": names.base(line["metric"])})
    return found


def write(path: Path, lines: Iterable[Mapping[str, Any]]) -> None:
    records.write(path, lines, COLUMNS)


def read_published() -> list[Line]:
    """The values of the published figure, read off its plot by eye, under our names."""
    return [
        {
            "dataset": line["dataset"],
            "metric": names.PUBLISHED_METRICS[line["metric"]],
            "method": names.PUBLISHED_METHODS[line["method"]],
            "epsilon": float(line["attack_l2"]),
            "value": float(line["value"]),
        }
        for line in records.read(PUBLISHED)
    ]


def curve(lines: Iterable[Mapping[str, Any]], dataset: str, method: str, metric: str) -> list[Mapping[str, Any]]:
    """The lines of the strongest attack of each size, smallest first."""
    wanted = (dataset, method, metric, STRONGEST)
    some = [line for line in lines if tuple(line[n] for n in ("dataset", "method", "metric", "mode")) == wanted]
    if len({(line["protocol"], line["attack"]) for line in some}) > 1:
        raise ValueError(f"curves must be of one protocol and attack, got several for {method}; choose the lines")
    return sorted(some, key=lambda line: number(line["epsilon"]))
