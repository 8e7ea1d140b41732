"""Maps as pictures: heat, overlay, panels side by side.

A map is drawn as the sum of its absolute values over the channels, or, signed, as their plain sum in red
(above zero) and blue (below). Scales are linear, zero has the colour of zero, and full colour is at the
99th percentile (`ScaledMap` says which); beyond it colours are clipped.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path
from textwrap import fill
from typing import Any, TypeAlias

import numpy as np
import torch
from matplotlib import colormaps
from matplotlib.axes import Axes
from matplotlib.colorbar import Colorbar
from matplotlib.figure import Figure, FigureBase
from matplotlib.layout_engine import ConstrainedLayoutEngine
from numpy.typing import NDArray
from torch import Tensor

from moreaugrad import validate
from moreaugrad.files import replacing, with_ending
from moreaugrad.plotting.display import WRITTEN, show_in_notebook, to_png

Array: TypeAlias = NDArray[np.float64]

ALL_ZERO = (
    "map is all zero: eta is above every gradient entry; lower it or use sparsity= "
    "(without a prior: the score does not change with the input)"
)
_COLOURS = {False: "inferno", True: "RdBu_r"}  # by signed
_BACKDROP = {False: (0.0, 0.5), True: (0.5, 1.0)}  # range of the grey photo under an overlay: dark, signed bright
_LIFT = 0.3  # where the colours of an overlay begin: what is kept is never black
_GREY = np.array([0.299, 0.587, 0.114])
TITLE = 0.5  # inches


@dataclass(frozen=True, slots=True)
class ScaledMap:
    """One number per pixel, and the size that gets full colour.

    That size is the 99th percentile of all pixels, or the 90th of those that are not zero where that is
    larger: in a very sparse map the first is zero, or paints nearly all that was kept in one colour.
    """

    values: Array
    top: float  # 0 for a map of zeros
    signed: bool
    folded: bool = True  # whether negative entries count by their size

    @property
    def name(self) -> str:
        """What the values are: those of the map, or their sizes."""
        return "|map|" if self.folded else "map"

    @property
    def heat(self) -> Array:
        """In [0, 1], signed in [-1, 1]: a multiple of the values, clipped; zero stays zero."""
        return np.clip(self.values / self.top, -1, 1) if self.top else np.zeros_like(self.values)

    @property
    def shape(self) -> tuple[int, ...]:
        return self.values.shape

    @property
    def limits(self) -> tuple[float, float]:
        top = self.top or 1.0
        return (-top if self.signed else 0.0, top)


Tile: TypeAlias = ScaledMap | NDArray[Any]  # a map, or a photo (H, W, 3)


class Picture(Figure):
    """A figure outside pyplot: no global state, nothing to close, and a notebook shows it all the same."""

    html: str | None = None  # what a notebook shows instead of the pixels
    displayed: object = None  # the notebook cell that shows it already

    def __init__(self, width: float, height: float, title: str = "", dots: float = 100.0, fixed: bool = False) -> None:
        layout = None if fixed else ConstrainedLayoutEngine(h_pad=0.08, w_pad=0.06)
        super().__init__(figsize=(width, height), dpi=dots, facecolor="white", layout=layout)
        if title:  # a dollar sign in the name of a class is no formula
            place = {"y": 1 - 0.12 / height} if fixed else {}
            self.suptitle(_fill(title, width), fontsize=11, parse_math=False, **place)

    def _repr_png_(self) -> bytes:
        return to_png(self)

    def _ipython_display_(self) -> None:
        show_in_notebook(self)


@dataclass(frozen=True, eq=False)
class Panel:
    """A part of a figure: its size in inches, its resolution, and how it is drawn."""

    width: float
    height: float
    draw: Callable[[FigureBase], None]
    dots: float = 100.0
    html: str | None = None  # the same for a notebook, where that reads better than pixels
    fixed: bool = False  # `draw` puts everything in its place, which is faster than having it computed


def heat(map: Any, signed: bool = False) -> Array:
    """A map (C, H, W) or (H, W) as (H, W) in [0, 1], signed in [-1, 1]."""
    return scale_map(map, signed).heat


def panel(image: Any, map: Any, title: str = "", signed: bool = False) -> Picture:
    """Input, map with a colour bar in its own units, and overlay; without an image the map alone."""
    drawn = scale_map(map, signed)
    return compose([make_panel(drawn, None if image is None else read_photo(image))], title)


def make_panel(drawn: ScaledMap, shown: Array | None = None, name: str = "input") -> Panel:
    """The same as a part of a figure; `name`: what the input is called."""
    tiles: list[tuple[str, Tile]] = [("map", drawn)]
    if shown is not None:
        tiles = [(name, shown), *tiles, ("overlay", overlay(shown, drawn))]

    def draw(place: FigureBase) -> None:
        places = make_tiles(place, 1, len(tiles))
        for axes, (title, tile) in zip(places, tiles, strict=True):
            draw_tile(axes, tile, title)
        bar = add_colour_bar(place, drawn, places[len(places) // 2]) if drawn.top else None
        if isinstance(place, Picture):  # else it is a part of one, which shares its space with others
            _fix_places(place, places, bar, tall)

    tall = tile_height(drawn, 3.6)
    return Panel(3.7 * len(tiles) + 0.9, tall + 0.8 - TITLE, draw, dots_per_inch(drawn, 3.6), fixed=True)


def grid(tiles: Sequence[tuple[str, Any]], columns: int = 4, title: str = "") -> Picture:
    """Titled tiles side by side: tensors are maps, each on its own scale, anything else (PIL, arrays) is an image."""
    validate.at_least("the number of tiles", len(tiles), 1)
    validate.at_least("columns", columns, 1)
    drawn = [scale_map(tile) if isinstance(tile, Tensor) else read_photo(tile) for _, tile in tiles]
    columns = min(columns, len(tiles))
    rows = -(-len(tiles) // columns)
    tall = max(tile_height(each, 2.9) for each in drawn) + 0.3
    dots = max(dots_per_inch(each, 2.9) for each in drawn)
    figure = Picture(3.0 * columns, rows * tall + (0.9 if title else 0.5), title, dots)
    for axes, (name, _), each in zip(make_tiles(figure, rows, columns), tiles, drawn, strict=False):
        draw_tile(axes, each, name)
    if any(isinstance(each, ScaledMap) for each in drawn):
        figure.supxlabel("each map on its own scale: full colour at its 99th percentile", fontsize=9)
    return figure


def write(figure: Figure, path: str | os.PathLike[str]) -> Path:
    """A whole .png (or .pdf, .svg where the path says so), or none; returns the path."""
    found = with_ending(path, *WRITTEN)
    ending = found.suffix[1:].lower()
    with replacing(found) as handle:
        if ending == "png":
            handle.write(to_png(figure))
        else:
            figure.savefig(handle, format=ending)
    return found


def overlay(shown: Array, drawn: ScaledMap) -> NDArray[np.uint8]:
    """The photo (H, W, 3), grey and faint, under the map in colour: RGB, (H, W, 3)."""
    if shown.shape[:2] != drawn.shape:
        raise ValueError(
            f"an image must have the height and width of its map, {drawn.shape}, got {shown.shape[:2]}; "
            "pass the picture as the model saw it, after resizing and cropping"
        )
    through = opacity(drawn)[..., None]
    mixed = (1 - through) * dim(shown, drawn.signed) + through * colour(drawn)
    found: NDArray[np.uint8] = np.rint(255 * mixed.clip(0, 1)).astype(np.uint8)
    return found


def opacity(drawn: ScaledMap) -> Array:
    """How much of the photo a map covers, in [0, 1]."""
    found: Array = np.abs(drawn.heat) ** 0.7
    return found


def colour(drawn: ScaledMap) -> Array:
    """A map in the colours of an overlay, (H, W, 3)."""
    lifted = np.sign(drawn.heat) * (_LIFT + (1 - _LIFT) * np.abs(drawn.heat))
    found: Array = colormaps[_COLOURS[drawn.signed]]((1 + lifted) / 2 if drawn.signed else lifted)[..., :3]
    return found


def dim(shown: Array, signed: bool) -> Array:
    """A photo as the backdrop of a map: grey, dark or, signed, bright."""
    low, high = _BACKDROP[signed]
    found: Array = low + (high - low) * np.repeat((shown @ _GREY)[..., None], 3, -1)
    return found


def read_photo(image: Any) -> Array:
    """An RGB or grey picture: PIL, an array (H, W, 3), (H, W), or a tensor (3, H, W); 8-bit or in [0, 1]."""
    if hasattr(image, "convert"):  # PIL, without importing it
        image = np.asarray(image.convert("RGB"))
    found = torch.as_tensor(np.array(image) if isinstance(image, np.ndarray) else image).detach().cpu()
    first = isinstance(image, Tensor)  # where each library keeps the channels
    if found.ndim == 2:
        found = found.unsqueeze(-1)
    elif found.ndim == 3 and found.shape[0] in (1, 3) and (first or found.shape[-1] not in (1, 3)):
        found = found.permute(1, 2, 0)
    if found.ndim != 3 or found.shape[-1] not in (1, 3):
        raise ValueError(
            f"an image must be (H, W, 3), (3, H, W) or (H, W), got {tuple(found.shape)}; convert it to RGB"
        )
    pixels: Array = found.double().numpy() / (255 if found.dtype == torch.uint8 else 1)
    low, high = float(pixels.min()), float(pixels.max())
    if not (low >= -0.01 and high <= 1.01):  # a little beyond, as undoing a normalisation leaves it; NaN is refused
        raise ValueError(
            f"an image must lie in [0, 1], got values from {low:.3g} to {high:.3g}; "
            "pass the photo itself, or undo the normalisation: x * std + mean"
        )
    return np.clip(np.broadcast_to(pixels, (*pixels.shape[:2], 3)), 0, 1)


def add_colour_bar(place: FigureBase, drawn: ScaledMap, axes: Axes) -> Colorbar:
    clipped = (np.abs(drawn.values) > drawn.top).any()
    beyond = ("both" if drawn.signed else "max") if clipped else "neither"
    bar = place.colorbar(axes.images[0], ax=[axes], extend=beyond, fraction=0.05, pad=0.02, shrink=0.9)
    between = " " if tile_height(drawn, 3.6) > 2 else "\n"  # a low tile has no room for a long line
    bar.set_label(f"{drawn.name}, summed{between}over channels", fontsize=9)
    bar.ax.tick_params(labelsize=8)
    bar.ax.yaxis.get_offset_text().set_horizontalalignment("left")  # its right end would lie on the map
    bar.outline.set_visible(False)
    return bar


def draw_tile(axes: Axes, tile: Tile, title: str) -> None:
    if isinstance(tile, ScaledMap):
        title += "" if tile.values.any() else " (all zero)"
        axes.imshow(tile.values, cmap=_COLOURS[tile.signed], vmin=tile.limits[0], vmax=tile.limits[1])
    else:
        axes.imshow(tile)
    axes.set_title(
        title, fontsize=10, y=1.0, parse_math=False
    )  # y: otherwise matplotlib measures the ticks, which nobody sees


def tile_height(tile: Tile, width: float) -> float:
    """In inches; long images get a margin instead of an endless figure."""
    high, wide = tile.shape[:2]
    return width * min(max(high / wide, 1 / 3), 2.0)


def dots_per_inch(tile: Tile, width: float) -> float:
    """Enough that a pixel of a large sparse map is not averaged away."""
    return min(max(1.2 * max(tile.shape[:2]) / width, 100.0), 300.0)


def compose(panels: Sequence[Panel], title: str = "") -> Picture:
    """One panel below the other, under a common title."""
    width, dots = max(each.width for each in panels), max(each.dots for each in panels)
    above = max(TITLE, 0.15 + 0.19 * (1 + _fill(title, width).count("\n")))
    fixed = len(panels) == 1 and panels[0].fixed
    figure = Picture(width, sum(each.height for each in panels) + above, title, dots, fixed)
    if len(panels) == 1:
        panels[0].draw(figure)
        if panels[0].html is not None:
            figure.html = f"<p>{escape(title)}</p>{panels[0].html}"
        return figure
    places = figure.subfigures(len(panels), 1, squeeze=False, height_ratios=[each.height for each in panels])
    for number, (panel, place) in enumerate(zip(panels, places.flat, strict=True), 1):
        place.suptitle(f"input {number} of {len(panels)}", fontsize=10)
        panel.draw(place)
    return figure


def _fill(title: str, width: float) -> str:
    """In lines that fit into so many inches: about eleven letters to each."""
    return fill(title, int(11 * width))


def _fix_places(figure: Picture, tiles: Sequence[Axes], bar: Colorbar | None, tall: float) -> None:
    """Put the tiles of a panel, and the colour bar of the middle one, where they belong."""
    wide, high = figure.get_size_inches()
    middle = len(tiles) // 2
    lefts = [0.1 + 3.7 * i + 0.85 * (i > middle) for i in range(len(tiles))]  # beside the map is its colour bar
    for left, axes in zip(lefts, tiles, strict=True):
        axes.set_position((left / wide, 0.1 / high, 3.6 / wide, tall / high))
    if bar is not None:
        left = lefts[middle] + 3.67
        bar.ax.set_position((left / wide, (0.1 + tall / 20) / high, 0.16 / wide, 0.9 * tall / high))


def make_tiles(place: FigureBase, rows: int, columns: int, widths: Sequence[float] | None = None) -> list[Axes]:
    """Axes without ticks or frame, row by row; `widths`: of the columns, relative to each other."""
    found = list(place.subplots(rows, columns, squeeze=False, width_ratios=widths).flat)
    for axes in found:
        axes.set_axis_off()
    return found


def scale_map(drawing: Any, signed: bool = False) -> ScaledMap:
    """A map (C, H, W) or (H, W) with its channels summed, in size or, signed, as they are."""
    found = to_array(drawing)
    if found.ndim not in (2, 3):
        raise ValueError(f"a map must be (C, H, W) or (H, W) to be drawn, got {found.shape}; take one image, map[i]")
    return sum_and_scale(found if found.ndim == 3 else found[None], (0,), signed)


def to_array(drawing: Any) -> Array:
    """A map as float64 on the CPU, where the smallest half-precision sums survive."""
    tensor = torch.as_tensor(drawing)
    if tensor.numel() == 0 or tensor.ndim == 0 or tensor.is_complex():
        raise ValueError(f"a map must hold real numbers to be drawn, got shape {tuple(tensor.shape)}, {tensor.dtype}")
    return np.asarray(tensor.double().numpy(force=True))


def sum_and_scale(found: Array, axes: tuple[int, ...], signed: bool) -> ScaledMap:
    """The sum over some axes, in size or, signed, as it is; what is not finite counts as zero."""
    bad = ~np.isfinite(found)
    if bad.any():
        _warn(f"map holds NaN or infinity in {bad.sum()} of {found.size} entries; they are drawn as zero")
        found = np.where(bad, 0.0, found)
    elif not found.any():
        _warn(ALL_ZERO)
    values: Array = (found if signed else np.abs(found)).sum(axis=axes)
    if signed and found.any() and not values.any():
        _warn("the channels of the map cancel in their signed sum; draw it with signed=False")
    sizes = np.abs(values)
    kept = sizes[sizes > 0]
    top = float(max(np.percentile(sizes, 99), np.percentile(kept, 90))) if kept.size else 0.0
    return ScaledMap(values, top, signed, folded=not signed and bool((found < 0).any()))


def _warn(text: str) -> None:
    warnings.warn(text, UserWarning, stacklevel=5)  # the caller of heat
