"""A picture of figures of merit: a row for each data set, a column for each metric, the methods below each other."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from paper import names
from paper.curves import COLOURS, save
from paper.records import number

SHOWN = ("insertion", "deletion", "deletion_blur", "nonzero_share", "gini", "pointing_game", "energy_in_box")
OTHERS = {"gradcam": ("#000000", "*"), "random": ("#999999", "x")}


def draw(lines: Sequence[Mapping[str, Any]], path: Path, note: str = "") -> None:
    """Means over all images with 95 % intervals."""
    some = [line for line in lines if line["over"] == "all"]
    datasets = [name for name in names.DATASETS if any(line["dataset"] == name for line in some)]
    metrics = [name for name in SHOWN if any(line["metric"] == name for line in some)]
    figure = Figure(
        figsize=(1.9 * len(metrics) + 1.6, 2.3 * len(datasets) + 0.5), dpi=100, facecolor="white", layout="constrained"
    )
    places = figure.subplots(len(datasets), len(metrics), squeeze=False, sharey=True)
    for row, dataset in enumerate(datasets):
        for column, metric in enumerate(metrics):
            chosen = [line for line in some if (line["dataset"], line["metric"]) == (dataset, metric)]
            _panel(places[row, column], chosen)
            if chosen and (row == 0 or not places[row - 1, column].axison):
                better = "lower is better" if names.is_lower_better(metric) else "higher is better"
                places[row, column].set_title(f"{names.metric(metric)}\n({better})", fontsize=8.5)
            level = [line for line in some if (line["dataset"], line["metric"]) == (dataset, "box_share")]
            if metric == "energy_in_box" and level and chosen:
                places[row, column].axvline(number(level[0]["mean"]), color="black", linestyle=":", linewidth=1)
        places[row, 0].set_ylabel(names.dataset(dataset), fontsize=10)
    if note:
        figure.supxlabel(note, fontsize=8)
    save(figure, path)


def _panel(axes: Axes, lines: Sequence[Mapping[str, Any]]) -> None:
    methods = [*COLOURS, *OTHERS]
    if not lines:
        axes.set_axis_off()
        return
    for line in lines:
        colour, marker = (COLOURS | OTHERS)[line["method"]]
        mean, low, high = (number(line[name]) for name in ("mean", "mean_low", "mean_high"))
        at = -methods.index(line["method"])
        axes.plot([low, high], [at, at], color=colour, linewidth=2, alpha=0.5)
        axes.plot(mean, at, marker, color=colour, markersize=6)
    axes.set_yticks([-place for place in range(len(methods))], [names.method(name) for name in methods], fontsize=8)
    axes.tick_params(axis="x", labelsize=8)
    axes.grid(alpha=0.25)
    axes.spines[["top", "right"]].set_visible(False)
