"""Rows of a study -> what they say: means and medians with intervals, and which derivative won. Runs no model.

A figure counts over the images whose attack was valid; the share of those stands beside it.
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
from paper import names, records
from paper.records import Line, number

Row = Mapping[str, str]
FLOOR, STRONGEST = "floor", "strongest"  # modes of rows that are no attack, and of those taken from several
CHANCE = "chance"  # of lines that set an image's map against another's
MODES = ("exact", "frozen", "unrolled", "implicit", "covariance", "transfer", "sign")  # that can win
GROUP = ("dataset", "protocol", "method", "attack", "epsilon", "mode")
MIDDLE = ("mean", "mean_low", "mean_high")
STATISTICS = (*MIDDLE, "median", "median_low", "median_high")
WON = tuple(f"won_{mode}" for mode in MODES)
COLUMNS = (*GROUP, "metric", "n", "valid_share", "counted", "undefined", *STATISTICS, *WON)
DRAWN = ("normalised_distance", "topk_intersection", "ssim")
AS_PUBLISHED = ("normalised_distance_signed", "topk_signed", "ssim_raw")
DRAWS, SEED = 2000, 0  # of the bootstrap


def summarise(rows: Iterable[Mapping[str, str]], dataset: str, protocol: str) -> list[Line]:
    """One line per method, attack, size, mode and metric; floors (two seeds, no attack) too."""
    groups: dict[tuple[Any, ...], list[Mapping[str, str]]] = {}
    for row in rows:
        key = (row["method"], row["attack"], float(row["epsilon"]), row["mode"])
        groups.setdefault(key, []).append(row)
    found: list[Line] = []
    for key, members in groups.items():
        sound = [row for row in members if is_true(row["valid"])]
        shared = dict(zip(GROUP, (dataset, protocol, *key), strict=True))
        shared |= {"n": len(members), "valid_share": len(sound) / len(members)}
        if key[-1] == STRONGEST:
            tried = [other[-1] for other in groups if other[:-1] == key[:-1]]
            shared |= _won(tried, [row.get("winner") or "" for row in sound])
        known = [name for name in (*DRAWN, *AS_PUBLISHED) if name in members[0]]
        found += [shared | {"metric": name} | statistics([number(row[name]) for row in sound]) for name in known]
    return found


def is_true(text: Any) -> bool:
    return str(text) in ("1", "1.0", "True")


def _won(tried: Sequence[str], winners: Sequence[str]) -> Line:
    """The share of the images in which each mode went farthest; nothing for modes that were not tried."""
    bare, known = ([each.partition(":")[0] for each in some] for some in (winners, tried))
    return {f"won_{mode}": bare.count(mode) / len(bare) for mode in MODES if mode in known and bare}


def statistics(values: Sequence[float]) -> Line:
    """Mean and median with the percentile bootstrap's 95 % intervals; NaN figures are counted and left out."""
    sound = np.array([value for value in values if not math.isnan(value)])
    of = mg.summary(np.asarray(values, dtype=float), draws=DRAWS, seed=SEED)
    low, high = (
        np.quantile(sound[_choices(len(sound), DRAWS)].mean(1), [0.025, 0.975]) if len(sound) else (math.nan,) * 2
    )
    middle = {"mean": of.mean, "mean_low": float(low), "mean_high": float(high)}
    middle |= {"median": of.median, "median_low": of.low, "median_high": of.high}
    return {"counted": of.count, "undefined": of.undefined} | middle


def difference(one: Mapping[str, Row], two: Mapping[str, Row], metric: str) -> Line:
    """One method less another over the images, by key, on which both are defined: surer than two intervals."""
    both = [key for key in one if key in two]
    values = [number(one[key][metric]) - number(two[key][metric]) for key in both]
    told = statistics(values)
    positive = sum(value > 0 for value in values) / max(told["counted"], 1)
    return {"n": told["counted"], "positive": positive} | {name: told[name] for name in MIDDLE}


@lru_cache(maxsize=8)
def _choices(count: int, draws: int) -> NDArray[np.int64]:
    return np.random.default_rng(SEED).integers(count, size=(draws, count))


def as_published(lines: Iterable[Mapping[str, Any]]) -> list[Line]:
    """The lines whose figures are those of the published code, under the names of its metrics.

    It compares MoreauGrad's maps with their signs, those of the other methods without, and takes SSIM of maps as they
    are instead of pictures.
    """
    found: list[Line] = []
    for line in lines:
        signed = line["method"].endswith("moreau") or line["metric"] == "ssim_raw"
        if line["metric"] in (AS_PUBLISHED if signed else DRAWN[:2]):
            found.append(dict(line) | {"metric": names.base(line["metric"])})
    return found


def write(path: Path, lines: Iterable[Mapping[str, Any]]) -> None:
    records.write(path, lines, COLUMNS)


def read_published(path: Path | None = None) -> list[Line]:
    """The values of the published figure, read off its plot by eye, under our names."""
    return [
        {
            "dataset": line["dataset"],
            "metric": names.PUBLISHED_METRICS[line["metric"]],
            "method": names.PUBLISHED_METHODS[line["method"]],
            "epsilon": float(line["attack_l2"]),
            "value": float(line["value"]),
        }
        for line in records.read(path or Path(__file__).with_name("published.csv"))
    ]


def curve(lines: Iterable[Mapping[str, Any]], dataset: str, method: str, metric: str) -> list[Mapping[str, Any]]:
    """The lines of the strongest attack of each size, smallest first."""
    some = [
        line
        for line in lines
        if (line["dataset"], line["method"], line["metric"], line["mode"]) == (dataset, method, metric, STRONGEST)
    ]
    if len({(line["protocol"], line["attack"]) for line in some}) > 1:
        raise ValueError(f"curves must be of one protocol and attack, got several for {method}; choose the lines")
    return sorted(some, key=lambda line: number(line["epsilon"]))
