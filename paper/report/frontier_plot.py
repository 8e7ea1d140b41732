"""The frontier as one picture: a row for each data set; how far maps move against how well they explain."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from paper import names
from paper.report.frontier_tables import AIM, RELAXED, SPARSE, SPARSIFIED, STATISTICS

Lines = Sequence[Mapping[str, Any]]
CURVES = {  # statistic -> colour, marker, name
    "mean": ("#0072b2", "s", "mean"),
    "geometric": ("#e69f00", "^", "geometric mean of |mean| and rms"),
    "rms": ("#d55e00", "o", "rms"),
    "votes": ("#009e73", "D", "votes"),
}
PUBLISHED = {
    SPARSE: ("black", "*", "Sparse MoreauGrad as published"),
    SPARSIFIED: ("#777777", "P", "Sparsified SmoothGrad, a tenth kept"),
}
EXPLAIN = {"insertion": "insertion (right is better)", "deletion": "deletion (left is better)"}


def draw(lines: Lines) -> Figure:
    """Maps with a tenth of the entries at the larger size of the attack; along a curve the noise grows."""
    some = [line for line in lines if line["share"] == AIM]
    datasets = [name for name in names.DATASETS if any(line["dataset"] == name for line in some)]
    if not datasets:
        raise ValueError("the picture needs rows of maps with a tenth of the entries, got none; run the figure first")
    figure = Figure(figsize=(9.5, 3.3 * len(datasets) + 1.3), dpi=110, facecolor="white", layout="constrained")
    places = figure.subplots(len(datasets), len(EXPLAIN), squeeze=False, sharey="row")
    for row, dataset in zip(places, datasets, strict=True):
        mine = [line for line in some if line["dataset"] == dataset]
        largest = max(line["epsilon"] for line in mine)
        mine = [line for line in mine if line["epsilon"] == largest]
        for axes, measure in zip(row, EXPLAIN, strict=True):
            _draw_panel(axes, mine, measure)
            axes.set_title(
                f"{names.dataset(dataset)}, change of l2 norm {largest:.3g}, {mine[0]['n']} images", fontsize=9
            )
        row[0].set_ylabel("moved, as a share of chance\n(lower is more robust)", fontsize=9)
    for axes, label in zip(places[-1], EXPLAIN.values(), strict=True):
        axes.set_xlabel(label, fontsize=9)
    handles = dict(zip(*reversed(places[0][0].get_legend_handles_labels()), strict=True))
    figure.legend(
        handles.values(),
        handles.keys(),
        loc="outside upper center",
        ncols=3,
        frameon=False,
        fontsize=9,
        title="Sparse maps, a tenth of the entries kept, under the strongest attack found",
        title_fontsize=11,
    )
    figure.supxlabel("numbers: noise relative to the image's range; hollow: rho = 1; bars: 95 % intervals", fontsize=8)
    return figure


def _draw_panel(axes: Axes, lines: Lines, measure: str) -> None:
    for statistic, (colour, marker, label) in CURVES.items():
        of = [line for line in lines if line["method"] == STATISTICS and line["statistic"] == statistic]
        here = sorted((line for line in of if line["rho"] == 0), key=lambda line: line["noise"])
        axes.plot(*_places(here, measure), color=colour, marker=marker, markersize=6, linewidth=1.5, label=label)
        for line in here:
            _mark(axes, line, measure, colour, f"{line['noise']:g}")
        solved = [line for line in of if line["rho"] == 1]
        axes.plot(*_places(solved, measure), color=colour, marker=marker, markersize=6, linestyle="", fillstyle="none")
    for method, (colour, marker, label) in PUBLISHED.items():
        of = [line for line in lines if line["method"] == method and line["statistic"] in ("mean", RELAXED)]
        axes.plot(*_places(of, measure), color=colour, marker=marker, markersize=11, linestyle="", label=label)
        for line in of:
            _mark(axes, line, measure, colour, "")
    axes.grid(alpha=0.25)
    axes.set_ylim(bottom=0)
    axes.spines[["top", "right"]].set_visible(False)


def _places(lines: Lines, measure: str) -> tuple[list[float], list[float]]:
    return [line[measure] for line in lines], [line["moved"] for line in lines]


def _mark(axes: Axes, line: Mapping[str, Any], measure: str, colour: str, text: str) -> None:
    """The interval of the movement, and what tells the point from its neighbours."""
    axes.plot([line[measure]] * 2, [line["moved_low"], line["moved_high"]], color=colour, alpha=0.35, linewidth=1)
    axes.annotate(text, (line[measure], line["moved"]), xytext=(5, 3), textcoords="offset points", fontsize=7)
