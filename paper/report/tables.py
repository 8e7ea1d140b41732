"""The tables of the page, in Markdown, each from the CSV files of the results alone.

A new one is a function here and an entry of `TABLES`; its options stand after its name in the template.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from moreaugrad.studies.plan import FLOOR, STRONGEST
from moreaugrad.studies.summary import group_rows
from paper import names
from paper.data.records import number
from paper.report.attenuation import FULL
from paper.report.markdown import (
    Results,
    Row,
    format_difference,
    format_interval,
    format_percent,
    make_table,
    title_difference,
)
from paper.report.summaries import CHANCE, DISTANCE, MIDDLE, MODES, as_published, curve, read_published


def published(results: Results, dataset: str, variant: str = "absolute", file: str = "robustness.csv") -> str:
    """Ours with its interval, and the published value in brackets after it: a table for each metric.

    `variant=signed`: the metrics of the published code, which keeps signs and scales of MoreauGrad's maps.
    """
    printed = {_point(each): each["value"] for each in read_published()}
    found = [results.lines(each) for each in (file, file.replace(".csv", "_all.csv"))]
    lines, failed = (as_published(each) if variant == "signed" else each for each in found)
    every = {_point(line): line for line in failed if line["mode"] == STRONGEST}

    def format_cell(line: Row) -> str:
        """0.98 [0.96, 1.00]; 0.84 with the 15 % that failed (0.72)"""
        value, share = printed.get(_point(line)), 1 - number(line["valid_share"])
        rest = f"; {number(every[_point(line)]['mean']):.2f} with {format_percent(share)} failed" if share > 0 else ""
        return format_interval(line) + rest + ("" if value is None else f" ({value:.2f})")

    return "\n\n".join(_make_grid(lines, dataset, metric, format_cell) for metric in names.COMPARED)


def _point(line: Mapping[str, Any]) -> tuple[str, str, str, float]:
    return line["dataset"], line["method"], line["metric"], number(line["epsilon"])


def against_size(results: Results, dataset: str, file: str = "noise.csv") -> str:
    """Methods down, sizes across, means with intervals: a table for each metric."""
    lines = results.lines(file)
    return "\n\n".join(_make_grid(lines, dataset, metric, format_interval) for metric in names.COMPARED)


def _make_grid(lines: Sequence[Row], dataset: str, metric: str, format_cell: Callable[[Row], str]) -> str:
    curves = {method: curve(lines, dataset, method, metric) for method in names.METHODS}
    sizes = sorted({number(line["epsilon"]) for some in curves.values() for line in some})
    if not sizes:
        raise ValueError(f"a table needs lines of {dataset} and {metric}, got none; make the figure for it first")
    rows = []
    for method, some in curves.items():
        at = {number(line["epsilon"]): format_cell(line) for line in some}
        rows += [[names.method(method), *(at.get(size, "") for size in sizes)]] if some else []
    better = "lower" if names.is_lower_better(metric) else "higher"
    return make_table([f"{names.metric(metric)} ({better} is more robust)", *(f"{size:g}" for size in sizes)], rows)


def units(results: Results, file: str = "units.csv") -> str:
    """Each step of the published protocol in other units: distances of signed maps, as measured, between two seeds, and
    extrapolated to the authors' budget; the published value last."""
    by = ("dataset", "method", "protocol", "side")
    groups = group_rows(results.lines(file), by)
    rows = []
    for (dataset, method, _, side), lines in groups.items():
        at = {(line["mode"], line["metric"], number(line["epsilon"])): line for line in lines}
        floor = format_interval(at[FLOOR, lines[0]["compared"], 0.0])
        for (mode, metric, norm), line in at.items():
            if (mode, metric) == (STRONGEST, FULL):
                found = [names.dataset(dataset), names.method(method), line["title"], side, line["budget"]]
                found += [line["counted"], f"{norm:g}", format_interval(at[mode, line["compared"], norm]), floor]
                rows.append([*found, format_interval(line), f"{number(line['published']):.2f}"])
    head = ["data set", "method", "step", "pixels", "gradients", "images", "norm", "measured", "two seeds"]
    return make_table([*head, "at the authors' budget", "published"], rows)


def ordering(
    results: Results, largest: str = "2", statistic: str = "mean", file: str = "ordering.csv", **where: str
) -> str:
    """How alike the orders are at the largest sizes, and which pairs differ; bold where both sides are sure of it."""
    groups = group_rows(results.select(file, {"statistic": statistic, **where}), ("dataset", "metric", "epsilon"))
    rows = []
    for dataset in dict.fromkeys(key[0] for key in groups):
        sizes = sorted({number(size) for of, _, size in groups if of == dataset})[-int(largest) :]
        for (of, metric, size), pairs in groups.items():
            if of == dataset and number(size) in sizes:
                rows.append([names.dataset(of), names.metric(metric), f"{number(size):g}", *_agreement(pairs)])
    return make_table(["data set", "metric", "norm", "Spearman", "Kendall", "pairs alike", "pairs that differ"], rows)


def _agreement(pairs: Sequence[Row]) -> list[str]:
    differ = []
    for pair in pairs:
        if pair["order"] == "differs":
            better = [pair["method"], pair["other"]]
            if (number(pair["ours"]) < number(pair["ours_other"])) != names.is_lower_better(pair["metric"]):
                better.reverse()
            text = f"{names.method(better[0])} before {names.method(better[1])}"
            differ.append(f"**{text}**" if pair["ours_apart"] == pair["published_apart"] == "1" else text)
    alike = sum(pair["order"] == "same" for pair in pairs)
    correlations = [f"{number(pairs[0][name]):.2f}" for name in ("spearman", "kendall")]
    return [*correlations, f"{alike} of {len(pairs)}", "; ".join(differ) or "none"]


def strongest(results: Results, dataset: str, file: str = "fair.csv") -> str:
    """The strongest attack on each method at each size, which derivative led it, what two seeds alone do, and how far
    the map of another image is."""
    lines = [line for line in results.lines(file) if line["dataset"] == dataset]
    levels = {(line["method"], line["mode"], line["metric"]): line for line in lines if line["mode"] in (FLOOR, CHANCE)}
    rows = []
    for method in names.METHODS:
        floor = levels.get((method, FLOOR, DISTANCE))
        others = [levels[method, CHANCE, each] for each in names.COMPARED if (method, CHANCE, each) in levels]
        another = " / ".join(f"{number(line['mean']):.2f}" for line in others)
        for parts in zip(*(curve(lines, dataset, method, metric) for metric in names.COMPARED), strict=True):
            first = parts[0]
            row = [names.method(method), f"{number(first['epsilon']):g}", *map(format_interval, parts), _winners(first)]
            row += [format_percent(number(first["valid_share"])), format_interval(floor) if floor else "", another]
            rows.append(row)
    head = ["method", "norm", "distance", "top-k", "SSIM", "won by", "valid", "two seeds, distance", "another image"]
    return make_table(head, rows)


def _winners(line: Row) -> str:
    """implicit 62 %, unrolled 30 %, frozen 8 %; the largest share first."""
    shares = {mode: number(line[f"won_{mode}"]) for mode in MODES if line.get(f"won_{mode}")}
    ordered = sorted(shares, key=lambda mode: -shares[mode])
    return ", ".join(f"{mode} {format_percent(shares[mode])}" for mode in ordered)


def modes(results: Results, method: str, file: str = "fair.csv") -> str:
    """The mean distance that each derivative reaches on one method, and the strongest of them."""
    lines = [line for line in results.lines(file) if (line["method"], line["metric"]) == (method, DISTANCE)]
    known = [mode for mode in (*MODES, STRONGEST) if any(line["mode"].partition(":")[0] == mode for line in lines)]
    rows = []
    for dataset in names.DATASETS:
        some = [line for line in lines if line["dataset"] == dataset and line["mode"] not in (FLOOR, CHANCE)]
        for size in sorted({number(line["epsilon"]) for line in some}):
            at = {line["mode"].partition(":")[0]: line for line in some if number(line["epsilon"]) == size}
            cells = (format_interval(at[mode]) if mode in at else "" for mode in known)
            rows.append([names.dataset(dataset), f"{size:g}", *cells])
    return make_table(["data set", "norm", *known], rows)


def way(results: Results, file: str = "way.csv") -> str:
    """How far the strongest attack moves a map on its way to that of another image."""
    groups = group_rows(results.lines(file), ("dataset", "epsilon"))
    known = [name for name in names.METHODS if any(line["method"] == name for line in results.lines(file))]
    rows = []
    for (dataset, size), lines in groups.items():
        at = {line["method"]: [f"{number(line[name]):.0%}".rstrip("%") for name in MIDDLE] for line in lines}
        cells = ("{} [{}, {}]".format(*at[name]) if name in at else "" for name in known)
        rows.append([names.dataset(dataset), f"{number(size):g}", *cells])
    return make_table(["in per cent", "norm", *map(names.method, known)], rows)


def paired(results: Results, method: str, other: str, file: str = "paired.csv") -> str:
    """One method minus another, image by image; bold where the interval leaves zero out."""
    groups = group_rows(results.select(file, {"method": method, "other": other}), ("dataset", "epsilon"))
    rows = []
    for (dataset, size), lines in groups.items():
        at = {line["metric"]: line for line in lines}
        cells = (format_difference(at[metric]) for metric in names.COMPARED)
        rows.append([names.dataset(dataset), f"{number(size):g}", *cells, at[DISTANCE]["n"]])
    return make_table(["data set", "norm", *map(title_difference, names.COMPARED), "images"], rows)


def accuracy(results: Results, dataset: str, over: str = "all", file: str = "accuracy.csv") -> str:
    """Means of all metrics with intervals; the last row is the level of chance."""
    lines = [line for line in results.lines(file) if (line["dataset"], line["over"]) == (dataset, over)]
    at, metrics = _by_method(lines)
    rows = _accuracy_rows(names.ACCURACY_METHODS, at, metrics, format_interval, "")
    if (CHANCE, "box_share") in at:
        share = format_interval(at[CHANCE, "box_share"])
        rows.append(["Share of the box", *(share if metric == "energy_in_box" else "" for metric in metrics)])
    arrows = (f"{names.metric(metric)} {'↓' if names.is_lower_better(metric) else '↑'}" for metric in metrics)
    return make_table(["method", *arrows], rows)


def accuracy_paired(results: Results, dataset: str, over: str = "all", file: str = "accuracy_paired.csv") -> str:
    """Each method minus SmoothGrad, image by image; bold where the interval leaves zero out."""
    other = "smoothgrad"
    at, metrics = _by_method(results.select(file, {"dataset": dataset, "over": over, "other": other}))
    known = [method for method in names.ACCURACY_METHODS if any(key[0] == method for key in at)]
    rows = _accuracy_rows(known, at, metrics, format_difference, "-")
    return make_table([f"less {names.method(other)}", *map(title_difference, metrics)], rows)


def _by_method(lines: Sequence[Row]) -> tuple[dict[tuple[str, str], Row], list[str]]:
    """Lines by method and metric, and the metrics of accuracy that they have."""
    at = {(line["method"], line["metric"]): line for line in lines}
    return at, [metric for metric in names.ACCURACY if any(key[1] == metric for key in at)]


def _accuracy_rows(
    methods: Sequence[str],
    at: Mapping[tuple[str, str], Row],
    metrics: Sequence[str],
    format_cell: Callable[[Row], str],
    absent: str,
) -> list[list[str]]:
    return [
        [names.method(method), *(format_cell(at[method, m]) if (method, m) in at else absent for m in metrics)]
        for method in methods
    ]


def sweep(results: Results, file: str, by: str, columns: str, format: str = ".2g") -> str:
    """Means over the images of a data set for each value of a parameter; flags become shares."""
    lines = [line for line in results.lines(file) if not line.get("way")]  # rows made with noise are for the picture
    chosen, rows = columns.split(","), []
    for (dataset, value), some in group_rows(lines, ("dataset", by)).items():
        given = [[number(line[name]) for line in some if line[name] != ""] for name in chosen]
        means = [f"{sum(each) / len(each):{format}}" if each else "-" for each in given]
        rows.append([names.dataset(dataset), f"{number(value):g}", *means, str(len(some))])
    return make_table(["data set", by, *(name.replace("_", " ") for name in chosen), "images"], rows)


def plain(results: Results, file: str, columns: str, format: str = ".3g", **where: str) -> str:
    """Some columns of a file as they are, of the lines that have the given values."""
    chosen = columns.split(",")
    lines = results.select(file, where)
    if not lines:
        raise ValueError(f"{file} must have lines with {where}, got none; ask for others")

    def format_cell(value: str) -> str:
        try:
            return f"{float(value):{format}}"
        except ValueError:
            return names.METHODS.get(value, names.DATASETS.get(value, value))

    head = [name.replace("_", " ") for name in chosen]
    return make_table(head, [[format_cell(line[name]) for name in chosen] for line in lines])


def frontier(results: Results, dataset: str, share: str = "0.1") -> str:
    """How far each map is moved at each size of the attack, and how well it explains, beside the published ones."""
    lines = results.select("frontier.csv", {"dataset": dataset, "share": share})
    sizes = sorted({number(line["epsilon"]) for line in lines})
    rows = []
    for key, some in group_rows(lines, ("method", "noise", "rho", "statistic")).items():
        at = {number(line["epsilon"]): format_interval(line, "moved") for line in some}
        explains = (format_interval(some[0], name) for name in ("insertion", "deletion"))
        images = max(int(number(line["n"])) for line in some)
        rows.append([_map_name(*key), *key[1:3], *(at.get(size, "") for size in sizes), *explains, str(images)])
    moved = (f"moved, norm {size:.3g}" for size in sizes)
    return make_table(["map", "noise", "rho", *moved, "insertion ↑", "deletion ↓", "images"], rows)


def _map_name(method: str, noise: str, rho: str, statistic: str) -> str:
    return names.method(method) if method in names.METHODS else statistic


def frontier_goal(results: Results, dataset: str, other: str = "sparse_moreau", over: str = "all") -> str:
    """Each map with a tenth of the entries against a published one: the ratio of the movements, and the differences in
    insertion and deletion."""
    where = {"dataset": dataset, "other": other, "over": over, "method": "statistics"}
    lines = results.select("frontier_goal.csv", where)
    sizes = sorted({number(line["epsilon"]) for line in lines if line["measure"] == "ratio"})
    rows = []
    for (noise, rho, statistic), some in group_rows(lines, ("noise", "rho", "statistic")).items():
        ratios = {number(line["epsilon"]): format_interval(line) for line in some if line["measure"] == "ratio"}
        cells = [ratios.get(size, "") for size in sizes]
        other_lines = {line["measure"]: line for line in some if line["measure"] != "ratio"}
        cells += [format_difference(other_lines[name]) for name in ("insertion", "deletion")]
        rows.append([statistic, noise, rho, *cells])
    head = ["statistic", "noise", "rho", *(f"movement over its, norm {size:.3g}" for size in sizes)]
    return make_table([*head, *map(title_difference, ("insertion", "deletion"))], rows)


def frontier_attacks(results: Results, share: str = "0.1", noise: str = "0.1") -> str:
    """How far each slope goes on average, as a share of chance, and on how many images it went farthest."""
    lines = results.select("frontier_attacks.csv", {"share": share, "noise": noise, "rho": "0"})
    known = ("mean", "square", "log_square", "relaxed")
    slopes = [name for name in known if any(line[f"won_{name}"] for line in lines)]
    rows = []
    for line in lines:
        cells = [
            f"{number(line[f'reached_{slope}']):.2f} ({format_percent(number(line[f'won_{slope}']))})"
            if line[f"won_{slope}"]
            else ""
            for slope in slopes
        ]
        name = _map_name(line["method"], "", "", line["statistic"])
        rows.append([names.dataset(line["dataset"]), name, f"{number(line['epsilon']):.3g}", *cells])
    return make_table(["data set", "map", "norm", *(f"along {name.replace('_', ' ')}" for name in slopes)], rows)


MADE = (
    *(published, units, against_size, ordering, strongest, modes, paired, way),
    *(accuracy, accuracy_paired, sweep, plain),
    *(frontier, frontier_goal, frontier_attacks),
)
TABLES: dict[str, Callable[..., str]] = {each.__name__: each for each in MADE}


def make(results: Results, name: str, options: Mapping[str, Any]) -> str:
    if name not in TABLES:
        raise ValueError(f"a table must be one of {list(TABLES)}, got {name!r}")
    return TABLES[name](results, **options)
