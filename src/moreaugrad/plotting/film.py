"""Maps of films and volumes: frames in a strip."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from matplotlib.figure import FigureBase

from moreaugrad.plotting.pictures import (
    Array,
    Panel,
    ScaledMap,
    dots_per_inch,
    draw_tile,
    make_tiles,
    overlay,
    tile_height,
)

_MOST_FRAMES = 8
_SIDE = 1.6  # inches


def make_film(drawn: ScaledMap, frames: Array | None = None) -> Panel:
    """A map (T, H, W) on one scale: inputs (T, H, W, 3), maps and overlays of the frames, the heaviest of many."""
    mass = np.abs(drawn.values).sum((1, 2))
    chosen = np.sort(np.argsort(-mass, kind="stable")[:_MOST_FRAMES])
    few = len(chosen) < len(mass)
    note = f"{len(chosen)} of {len(mass)} frames, those with most of the map" if few else f"all {len(mass)} frames"
    maps = [replace(drawn, values=drawn.values[i]) for i in chosen]
    rows = 1 if frames is None else 3

    def draw(place: FigureBase) -> None:
        axes = np.array(make_tiles(place, rows, len(chosen))).reshape(rows, -1)
        for column, (i, tile) in enumerate(zip(chosen, maps, strict=True)):
            draw_tile(axes[rows // 2, column], tile, "" if frames is not None else f"frame {i}")
            if frames is not None:
                draw_tile(axes[0, column], frames[i], f"frame {i}")
                draw_tile(axes[2, column], overlay(frames[i], tile), "")
        place.supxlabel(note, fontsize=9)

    tall = tile_height(maps[0], _SIDE) + 0.12
    return Panel(max(_SIDE * len(chosen), 5.0), rows * tall + 0.6, draw, dots_per_inch(maps[0], _SIDE))
