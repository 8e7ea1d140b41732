"""Plots curves of studies beside the published ones: a row for each data set, a column for each metric."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.layout_engine import ConstrainedLayoutEngine
from matplotlib.lines import Line2D
from PIL import Image

from moreaugrad.files import replacing
from moreaugrad.studies.plan import FLOOR
from moreaugrad.studies.summary import MOSTLY
from paper import names
from paper.data.records import number
from paper.report.summaries import CHANCE, MIDDLE, curve

Lines = Sequence[Mapping[str, Any]]
COLOURS = {
    "gradient": ("#999999", "o"),
    "integrated_gradients": ("#e69f00", "v"),
    "smoothgrad": ("#56b4e9", "^"),
    "sparsified_smoothgrad": ("#009e73", "D"),
    "moreau": ("#0072b2", "s"),
    "sparse_moreau": ("#d55e00", "P"),
    "group_sparse_moreau": ("#cc79a7", "X"),
}


def draw(lines: Lines, published: Lines = (), title: str = "", note: str = "") -> Figure:
    """A row for each data set and a column for each metric; means with 95 % bands, the published values dashed."""
    datasets = [name for name in names.DATASETS if any(line["dataset"] == name for line in lines)]
    methods = [name for name in COLOURS if any(line["method"] == name for line in lines)]
    if not datasets or not methods:
        raise ValueError(f"a picture needs lines of known data sets and methods, got {len(lines)} lines; run a study")
    layout = ConstrainedLayoutEngine(h_pad=0.08, w_pad=0.06)
    figure = Figure(figsize=(11.5, 2.8 * len(datasets) + 1.4), dpi=110, facecolor="white", layout=layout)
    places = figure.subplots(len(datasets), len(names.COMPARED), squeeze=False)
    for row, dataset in enumerate(datasets):
        for axes, metric in zip(places[row], names.COMPARED, strict=True):
            _draw_panel(axes, lines, published, (dataset, metric), methods)
            better = "lower" if names.is_lower_better(metric) else "higher"
            axes.set_title(f"{names.dataset(dataset)}: {names.metric(metric)}", fontsize=10)
            axes.set_ylabel(f"{better} is more robust", fontsize=8)
    for axes in places[-1]:
        axes.set_xlabel("L2 norm of the change", fontsize=9)
    handles = _make_legend(methods, bool(published), any(line["mode"] == CHANCE for line in lines))
    style = {"title": title or None, "title_fontsize": 12, "fontsize": 9}  # a title of its own would lie below it
    figure.legend(handles=handles, loc="outside upper center", ncols=5, frameon=False, **style)
    if note:
        figure.supxlabel(note, fontsize=8)
    return figure


def save(figure: Figure, path: Path) -> None:
    """Save as a PNG of at most 256 colours, a third of the size of a full one."""
    stored = BytesIO()
    figure.savefig(stored, format="png")
    with replacing(path) as file:
        Image.open(stored).convert("RGB").quantize(256, dither=Image.Dither.NONE).save(file, "PNG", optimize=True)


def _draw_panel(axes: Axes, lines: Lines, published: Lines, of: tuple[str, str], methods: Sequence[str]) -> None:
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
        known = sorted((p["epsilon"], p["value"]) for p in published if _is_of(p, dataset, method, names.base(metric)))
        if known:
            axes.plot(*zip(*known, strict=True), color=colour, linestyle="--", linewidth=1.1, alpha=0.9)
        for line in lines:
            if _is_of(line, dataset, method, metric):
                _draw_level(axes, line, colour)
        sizes |= set(x.tolist())
    axes.set_xscale("log")
    axes.set_xticks(sorted(sizes), [f"{size:g}" for size in sorted(sizes)], fontsize=8)
    axes.set_xticks([], minor=True)
    axes.tick_params(axis="y", labelsize=8)
    axes.grid(alpha=0.25)
    axes.spines[["top", "right"]].set_visible(False)


def _draw_level(axes: Axes, line: Mapping[str, Any], colour: str) -> None:
    """A dotted floor, or a triangle at the edge where the map of another image would be."""
    if line["mode"] == FLOOR:
        axes.axhline(number(line["mean"]), color=colour, linestyle=":", linewidth=0.9)
    if line["mode"] == CHANCE:
        edge = {"transform": axes.get_yaxis_transform(), "clip_on": False, "markersize": 6, "color": colour}
        axes.plot(1.02, number(line["mean"]), "<", **edge)


def _is_of(line: Mapping[str, Any], dataset: str, method: str, metric: str) -> bool:
    return (line["dataset"], line["method"], line["metric"]) == (dataset, method, metric)


def _make_legend(methods: Sequence[str], published: bool, another: bool) -> list[Line2D]:
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
