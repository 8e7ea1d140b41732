"""The tables of the README, in Markdown, each from the CSV files of the results alone.

A new one is a function here and a line in `TABLES`; its options are what stands after its name in the template.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from paper import names, records
from paper.accuracy import CHANCE, METHODS, METRICS
from paper.curves import read_published
from paper.records import number
from paper.summaries import CHANCE as LEVEL
from paper.summaries import DRAWN, FLOOR, MODES, STRONGEST, as_published, curve

Row = Mapping[str, str]


@dataclass(frozen=True)
class Results:
    """The folder of the results; a file is read once."""

    folder: Path
    known: dict[str, list[dict[str, str]]] = field(default_factory=dict)

    def lines(self, file: str) -> list[dict[str, str]]:
        if file not in self.known:
            self.known[file] = records.read(self.folder / file)
        return self.known[file]

    def some(self, file: str, where: Mapping[str, str]) -> list[Row]:
        """The lines that have these values; numbers are compared as numbers."""
        return [line for line in self.lines(file) if all(_equal(line.get(key), where[key]) for key in where)]

    def one(self, file: str, where: Mapping[str, str]) -> Row:
        """The one line that has these values."""
        found = self.some(file, where)
        if len(found) != 1:
            raise ValueError(f"{file} must have one line with {dict(where)}, got {len(found)}; tell other columns")
        return found[0]


def _equal(there: str | None, asked: str) -> bool:
    if there is None or there == asked:
        return there is not None
    try:
        return float(there) == float(asked)
    except ValueError:
        return False


def percent(share: float) -> str:
    return f"{share:.0%}".replace("%", " %")


def interval(line: Row, column: str = "mean", spec: str = ".2f") -> str:
    """0.45 [0.37, 0.55]; a dash where nothing was defined."""
    middle, low, high = (number(line[name]) for name in (column, f"{column}_low", f"{column}_high"))
    return "-" if math.isnan(middle) else f"{middle:{spec}} [{low:{spec}}, {high:{spec}}]"


def markdown(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [list(head), ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def published(results: Results, dataset: str, variant: str = "absolute", file: str = "robustness.csv") -> str:
    """Ours with its interval, and the published value in brackets after it: a table for each metric.

    `variant=signed`: the figures of the published code, which keeps signs and scales of MoreauGrad's maps.
    """
    told = {(p["dataset"], p["method"], p["metric"], p["epsilon"]): p["value"] for p in read_published()}

    def beside(line: Row) -> str:
        value = told.get((dataset, line["method"], line["metric"], number(line["epsilon"])))
        return interval(line) + ("" if value is None else f" ({value:.2f})")

    lines = as_published(results.lines(file)) if variant == "signed" else results.lines(file)
    return "\n\n".join(_grid(lines, dataset, metric, beside) for metric in DRAWN)


def against_size(results: Results, dataset: str, file: str = "noise.csv") -> str:
    """Methods down, sizes across, means with intervals: a table for each metric."""
    return "\n\n".join(_grid(results.lines(file), dataset, metric, interval) for metric in DRAWN)


def _grid(lines: Sequence[Row], dataset: str, metric: str, cell: Callable[[Row], str]) -> str:
    rows = {method: curve(lines, dataset, method, metric) for method in names.METHODS}
    rows = {method: some for method, some in rows.items() if some}
    if not rows:
        raise ValueError(f"a table needs lines of {dataset} and {metric}, got none; make the figure for it first")
    sizes = sorted({number(line["epsilon"]) for some in rows.values() for line in some})
    filled = []
    for method, some in rows.items():
        at = {number(line["epsilon"]): cell(line) for line in some}
        filled.append([names.method(method), *(at.get(size, "") for size in sizes)])
    better = "lower" if names.is_lower_better(metric) else "higher"
    head = [f"{names.metric(metric)} ({better} is more robust)", *(f"{size:g}" for size in sizes)]
    return markdown(head, filled)


def ordering(results: Results, largest: str = "2", file: str = "ordering.csv") -> str:
    """How alike the orders are at the largest sizes, and which pairs differ; bold where both sides are sure of it."""
    groups: dict[tuple[str, str, float], list[Row]] = {}
    for line in results.lines(file):
        groups.setdefault((line["dataset"], line["metric"], number(line["epsilon"])), []).append(line)
    rows = []
    for dataset in dict.fromkeys(key[0] for key in groups):
        sizes = sorted({size for of, _, size in groups if of == dataset})[-int(largest) :]
        for (of, metric, size), pairs in groups.items():
            if of == dataset and size in sizes:
                rows.append([names.dataset(of), names.metric(metric), f"{size:g}", *_agreement(pairs)])
    return markdown(["data set", "metric", "norm", "Spearman", "Kendall", "pairs alike", "pairs that differ"], rows)


def _agreement(pairs: Sequence[Row]) -> list[str]:
    told = []
    for pair in pairs:
        if pair["order"] == "differs":
            better = [pair["method"], pair["other"]]
            lower = names.is_lower_better(pair["metric"])
            if (number(pair["ours"]) < number(pair["ours_other"])) != lower:
                better.reverse()
            text = f"{names.method(better[0])} before {names.method(better[1])}"
            told.append(f"**{text}**" if pair["ours_apart"] == pair["published_apart"] == "1" else text)
    alike = sum(pair["order"] == "same" for pair in pairs)
    correlations = [f"{number(pairs[0][name]):.2f}" for name in ("spearman", "kendall")]
    return [*correlations, f"{alike} of {len(pairs)}", "; ".join(told) or "none"]


def strongest(results: Results, dataset: str, file: str = "fair.csv") -> str:
    """The strongest attack on each method at each size, which derivative led it, what two seeds alone do, and how far
    the map of another image is."""
    lines = results.lines(file)
    rows = []
    for method in names.METHODS:
        floor = [line for line in lines if _of(line, dataset, method) == (DRAWN[0], FLOOR)]
        other = [line for metric in DRAWN for line in lines if _of(line, dataset, method) == (metric, LEVEL)]
        another = " / ".join(f"{number(line['mean']):.2f}" for line in other)
        for parts in zip(*(curve(lines, dataset, method, metric) for metric in DRAWN), strict=True):
            size, share = number(parts[0]["epsilon"]), number(parts[0]["valid_share"])
            told = [names.method(method), f"{size:g}", *map(interval, parts), _won(parts[0]), percent(share)]
            rows.append([*told, "; ".join(map(interval, floor)), another])
    head = ["method", "norm", "distance", "top-k", "SSIM", "won by", "valid", "two seeds, distance", "another image"]
    return markdown(head, rows)


def _of(line: Row, dataset: str, method: str) -> tuple[str, str] | None:
    """Metric and mode, if it is a line of these."""
    return (line["metric"], line["mode"]) if (line["dataset"], line["method"]) == (dataset, method) else None


def _won(line: Row) -> str:
    """implicit 62 %, unrolled 30 %, frozen 8 %; the largest share first."""
    shares = {mode: number(line[f"won_{mode}"]) for mode in MODES if line.get(f"won_{mode}")}
    ordered = sorted(shares, key=lambda mode: -shares[mode])
    return ", ".join(f"{mode} {percent(shares[mode])}" for mode in ordered)


def modes(results: Results, method: str, file: str = "fair.csv") -> str:
    """The mean distance that each derivative reaches on one method, and the strongest of them."""
    lines = [line for line in results.lines(file) if (line["method"], line["metric"]) == (method, DRAWN[0])]
    known = [mode for mode in (*MODES, STRONGEST) if any(line["mode"].partition(":")[0] == mode for line in lines)]
    rows = []
    for dataset in names.DATASETS:
        some = [line for line in lines if line["dataset"] == dataset and line["mode"] not in (FLOOR, LEVEL)]
        for size in sorted({number(line["epsilon"]) for line in some}):
            at = {line["mode"].partition(":")[0]: line for line in some if number(line["epsilon"]) == size}
            told = (interval(at[mode]) if mode in at else "" for mode in known)
            rows.append([names.dataset(dataset), f"{size:g}", *told])
    return markdown(["data set", "norm", *known], rows)


def way(results: Results, file: str = "fair.csv") -> str:
    """How far the strongest attack moves a map on its way to that of another image: one mean distance over another."""
    levels = {
        (line["dataset"], line["method"]): line for line in results.some(file, {"metric": DRAWN[0], "mode": LEVEL})
    }
    shares: dict[tuple[str, float], dict[str, str]] = {}
    for (dataset, method), level in levels.items():
        for line in curve(results.lines(file), dataset, method, DRAWN[0]):
            share = percent(number(line["mean"]) / number(level["mean"]))
            shares.setdefault((dataset, number(line["epsilon"])), {})[method] = share
    known = [method for method in names.METHODS if any(method in told for told in shares.values())]
    rows = [
        [names.dataset(dataset), f"{size:g}", *(told.get(method, "") for method in known)]
        for (dataset, size), told in shares.items()
    ]
    return markdown(["data set", "norm", *map(names.method, known)], rows)


def paired(results: Results, method: str, other: str, file: str = "paired.csv") -> str:
    """One method less another, image by image; bold where the interval leaves zero out."""
    lines = results.some(file, {"method": method, "other": other})
    groups: dict[tuple[str, float], dict[str, Row]] = {}
    for line in lines:
        groups.setdefault((line["dataset"], number(line["epsilon"])), {})[line["metric"]] = line
    rows = [
        [names.dataset(dataset), f"{size:g}", *(_signed(at[metric]) for metric in DRAWN), at[DRAWN[0]]["n"]]
        for (dataset, size), at in groups.items()
    ]
    heads = [
        f"{names.metric(metric)} ({'below' if names.is_lower_better(metric) else 'above'} zero is better)"
        for metric in DRAWN
    ]
    return markdown(["data set", "norm", *heads, "images"], rows)


def _signed(line: Row) -> str:
    text = interval(line, spec="+.3f")
    return f"**{text}**" if number(line["mean_low"]) * number(line["mean_high"]) > 0 else text


def accuracy(results: Results, dataset: str, over: str = "all", file: str = "accuracy.csv") -> str:
    """Means of all metrics with intervals; the last row is the level of chance."""
    lines = [line for line in results.lines(file) if (line["dataset"], line["over"]) == (dataset, over)]
    at = {(line["method"], line["metric"]): line for line in lines}
    metrics = [metric for metric in METRICS if any(key[1] == metric for key in at)]
    rows = [
        [names.method(method), *(interval(at[method, metric]) if (method, metric) in at else "" for metric in metrics)]
        for method in METHODS
    ]
    if (CHANCE, "box_share") in at:
        share = interval(at[CHANCE, "box_share"])
        rows.append(["Share of the box", *(share if metric == "energy_in_box" else "" for metric in metrics)])
    arrows = ["↓" if names.is_lower_better(metric) else "↑" for metric in metrics]
    return markdown(["method", *(f"{names.metric(m)} {arrow}" for m, arrow in zip(metrics, arrows, strict=True))], rows)


def sweep(results: Results, file: str, by: str, columns: str, format: str = ".2g") -> str:
    """Means over the images of a data set for each value of a parameter; flags become shares."""
    groups: dict[tuple[str, float], list[Row]] = {}
    for line in results.lines(file):
        if not line.get("way"):  # rows made another way, such as with noise, are a matter of the picture
            groups.setdefault((line["dataset"], number(line[by])), []).append(line)
    chosen, rows = columns.split(","), []
    for (dataset, value), some in groups.items():
        given = [[number(line[name]) for line in some if line[name] != ""] for name in chosen]
        means = [f"{sum(each) / len(each):{format}}" if each else "-" for each in given]
        rows.append([names.dataset(dataset), f"{value:g}", *means, str(len(some))])
    return markdown(["data set", by, *(name.replace("_", " ") for name in chosen), "images"], rows)


def plain(results: Results, file: str, columns: str, format: str = ".3g", **where: str) -> str:
    """Some columns of a file as they are, of the lines that have the given values."""
    chosen = columns.split(",")
    lines = results.some(file, where)
    if not lines:
        raise ValueError(f"{file} must have lines with {where}, got none; ask for others")
    head = [name.replace("_", " ") for name in chosen]
    return markdown(head, [[_shown(line[name], format) for name in chosen] for line in lines])


def _shown(value: str, spec: str) -> str:
    try:
        return f"{float(value):{spec}}"
    except ValueError:
        return names.METHODS.get(value, names.DATASETS.get(value, value))


TABLES: dict[str, Callable[..., str]] = {
    "published": published,
    "against_size": against_size,
    "ordering": ordering,
    "strongest": strongest,
    "modes": modes,
    "paired": paired,
    "way": way,
    "accuracy": accuracy,
    "sweep": sweep,
    "plain": plain,
}


def make(results: Results, name: str, options: Mapping[str, Any]) -> str:
    if name not in TABLES:
        raise ValueError(f"a table must be one of {list(TABLES)}, got {name!r}")
    return TABLES[name](results, **options)
