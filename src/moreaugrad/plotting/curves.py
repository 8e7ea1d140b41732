"""Curves of a metric against a size: lines with bands, floors dashed, panels in rows."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from textwrap import fill
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#000000", "#999999")
MARKERS = "osD^vP*X"  # by shape too, for those who see colours otherwise
LETTERS = 64  # of a note's line, for each column of panels


@dataclass(frozen=True, slots=True)
class Curve:
    """One line; NaN leaves a gap."""

    label: str
    x: Sequence[float]  # positive
    middle: Sequence[float]
    low: Sequence[float]
    high: Sequence[float]
    hollow: Sequence[bool]  # points that rest on a part of the images only
    floor: float | None = None  # drawn as a dashed level


@dataclass(frozen=True, slots=True)
class Panel:
    """One pair of axes."""

    title: str
    across: str
    up: str
    curves: Sequence[Curve]


def curves(panels: Sequence[Sequence[Panel]], title: str = "", note: str = "") -> Figure:
    """All panels, row by row, with one legend; the sizes on a logarithmic scale."""
    from moreaugrad.plotting.pictures import Picture

    rows, columns = len(panels), max(map(len, panels))
    figure = Picture(4.2 * columns, 3.4 * rows + 0.8, title)
    places = figure.subplots(rows, columns, squeeze=False)
    for axes, panel in zip(places.flat, (panel for row in panels for panel in row), strict=True):
        _draw(axes, panel)
    handles, labels = places[0, 0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside upper center", ncols=min(4, len(labels)), fontsize=9, frameon=False)
    if note:
        figure.supxlabel(fill(note, LETTERS * columns), fontsize=8)
    return figure


def _draw(axes: Axes, panel: Panel) -> None:
    for number, curve in enumerate(panel.curves):
        colour, marker = COLOURS[number % len(COLOURS)], MARKERS[number % len(MARKERS)]
        # slightly to the side, so that bars of equal sizes do not hide each other
        x = [value * 1.03 ** (number - (len(panel.curves) - 1) / 2) for value in curve.x]
        axes.plot(x, curve.middle, marker, linestyle="-", color=colour, label=curve.label, linewidth=1.6, markersize=5)
        axes.fill_between(x, curve.low, curve.high, color=colour, alpha=0.15, linewidth=0)
        partial = [value if hollow else math.nan for value, hollow in zip(curve.middle, curve.hollow, strict=True)]
        axes.plot(x, partial, marker, color=colour, markersize=5, markerfacecolor="white")
        if curve.floor is not None and math.isfinite(curve.floor):
            axes.axhline(curve.floor, color=colour, linestyle="--", linewidth=1)
    axes.set_xscale("log")
    sizes = sorted({value for curve in panel.curves for value in curve.x})
    axes.set_xticks(sizes, [f"{value:g}" for value in sizes])
    axes.set_xticks([], minor=True)
    if sizes:
        axes.set_xlim(sizes[0] / 1.25, sizes[-1] * 1.25)
    if not any(math.isfinite(value) for curve in panel.curves for value in curve.middle):
        axes.text(0.5, 0.7, "no valid attack", transform=axes.transAxes, ha="center", va="center", fontsize=9)
    axes.set_title(panel.title, fontsize=10)
    style_axes(axes, panel.across, panel.up)


def style_axes(axes: Axes, across: str, up: str) -> None:
    """What all curves share: small labels, a faint grid, no frame above or to the right."""
    axes.set_xlabel(across, fontsize=9)
    axes.set_ylabel(up, fontsize=9)
    axes.tick_params(labelsize=8)
    axes.grid(alpha=0.25)
    axes.spines[["top", "right"]].set_visible(False)
