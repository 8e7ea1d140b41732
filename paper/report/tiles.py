"""Grids of images and maps. Tiles have whole numbers of pixels, so that no entry of a sparse map is averaged away.

Maps have the colours and the scale of the library's pictures: |map| summed over channels, full colour at the 99th
percentile (of a very sparse map: the 90th of what is left), each map for itself.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from textwrap import fill
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from numpy.typing import NDArray
from PIL import Image
from torch import Tensor

from moreaugrad.files import replacing
from moreaugrad.plotting import pictures
from paper import names

DOTS = 100  # per inch
GAP, LINE = 4, 17  # pixels between tiles, and of a line of small text
LARGEST = 400_000  # bytes of a picture
SCALE = "Each map on its own scale: |map| summed over channels, full colour at the 99th percentile."


@dataclass(frozen=True, eq=False)
class Tile:
    """An image (H, W, 3) of bytes, a map (C, H, W), or nothing, with a caption above it."""

    content: NDArray[np.uint8] | Tensor | None
    caption: str = ""


@dataclass(frozen=True, eq=False)
class Grid:
    """Rows of tiles with a heading for each column and a name for each row."""

    rows: Sequence[Sequence[Tile]]
    headings: Sequence[str]
    names: Sequence[str]
    title: str = ""
    note: str = ""
    side: int = 224  # pixels of a tile

    def draw(self) -> Figure:
        lines = [
            max((tile.caption.count("\n") + 1 for tile in row if tile and tile.caption), default=0) for row in self.rows
        ]
        heights = [self.side + GAP + LINE * count for count in lines]
        width = LINE + 3 * GAP + len(self.headings) * (self.side + GAP)
        title, note = fill(self.title, int(width / 9)), fill(f"{self.note} {SCALE}".strip(), int(width / 6.7))
        deepest = max(heading.count("\n") for heading in self.headings) + 1
        above = (24 * (title.count("\n") + 1) + 8 if title else 6) + 20 * deepest
        height = above + sum(heights) + LINE * (note.count("\n") + 1) + 2 * GAP
        figure = Figure(figsize=(width / DOTS, height / DOTS), dpi=DOTS, facecolor="white")
        page = _Page(figure, width, height)
        page.write(title, width / 2, 6, size=13)
        for column, heading in enumerate(self.headings):
            page.write(heading, self._left(column) + self.side / 2, above - 6, size=11, bottom=True)
        top = above
        for row, name, tall in zip(self.rows, self.names, heights, strict=True):
            top += tall
            self._draw_row(page, row, name, top - GAP - self.side)
        page.write(note, width / 2, top + GAP, size=9)
        return figure

    def _left(self, column: int) -> float:
        return LINE + 2 * GAP + column * (self.side + GAP)

    def _draw_row(self, page: _Page, row: Sequence[Tile], name: str, top: float) -> None:
        page.write(name, LINE / 2 + GAP, top + self.side / 2, size=10, upright=True)
        for column, tile in enumerate(row):
            if tile.content is not None:
                page.show(tile.content, self._left(column), top, self.side)
            page.write(tile.caption, self._left(column) + self.side / 2, top - 5, size=9, bottom=True)


@dataclass(frozen=True, eq=False)
class _Page:
    """A figure that is drawn in pixels from its upper left corner."""

    figure: Figure
    width: float
    height: float

    def write(self, text: str, x: float, y: float, size: float, bottom: bool = False, upright: bool = False) -> None:
        """Text whose upper (or lower) middle is at a point; upright: its centre, turned."""
        where = "center" if upright else ("baseline" if bottom else "top")
        self.figure.text(
            x / self.width, 1 - y / self.height, text, ha="center", va=where, fontsize=size,
            rotation=90 if upright else 0, linespacing=1.15,
        )  # fmt: skip

    def show(self, content: Any, left: float, top: float, side: int) -> None:
        place = (left / self.width, 1 - (top + side) / self.height, side / self.width, side / self.height)
        axes = self.figure.add_axes(place)
        axes.set_axis_off()
        values = heat(content) if isinstance(content, Tensor) else content
        whole = side % values.shape[0] == 0  # pixels of equal size
        axes.imshow(values, cmap="inferno", vmin=0, vmax=1, interpolation="nearest" if whole else "antialiased")


def heat(map: Tensor) -> NDArray[np.float64]:
    """(C, H, W) -> (H, W) in [0, 1]; black where the map is all zero."""
    if not bool(map.any()):
        return np.zeros(tuple(map.shape[-2:]))
    return pictures.heat(map)


def make_heading(method: str) -> str:
    """The name of a method above a column, in two lines where it has several words."""
    *first, last = names.method(method).split()
    return " ".join(first) + "\n" + last


def save(figure: Figure, path: Path) -> None:
    """Save as a .jpg of at most about 400 kB, whole or not at all."""
    raw = BytesIO()
    figure.savefig(raw, format="png", dpi=figure.dpi)
    with Image.open(raw) as drawn:
        picture = drawn.convert("RGB")
    for quality in range(92, 40, -6):
        stored = BytesIO()
        coarse = 0 if quality > 80 else 2  # halve the resolution of the colours where full colour takes too much
        picture.save(stored, "JPEG", quality=quality, subsampling=coarse)
        if stored.tell() <= LARGEST:
            break
    with replacing(path) as file:
        file.write(stored.getvalue())
