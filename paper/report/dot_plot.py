"""Plots the accuracy of maps: a row for each data set, a column for each metric, the methods below each other."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from moreaugrad.studies.summary import group_rows
from paper import names
from paper.data.records import number
from paper.report.curve_plot import COLOURS

SHOWN = tuple(metric for metric in names.ACCURACY if metric != "hoyer")
STYLES = COLOURS | {"gradcam": ("#000000", "*"), "random": ("#999999", "x")}


def draw(lines: Sequence[Mapping[str, Any]], note: str = "") -> Figure:
    """Means over all images with 95 % intervals."""
    some = [line for line in lines if line["over"] == "all"]
    datasets = [name for name in names.DATASETS if any(line["dataset"] == name for line in some)]
    metrics = [name for name in SHOWN if any(line["metric"] == name for line in some)]
    size = (1.9 * len(metrics) + 1.6, 2.3 * len(datasets) + 0.5)
    figure = Figure(figsize=size, dpi=100, facecolor="white", layout="constrained")
    places = figure.subplots(len(datasets), len(metrics), squeeze=False, sharey=True)
    groups = group_rows(some, ("dataset", "metric"))
    for row, dataset in enumerate(datasets):
        at = {metric: groups.get((dataset, metric), []) for metric in (*metrics, "box_share")}
        for column, (axes, metric) in enumerate(zip(places[row], metrics, strict=True)):
            _draw_panel(axes, at[metric])
            if at[metric] and (row == 0 or not places[row - 1, column].axison):
                better = "lower is better" if names.is_lower_better(metric) else "higher is better"
                axes.set_title(f"{names.metric(metric)}\n({better})", fontsize=8.5)
            if metric == "energy_in_box" and at["box_share"] and at[metric]:
                axes.axvline(number(at["box_share"][0]["mean"]), color="black", linestyle=":", linewidth=1)
        places[row, 0].set_ylabel(names.dataset(dataset), fontsize=10)
    if note:
        figure.supxlabel(note, fontsize=8)
    return figure


def _draw_panel(axes: Axes, lines: Sequence[Mapping[str, Any]]) -> None:
    methods = list(STYLES)
    if not lines:
        axes.set_axis_off()
        return
    for line in lines:
        colour, marker = STYLES[line["method"]]
        mean, low, high = (number(line[name]) for name in ("mean", "mean_low", "mean_high"))
        at = -methods.index(line["method"])
        axes.plot([low, high], [at, at], color=colour, linewidth=2, alpha=0.5)
        axes.plot(mean, at, marker, color=colour, markersize=6)
    axes.set_yticks([-place for place in range(len(methods))], [names.method(name) for name in methods], fontsize=8)
    axes.tick_params(axis="x", labelsize=8)
    axes.grid(alpha=0.25)
    axes.spines[["top", "right"]].set_visible(False)
