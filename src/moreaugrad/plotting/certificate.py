"""A certified map as a picture: the input, the map with outlines, the guarantee against the size of the change."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from numpy.typing import NDArray

from moreaugrad.plotting.curves import COLOURS, style_axes
from moreaugrad.plotting.pictures import Picture, draw_tile, read_photo, scale_map

SURE, REST = "#39ffd0", "#ffffff"  # outlines on a map that is dark where it is small
CERTIFIED, ATTACK, NOISE = COLOURS[0], COLOURS[1], COLOURS[7]

Mask = NDArray[np.bool_]


@dataclass(frozen=True, eq=False)
class MarkedMap:
    """A map with its top units outlined."""

    sizes: Any  # (H, W)
    top: Mask | None  # (H, W); None: there are none
    sure: Mask | None  # those that stay, each by itself; None: which ones is not known
    words: tuple[str, str]  # what the outlines of both mean


@dataclass(frozen=True, eq=False)
class CertifiedCurve:
    """Certified share of the top units that stay, by the size of the change."""

    epsilons: Sequence[float]
    shares: Sequence[float]
    asked: float
    tried: Sequence[tuple[float, float]]  # (length, share) of attacks
    noise: float | None  # share that new noise alone leaves
    words: tuple[str, str]  # of both axes
    logarithmic: bool = False
    stamp: str = ""  # across the curve


def picture(photo: Any, marked: MarkedMap, curve: CertifiedCurve, title: str, names: tuple[str, str]) -> Figure:
    """The three of them side by side; `names` are those of input and map."""
    shown = read_photo(photo)
    dots = min(max(1.2 * max(shown.shape[:2]) / 3.6, 110.0), 300.0)
    figure = Picture(13.0, 4.9, title, dots)
    places = figure.subplots(1, 3, width_ratios=(1, 1, 1.35))
    draw_tile(places[0], shown, names[0])
    draw_tile(places[1], scale_map(marked.sizes), names[1])
    _mark(places[1], marked)
    for axes in places[:2]:
        axes.set_axis_off()
    _draw_curve(places[2], curve)
    return figure


def _mark(axes: Axes, marked: MarkedMap) -> None:
    wide = min(1.8, max(0.5, 60 / max(marked.sizes.shape)))
    lines = []
    if marked.top is not None:
        _outline(axes, marked.top, REST, 0.6 * wide, 0.75)
        lines.append(Line2D([], [], color=REST, linewidth=1.2, label=marked.words[1]))
    if marked.sure is not None and marked.sure.any():
        _outline(axes, marked.sure, SURE, 1.3 * wide, 1.0)
        lines.insert(0, Line2D([], [], color=SURE, linewidth=2.0, label=marked.words[0]))
    if lines:
        colours = {"facecolor": "#333333", "labelcolor": "white", "framealpha": 1.0}
        axes.legend(handles=lines, loc="upper center", bbox_to_anchor=(0.5, -0.02), fontsize=8, **colours)


def _outline(axes: Axes, mask: Mask, colour: str, width: float, opacity: float) -> None:
    """The borders between places inside and outside."""
    inside = np.pad(mask, 1)
    starts = [np.argwhere(inside[:-1, 1:-1] != inside[1:, 1:-1]), np.argwhere(inside[1:-1, :-1] != inside[1:-1, 1:])]
    borders = [
        ((column - 0.5, row - 0.5), (column - 0.5 + across, row + 0.5 - across))
        for across, places in zip((1, 0), starts, strict=True)
        for row, column in places
    ]
    lines = LineCollection(borders, colors=colour, linewidths=width, alpha=opacity, capstyle="round")
    lines.set_clip_on(False)  # a border at the edge of the map is whole
    axes.add_collection(lines)


def _draw_curve(axes: Axes, curve: CertifiedCurve) -> None:
    x, y = curve.epsilons, curve.shares
    axes.fill_between(x, y, step="pre", color=CERTIFIED, alpha=0.15, linewidth=0)
    axes.step(x, y, where="pre", color=CERTIFIED, linewidth=1.8, label="certified: at least this share stays")
    if curve.tried:
        lengths, shares = zip(*curve.tried, strict=True)
        axes.plot(lengths, shares, "v", color=ATTACK, linestyle=":", markersize=7, label="best attack found")
    if curve.noise is not None:
        axes.axhline(curve.noise, color=NOISE, linestyle=":", linewidth=1.4, label="no change, new noise alone")
    if curve.asked > 0:
        axes.axvline(curve.asked, color="black", linestyle="--", linewidth=1, label=f"asked: {curve.asked:g}")
    if curve.logarithmic:
        axes.set_xscale("log")
    axes.set(xlim=(x[0], x[-1] * 1.02), ylim=(-0.03, 1.05))
    axes.yaxis.set_major_formatter(lambda value, _: f"{100 * value:.0f} %")
    style_axes(axes, *curve.words)
    if curve.stamp:
        behind = {"facecolor": "white", "edgecolor": "none", "alpha": 0.7}
        words = axes.text(0.64, 0.55, curve.stamp, ha="center", va="center", transform=axes.transAxes, bbox=behind)
        words.set(fontsize=18, color="#b00020", weight="bold")
    axes.legend(loc="upper center", bbox_to_anchor=(0.5, -0.14), ncols=2, fontsize=8, frameon=False)
