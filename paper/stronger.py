"""Rows of fair studies -> what is compared: the stronger of two attacks on each image, and methods image by image."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from paper.records import Line, number
from paper.summaries import DRAWN, MIDDLE, STRONGEST, Row, difference, is_true, statistics

SIGN = "sign"  # in place of a mode: whatever the second attack found
FIRST = "first"  # in place of the strongest: what it was before the second attack
PAIRS = (  # of which the first is set against the second
    ("moreau", "smoothgrad"),
    ("sparse_moreau", "smoothgrad"),
    ("sparsified_smoothgrad", "smoothgrad"),
    ("moreau", "sparsified_smoothgrad"),
)
WAY = ("dataset", "epsilon", "method", "n", "another", *MIDDLE)
PAIRED = ("dataset", "epsilon", "metric", "method", "other", "n", "positive", *MIDDLE)


def stronger(first: Sequence[Row], second: Sequence[Row]) -> list[Row]:
    """The rows of the first study; where the second went farther by the scout's map, the strongest is the second's.

    The scout's noise is the same in both and not the judge's, so nothing is chosen by what it is judged with.
    """
    found, others = list(first), _winners(second)
    reached = _winners(first)
    for place, row in enumerate(found):
        if row["mode"] == STRONGEST and (rival := others.get(_key(row))) is not None:
            mine, theirs = (_reach(each) for each in (reached[_key(row)], rival))
            if theirs > mine:
                found[place] = {**rival[0], "winner": SIGN}
    own = [{**row, "mode": SIGN} for row in second if row["mode"].partition(":")[0] in ("exact", "implicit")]
    alone = [{**row, "mode": FIRST} for row in first if row["mode"] == STRONGEST and _key(row) in others]
    return found + own + alone


def _key(row: Row) -> tuple[str, float, str]:
    return row["method"], number(row["epsilon"]), row["key"]


def _winners(rows: Iterable[Row]) -> dict[tuple[str, float, str], tuple[Row, Row]]:
    """By method, size and image: the judge's row of the strongest attack, and the scout's."""
    scouted = {(*_key(row), row["mode"]): row for row in rows}
    return {
        _key(row): (row, scouted[*_key(row), row["winner"]] if row["winner"] else row)
        for row in rows
        if row["mode"] == STRONGEST
    }


def _reach(pair: tuple[Row, Row]) -> tuple[bool, float]:
    """Valid attacks before others, then the farther."""
    judged, scouted = pair
    return is_true(judged["valid"]), number(scouted[DRAWN[0]])


def paired(rows: Iterable[Row], dataset: str) -> list[Line]:
    """Differences of two methods over the images on which both have a valid attack: surer than two intervals."""
    by: dict[tuple[str, float], dict[str, Row]] = {}
    for row in rows:
        if row["mode"] == STRONGEST and is_true(row["valid"]):
            by.setdefault((row["method"], number(row["epsilon"])), {})[row["key"]] = row
    found: list[Line] = []
    for method, other in PAIRS:
        for size in sorted({size for name, size in by if name == method}):
            one, two = by[method, size], by.get((other, size), {})
            shared = {"dataset": dataset, "epsilon": size, "method": method, "other": other}
            if one.keys() & two.keys():
                found += [shared | {"metric": metric} | difference(one, two, metric) for metric in DRAWN]
    return found


def way(rows: Sequence[Row], levels: Iterable[Row], dataset: str) -> list[Line]:
    """How far the strongest attack moves maps on their way to that of another image, by distance.

    Over the images for which that was measured: the first of the seeded choice.
    """
    found: list[Line] = []
    order = list(dict.fromkeys(row["key"] for row in rows))
    for level in levels:
        if (level["dataset"], level["metric"]) != (dataset, DRAWN[0]):
            continue
        keys, end = set(order[: int(level["n"])]), number(level["mean"])
        some = [row for row in rows if (row["method"], row["mode"]) == (level["method"], STRONGEST)]
        for size in sorted({number(row["epsilon"]) for row in some}):
            at = [
                row for row in some if number(row["epsilon"]) == size and row["key"] in keys and is_true(row["valid"])
            ]
            told: dict[str, Any] = statistics([number(row[DRAWN[0]]) for row in at])
            line = {"dataset": dataset, "epsilon": size, "method": level["method"], "n": len(at), "another": end}
            found.append(line | {name: told[name] / end for name in MIDDLE})
    return found
