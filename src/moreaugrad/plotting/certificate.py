"""A certified map as a picture: the input, the map with outlines, the guarantee against the size of the change."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from moreaugrad.plotting.curves import COLOURS

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

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
    from moreaugrad.plotting.pictures import Picture, read_photo

    shown = read_photo(photo)
    dots = min(max(1.2 * max(shown.shape[:2]) / 3.6, 110.0), 300.0)
    figure = Picture(13.0, 4.9, title, dots)
    places = figure.subplots(1, 3, width_ratios=(1, 1, 1.35))
    places[0].imshow(shown)
    places[0].set_title(names[0], fontsize=10)
    _map(places[1], marked, names[1])
    for axes in places[:2]:
        axes.set_axis_off()
    _curve(places[2], curve)
    return figure


def _map(axes: Axes, marked: MarkedMap, name: str) -> None:
    from matplotlib.lines import Line2D

    from moreaugrad.plotting.pictures import scale_map

    drawn = scale_map(marked.sizes)
    axes.imshow(drawn.values, cmap="inferno", vmin=0, vmax=drawn.top or 1.0)
    axes.set_title(name + ("" if drawn.values.any() else " (all zero)"), fontsize=10)
    wide = min(1.8, max(0.5, 60 / max(drawn.values.shape)))
    lines = []
    if marked.top is not None:
        _outline(axes, marked.top, REST, 0.6 * wide, 0.75)
        lines.append(Line2D([], [], color=REST, linewidth=1.2, label=marked.words[1]))
    if marked.sure is not None and marked.sure.any():
        _outline(axes, marked.sure, SURE, 1.3 * wide, 1.0)
        lines.insert(0, Line2D([], [], color=SURE, linewidth=2.0, label=marked.words[0]))
    if not lines:
        return
    axes.legend(
        handles=lines, loc="upper center", bbox_to_anchor=(0.5, -0.02), fontsize=8, facecolor="#333333",
        labelcolor="white", framealpha=1.0,
    )  # fmt: skip


def _outline(axes: Axes, mask: Mask, colour: str, width: float, opacity: float) -> None:
    """The borders between places inside and outside."""
    from matplotlib.collections import LineCollection

    inside = np.pad(mask, 1)
    rows, columns = np.nonzero(inside[:-1, 1:-1] != inside[1:, 1:-1])
    flat = [((column - 0.5, row - 0.5), (column + 0.5, row - 0.5)) for row, column in zip(rows, columns, strict=True)]
    rows, columns = np.nonzero(inside[1:-1, :-1] != inside[1:-1, 1:])
    steep = [((column - 0.5, row - 0.5), (column - 0.5, row + 0.5)) for row, column in zip(rows, columns, strict=True)]
    lines = LineCollection(flat + steep, colors=colour, linewidths=width, alpha=opacity, capstyle="round")
    lines.set_clip_on(False)  # a border at the edge of the map is whole
    axes.add_collection(lines)


def _curve(axes: Axes, curve: CertifiedCurve) -> None:
    x, y = curve.epsilons, curve.shares
    axes.fill_between(x, y, step="pre", color=CERTIFIED, alpha=0.15, linewidth=0)
    axes.step(x, y, where="pre", color=CERTIFIED, linewidth=1.8, label="certified: at least so many stay")
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
    axes.set_xlabel(curve.words[0], fontsize=9)
    axes.set_ylabel(curve.words[1], fontsize=9)
    axes.yaxis.set_major_formatter(lambda value, _: f"{100 * value:.0f} %")
    axes.tick_params(labelsize=8)
    axes.grid(alpha=0.25)
    axes.spines[["top", "right"]].set_visible(False)
    if curve.stamp:
        behind = {"facecolor": "white", "edgecolor": "none", "alpha": 0.7}
        words = axes.text(0.64, 0.55, curve.stamp, ha="center", va="center", transform=axes.transAxes, bbox=behind)
        words.set(fontsize=18, color="#b00020", weight="bold")
    axes.legend(loc="upper center", bbox_to_anchor=(0.5, -0.14), ncols=2, fontsize=8, frameon=False)
