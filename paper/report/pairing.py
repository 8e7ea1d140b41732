"""Rows of fair studies -> the strongest of several attacks on each image, and methods compared image by image."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from moreaugrad.studies.plan import STRONGEST
from paper import names
from paper.data.records import Line, number
from paper.report.summaries import DISTANCE, MIDDLE, Row, difference, is_hit, is_true, statistics

FIRST = "first"  # in place of a mode: the strongest before the other attacks
OWN = ("exact", "implicit", "square")  # modes of the other attacks that are no transfer
PAIRS = (  # the first minus the second
    ("moreau", "smoothgrad"),
    ("sparse_moreau", "smoothgrad"),
    ("sparsified_smoothgrad", "smoothgrad"),
    ("moreau", "sparsified_smoothgrad"),
)
PROGRESS = ("dataset", "epsilon", "method", "n", "another", *MIDDLE)
PAIRED = ("dataset", "epsilon", "metric", "method", "other", "n", "positive", *MIDDLE)


def merge_attacks(first: Sequence[Row], more: Mapping[str, Sequence[Row]]) -> list[Row]:
    """The rows of the first study; where another went farther by the scout's map, the strongest is the other's.

    The scout's noise is the same in all and not the judge's, so no choice is made by what it is judged with. Rows of
    the others' own attacks, by name in place of a mode, follow, and what was the strongest where they were tried.
    """
    winners = {"": _winners(first)} | {name: _winners(rows) for name, rows in more.items()}
    found, alone = [], []
    for row in first:
        rivals = {name: some[_key(row)] for name, some in winners.items() if _key(row) in some}
        if row["mode"] != STRONGEST or len(rivals) == 1:
            found.append(row)
            continue
        best = max(rivals, key=lambda name: _reach(rivals[name]))  # of equal ones the first
        found.append({**rivals[best][0], "winner": best} if best else row)
        alone.append({**row, "mode": FIRST})
    own = [{**row, "mode": name} for name, rows in more.items() for row in rows if row["mode"].partition(":")[0] in OWN]
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
    return is_true(judged["valid"]), number(scouted[DISTANCE])


def pair_methods(rows: Iterable[Row], dataset: str) -> list[Line]:
    """Differences of two methods over the images on which both have a valid attack: surer than two intervals."""
    by: dict[tuple[str, float], dict[str, Row]] = {}
    for row in rows:
        if is_hit(row, row["method"]):
            by.setdefault((row["method"], number(row["epsilon"])), {})[row["key"]] = row
    found: list[Line] = []
    for method, other in PAIRS:
        for size in sorted({size for name, size in by if name == method}):
            one, two = by[method, size], by.get((other, size), {})
            shared = {"dataset": dataset, "epsilon": size, "method": method, "other": other}
            if one.keys() & two.keys():
                found += [shared | {"metric": metric} | difference(one, two, metric) for metric in names.COMPARED]
    return found


def measure_progress(rows: Sequence[Row], levels: Iterable[Row], dataset: str) -> list[Line]:
    """How far the strongest attack moves maps on their way to that of another image, by distance.

    Over the images for which that level was measured: the first of the seeded choice.
    """
    found: list[Line] = []
    order = list(dict.fromkeys(row["key"] for row in rows))
    for level in levels:
        if (level["dataset"], level["metric"]) != (dataset, DISTANCE):
            continue
        method, keys, end = level["method"], set(order[: int(level["n"])]), number(level["mean"])
        sizes = {number(row["epsilon"]) for row in rows if (row["method"], row["mode"]) == (method, STRONGEST)}
        some = [row for row in rows if is_hit(row, method) and row["key"] in keys]
        for size in sorted(sizes):
            values = [number(row[DISTANCE]) for row in some if number(row["epsilon"]) == size]
            middle = statistics(values)
            line = {"dataset": dataset, "epsilon": size, "method": method, "n": len(values), "another": end}
            found.append(line | {name: middle[name] / end for name in MIDDLE})
    return found
