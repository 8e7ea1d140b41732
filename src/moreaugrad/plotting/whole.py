"""A map on the whole photo, of which the network saw only a part."""

from __future__ import annotations

from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import FigureBase
from matplotlib.patches import Rectangle
from matplotlib.patheffects import Normal, Stroke

from moreaugrad.plotting.pictures import (
    TITLE,
    Array,
    Panel,
    ScaledMap,
    add_colour_bar,
    colour,
    dim,
    dots_per_inch,
    draw_tile,
    make_tiles,
    opacity,
)

Region = tuple[float, float, float, float]  # left, top, right, bottom, in pixels
_TALL = 3.2  # inches of a tile
_LONGEST = 1500  # pixels of a side: more than a tile can show


def make_whole_panel(drawn: ScaledMap, original: Any, region: Region) -> Panel:
    """The original (PIL) with a frame around what the network saw, the map, and the map on the original."""
    shown, place_of_map = _shrink(original, region)
    high, wide = shown.shape[:2]
    aspect = min(max(wide / high, 0.5), 3.0)  # long photos get a margin instead of an endless figure

    def draw(place: FigureBase) -> None:
        left, middle, right = make_tiles(place, 1, 3, [aspect, drawn.shape[1] / drawn.shape[0], aspect])
        left.imshow(shown)
        draw_tile(middle, drawn, "map")
        if drawn.top:
            add_colour_bar(place, drawn, middle)
        right.imshow(dim(shown, drawn.signed))
        start, top, end, bottom = (value - 0.5 for value in place_of_map)  # the first pixel begins at -0.5
        right.imshow(np.dstack([colour(drawn), opacity(drawn)]), extent=(start, end, bottom, top))
        for axes, name in ((left, "photo and crop"), (right, "overlay")):
            _frame(axes, (start, top, end, bottom))
            axes.set(xlim=(-0.5, wide - 0.5), ylim=(high - 0.5, -0.5))
            axes.set_title(name, fontsize=10, parse_math=False)

    part = min(1.0, (place_of_map[3] - place_of_map[1]) / high)  # of the tile: the map's pixels are that much smaller
    dots = min(max(1.2 * drawn.shape[0] / part / _TALL, dots_per_inch(drawn, _TALL)), 300.0)
    width = _TALL * (2 * aspect + drawn.shape[1] / drawn.shape[0])
    return Panel(width + 1.2, _TALL + 0.8 - TITLE, draw, dots)


def _shrink(original: Any, region: Region) -> tuple[Array, Region]:
    factor = min(1.0, _LONGEST / max(original.size))
    size = [max(1, round(side * factor)) for side in original.size]
    across, down = (new / old for new, old in zip(size, original.size, strict=True))
    left, top, right, bottom = region
    return np.asarray(original.resize(size)) / 255, (left * across, top * down, right * across, bottom * down)


def _frame(axes: Axes, region: Region) -> None:
    left, top, right, bottom = region
    frame = Rectangle((left, top), right - left, bottom - top, fill=False, edgecolor="white", linewidth=1.2)
    frame.set_path_effects([Stroke(linewidth=2.4, foreground="black"), Normal()])
    axes.add_patch(frame)
