"""Plots the published protocol in other units: the steps to the published value, and curves beside the published."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from moreaugrad.studies.plan import STRONGEST
from paper import names
from paper.data.records import number
from paper.report.attenuation import FULL, SIGNED
from paper.report.curve_plot import COLOURS
from paper.report.summaries import DISTANCE, MIDDLE

Lines = Sequence[Mapping[str, Any]]
CURVE, ENLARGED, NORM = "curve", "enlarged", 10.0
ORDER = ("ours", "paper", "smooth", "authors", CURVE, ENLARGED)
STYLES = {  # of lines, by where their points come from
    CURVE: ("-", "measured in the paper's units"),
    ENLARGED: ("-.", "the same, if images were enlarged to 224 pixels"),
    "full": (":", "full protocol, only norms converted"),
    "published": ("--", "published"),
}
METHODS = {"moreau": SIGNED, "sparse_moreau": SIGNED, "gradient": DISTANCE}  # by which the authors compare
TITLE = "How far the published attack moves maps, in the paper's units and in those of the network"
NOTE = (
    "means over images with a valid attack, 95 % intervals; signed maps, extrapolated to the authors' budget; "
    "steps: MoreauGrad at norm 10"
)


def draw(lines: Lines, full: Lines, published: Lines, factor: float) -> Figure:
    """A row for each data set: the steps on the left, the curves on the right.

    `lines` are those of units.csv, `full` of the published protocol in the network's own units, of which one is
    `factor` of the paper's.
    """
    some = [line for line in lines if (line["metric"], line["mode"]) == (FULL, STRONGEST)]
    datasets = [name for name in names.DATASETS if any(line["dataset"] == name for line in some)]
    size = (11.5, 3.1 * len(datasets) + 1.0)
    figure = Figure(figsize=size, dpi=110, facecolor="white", layout="constrained")
    places = figure.subplots(len(datasets), 2, squeeze=False, width_ratios=(1.35, 1))
    for row, dataset in zip(places, datasets, strict=True):
        _draw_steps(row[0], [line for line in some if line["dataset"] == dataset], published)
        _draw_curves(row[1], dataset, some, full, published, factor)
        for axes in row:
            axes.tick_params(labelsize=8)
            axes.grid(alpha=0.25)
            axes.spines[["top", "right"]].set_visible(False)
            axes.set_title(names.dataset(dataset), fontsize=10)
    figure.legend(handles=_make_legend(), loc="outside upper center", ncols=4, frameon=False, title=TITLE, fontsize=9)
    figure.supxlabel(NOTE, fontsize=8)
    return figure


def _draw_steps(axes: Axes, lines: Lines, published: Lines) -> None:
    """Each step's distance at norm 10, below each other."""
    hits = [line for line in lines if line["method"] == "moreau" and number(line["epsilon"]) == NORM]
    hits = sorted(hits, key=lambda line: (ORDER.index(line["protocol"]), number(line["side"])))
    for place, line in enumerate(hits):
        middle, low, high = (number(line[name]) for name in MIDDLE)
        colour = COLOURS["moreau"][0]
        axes.plot([low, high], [-place, -place], color=colour, linewidth=2.5, alpha=0.5)
        axes.plot(middle, -place, "s", color=colour, markersize=6)
        axes.annotate(f"{middle:.2f}", (middle, -place), (0, 6), textcoords="offset points", ha="center", fontsize=8)
    for value in _known(published, hits[0]["dataset"], "moreau", NORM) if hits else ():
        axes.axvline(value, color=COLOURS["moreau"][0], linestyle="--", linewidth=1.1)
    labels = [f"{line['title']}\n({line['side']} pixels, {line['counted']} images)" for line in hits]
    axes.set_yticks([-place for place in range(len(hits))], labels)
    axes.set_ylim(0.4 - len(hits), 0.6)
    axes.set_xlim(left=0)
    axes.set_xlabel(f"normalised distance at norm {NORM:g}", fontsize=9)


def _known(published: Lines, dataset: str, method: str, norm: float) -> list[float]:
    of = (dataset, method, DISTANCE, norm)
    return [p["value"] for p in published if (p["dataset"], p["method"], p["metric"], p["epsilon"]) == of]


def _draw_curves(axes: Axes, dataset: str, lines: Lines, full: Lines, published: Lines, factor: float) -> None:
    corrected = {name: [line for line in lines if line["protocol"] == name] for name in (CURVE, ENLARGED)}
    for method, compared in METHODS.items():
        colour, marker = COLOURS[method]
        sources = [(name, some, FULL, 1.0) for name, some in corrected.items()] + [("full", full, compared, factor)]
        for name, source, metric, scale in sources:
            of = (dataset, method, metric, STRONGEST)
            some = [line for line in source if tuple(line[n] for n in ("dataset", "method", "metric", "mode")) == of]
            some = _take_largest(some)
            x = [scale * number(line["epsilon"]) for line in some]
            middle, low, high = ([number(line[end]) for line in some] for end in MIDDLE)
            style, face = STYLES[name][0], colour if name == CURVE else "white"
            axes.plot(x, middle, style, color=colour, marker=marker, markersize=5, markerfacecolor=face, linewidth=1.5)
            axes.vlines(x, low, high, color=colour, alpha=0.5, linewidth=2 if name == CURVE else 1)
        known = sorted((p["epsilon"], p["value"]) for p in published if _is_of(p, dataset, method))
        axes.plot(*zip(*known, strict=True), STYLES["published"][0], color=colour, linewidth=1.1)
    axes.set_xscale("log")
    axes.set_xticks([1, 3, 10, 20, 40], ["1", "3", "10", "20", "40"])
    axes.set_xticks([], minor=True)
    axes.set_ylim(bottom=0)
    axes.set_xlabel("L2 norm of the change, in the paper's units", fontsize=9)
    axes.set_ylabel("normalised distance", fontsize=9)


def _take_largest(lines: Lines) -> list[Mapping[str, Any]]:
    """The line of each norm that was measured on the largest images, smallest norm first."""
    ordered = sorted(lines, key=lambda line: number(line.get("side", 0)))
    found = {number(line["epsilon"]): line for line in ordered}
    return [found[norm] for norm in sorted(found)]


def _is_of(line: Mapping[str, Any], dataset: str, method: str) -> bool:
    return (line["dataset"], line["method"], line["metric"]) == (dataset, method, DISTANCE)


def _make_legend() -> list[Line2D]:
    found = [Line2D([], [], color=COLOURS[n][0], marker=COLOURS[n][1], label=names.method(n)) for n in METHODS]
    found += [
        Line2D([], [], color="black", linewidth=1.3, linestyle=style, label=label) for style, label in STYLES.values()
    ]
    return found
