"""Curves of studies beside the published ones: a row for each data set, a column for each metric.

What the lines say is made in `summaries`, and whether the methods come in the same order in `ordering`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.layout_engine import ConstrainedLayoutEngine
from matplotlib.lines import Line2D
from PIL import Image

from paper import names, records
from paper.ordering import ordering, write_orderings
from paper.records import number
from paper.summaries import (
    AS_PUBLISHED,
    CHANCE,
    DRAWN,
    FLOOR,
    MIDDLE,
    as_published,
    curve,
    read_published,
    summarise,
    write,
)

__all__ = [
    "AS_PUBLISHED",
    "DRAWN",
    "as_published",
    "draw",
    "ordering",
    "picture",
    "read_published",
    "save",
    "summarise",
    "write",
    "write_orderings",
]

MOSTLY = 0.9  # share of valid attacks below which a point is drawn hollow
COLOURS = {
    "gradient": ("#999999", "o"),
    "integrated_gradients": ("#e69f00", "v"),
    "smoothgrad": ("#56b4e9", "^"),
    "sparsified_smoothgrad": ("#009e73", "D"),
    "moreau": ("#0072b2", "s"),
    "sparse_moreau": ("#d55e00", "P"),
    "group_sparse_moreau": ("#cc79a7", "X"),
}


def draw(
    lines: Sequence[Mapping[str, Any]],
    path: Path,
    published: Sequence[Mapping[str, Any]] | None = None,
    title: str = "",
    note: str = "",
    metrics: Sequence[str] = DRAWN,
) -> None:
    """The picture of `picture`, stored."""
    save(picture(lines, published, title, note, metrics), path)


def picture(
    lines: Sequence[Mapping[str, Any]],
    published: Sequence[Mapping[str, Any]] | None = None,
    title: str = "",
    note: str = "",
    metrics: Sequence[str] = DRAWN,
) -> Figure:
    """A row for each data set and a column for each metric; means with 95 % bands, the published values dashed."""
    datasets = [name for name in names.DATASETS if any(line["dataset"] == name for line in lines)]
    methods = [name for name in COLOURS if any(line["method"] == name for line in lines)]
    if not datasets or not methods:
        raise ValueError(f"a picture needs lines of known data sets and methods, got {len(lines)} lines; run a study")
    layout = ConstrainedLayoutEngine(h_pad=0.08, w_pad=0.06)
    figure = Figure(figsize=(11.5, 2.8 * len(datasets) + 1.4), dpi=110, facecolor="white", layout=layout)
    places = figure.subplots(len(datasets), len(metrics), squeeze=False)
    for row, dataset in enumerate(datasets):
        for column, metric in enumerate(metrics):
            _panel(places[row, column], lines, published or (), (dataset, metric), methods)
            better = "lower" if names.is_lower_better(metric) else "higher"
            places[row, column].set_title(f"{names.dataset(dataset)}: {names.metric(metric)}", fontsize=10)
            places[row, column].set_ylabel(f"{better} is more robust", fontsize=8)
    for axes in places[-1]:
        axes.set_xlabel("L2 norm of the change", fontsize=9)
    told = {"title": title or None, "title_fontsize": 12, "fontsize": 9}  # a title of its own would lie below it
    another = any(line["mode"] == CHANCE for line in lines)
    figure.legend(
        handles=_legend(methods, bool(published), another), loc="outside upper center", ncols=5, frameon=False, **told
    )
    if note:
        figure.supxlabel(note, fontsize=8)
    return figure


def save(figure: Figure, path: Path) -> None:
    """As a PNG of at most 256 colours, a third of the size of a full one."""
    stored = BytesIO()
    figure.savefig(stored, format="png")
    with records.replacing(path) as draft:
        Image.open(stored).convert("RGB").quantize(256, dither=Image.Dither.NONE).save(draft, "PNG", optimize=True)


def _panel(
    axes: Axes,
    lines: Sequence[Mapping[str, Any]],
    published: Iterable[Mapping[str, Any]],
    of: tuple[str, str],
    methods: Sequence[str],
) -> None:
    dataset, metric = of
    sizes: set[float] = set()
    for place, method in enumerate(methods):
        colour, marker = COLOURS[method]
        some = curve(lines, dataset, method, metric)
        x = np.array([number(line["epsilon"]) for line in some])
        aside = x * 1.025 ** (place - (len(methods) - 1) / 2)  # so that equal points do not hide each other
        middle, low, high = (np.array([number(line[name]) for line in some]) for name in MIDDLE)
        axes.fill_between(aside, low, high, color=colour, alpha=0.15, linewidth=0)
        axes.plot(aside, middle, color=colour, linewidth=1.5)
        for at, value, line in zip(aside, middle, some, strict=True):
            face = "white" if number(line["valid_share"]) < MOSTLY else colour
            axes.plot(at, value, marker, color=colour, markersize=5, markerfacecolor=face)
        known = sorted((p["epsilon"], p["value"]) for p in published if _matches(p, dataset, method, metric))
        if known:
            axes.plot(*zip(*known, strict=True), color=colour, linestyle="--", linewidth=1.1, alpha=0.9)
        for line in lines:
            if line["mode"] == FLOOR and (line["dataset"], line["method"], line["metric"]) == (dataset, method, metric):
                axes.axhline(number(line["mean"]), color=colour, linestyle=":", linewidth=0.9)
            if line["mode"] == CHANCE and (line["dataset"], line["method"], line["metric"]) == (
                dataset,
                method,
                metric,
            ):
                edge = {"transform": axes.get_yaxis_transform(), "clip_on": False, "markersize": 6, "color": colour}
                axes.plot(1.02, number(line["mean"]), "<", **edge)
        sizes |= set(x.tolist())
    axes.set_xscale("log")
    axes.set_xticks(sorted(sizes), [f"{size:g}" for size in sorted(sizes)], fontsize=8)
    axes.set_xticks([], minor=True)
    axes.tick_params(axis="y", labelsize=8)
    axes.grid(alpha=0.25)
    axes.spines[["top", "right"]].set_visible(False)


def _matches(point: Mapping[str, Any], dataset: str, method: str, metric: str) -> bool:
    return (point["dataset"], point["method"], point["metric"]) == (dataset, method, names.base(metric))


def _legend(methods: Sequence[str], published: bool, another: bool) -> list[Line2D]:
    found = [
        Line2D([], [], color=COLOURS[name][0], marker=COLOURS[name][1], markersize=5, label=names.method(name))
        for name in methods
    ]
    found += [Line2D([], [], color="black", linewidth=1.1, linestyle="--", label="published")] if published else []
    found.append(Line2D([], [], color="black", linewidth=1.1, linestyle=":", label="two seeds, no attack"))
    if another:
        found.append(Line2D([], [], linestyle="", marker="<", color="black", label="map of another image"))
    hollow = f"under {MOSTLY:.0%} of attacks valid".replace("%", " %")
    return [*found, Line2D([], [], linestyle="", marker="o", markerfacecolor="white", color="black", label=hollow)]
