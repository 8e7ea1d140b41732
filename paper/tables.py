"""The tables of the README, in Markdown, each from the CSV files of the results alone.

A new one is a function here and a line in `TABLES`; its options are what stands after its name in the template.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from paper import names
from paper.accuracy import CHANCE, METHODS, METRICS, OTHER
from paper.curves import read_published
from paper.markdown import Results, Row, better, interval, markdown, percent, signed
from paper.records import number
from paper.summaries import DRAWN, STRONGEST, as_published, curve
from paper.tables_fair import modes, paired, strongest, way


def published(results: Results, dataset: str, variant: str = "absolute", file: str = "robustness.csv") -> str:
    """Ours with its interval, and the published value in brackets after it: a table for each metric.

    `variant=signed`: the figures of the published code, which keeps signs and scales of MoreauGrad's maps.
    """
    told = {(p["dataset"], p["method"], p["metric"], p["epsilon"]): p["value"] for p in read_published()}

    found = [results.lines(each) for each in (file, file.replace(".csv", "_all.csv"))]
    lines, failed = (as_published(each) if variant == "signed" else each for each in found)
    every = {_point(line): line for line in failed if line["mode"] == STRONGEST}

    def beside(line: Row) -> str:
        """0.98 [0.96, 1.00]; 0.84 with the 15 % that failed (0.72)"""
        value, share = told.get(_point(line)), 1 - number(line["valid_share"])
        rest = f"; {number(every[_point(line)]['mean']):.2f} with {percent(share)} failed" if share > 0 else ""
        return interval(line) + rest + ("" if value is None else f" ({value:.2f})")

    return "\n\n".join(_grid(lines, dataset, metric, beside) for metric in DRAWN)


def _point(line: Mapping[str, Any]) -> tuple[str, str, str, float]:
    return line["dataset"], line["method"], line["metric"], number(line["epsilon"])


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


def ordering(
    results: Results, largest: str = "2", statistic: str = "mean", file: str = "ordering.csv", **where: str
) -> str:
    """How alike the orders are at the largest sizes, and which pairs differ; bold where both sides are sure of it."""
    groups: dict[tuple[str, str, float], list[Row]] = {}
    for line in results.some(file, {"statistic": statistic, **where}):
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


def accuracy_paired(results: Results, dataset: str, over: str = "all", file: str = "accuracy_paired.csv") -> str:
    """Each method less SmoothGrad, image by image; bold where the interval leaves zero out."""
    lines = results.some(file, {"dataset": dataset, "over": over, "other": OTHER})
    at = {(line["method"], line["metric"]): line for line in lines}
    metrics = [metric for metric in METRICS if any(key[1] == metric for key in at)]
    known = [method for method in METHODS if any(key[0] == method for key in at)]
    rows = [
        [names.method(method), *(signed(at[method, metric]) if (method, metric) in at else "-" for metric in metrics)]
        for method in known
    ]
    return markdown([f"less {names.method(OTHER)}", *map(better, metrics)], rows)


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
    "accuracy_paired": accuracy_paired,
    "sweep": sweep,
    "plain": plain,
}


def make(results: Results, name: str, options: Mapping[str, Any]) -> str:
    if name not in TABLES:
        raise ValueError(f"a table must be one of {list(TABLES)}, got {name!r}")
    return TABLES[name](results, **options)
