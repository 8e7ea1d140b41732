"""Maps as pictures: heat, overlay, panels side by side.

A map is drawn as the sum of its absolute values over the channels, or, signed, as their plain sum in red
(above zero) and blue (below). Scales are linear, zero has the colour of zero, and full colour is at the
99th percentile (`ScaledMap` says which); beyond it colours are clipped.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import torch
from matplotlib import colormaps
from matplotlib.axes import Axes
from matplotlib.figure import Figure, FigureBase
from numpy.typing import NDArray
from torch import Tensor

from moreaugrad import validate
from moreaugrad.files import replacing, with_ending
from moreaugrad.plotting.figures import TITLE, Panel, Picture, compose, make_tiles
from moreaugrad.plotting.scales import Array, ScaledMap, scale_map

_COLOURS = {False: "inferno", True: "RdBu_r"}  # by signed
_BACKDROP = {False: (0.0, 0.5), True: (0.5, 1.0)}  # range of the grey photo under an overlay: dark, signed bright
_LIFT = 0.3  # where the colours of an overlay begin: what is kept is never black
_GREY = np.array([0.299, 0.587, 0.114])

Tile: TypeAlias = ScaledMap | NDArray[Any]  # a map, or a photo (H, W, 3)


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
        if drawn.top:
            add_colour_bar(place, drawn, places[len(places) // 2])

    return Panel(3.7 * len(tiles) + 0.9, tile_height(drawn, 3.6) + 0.8 - TITLE, draw, dots_per_inch(drawn, 3.6))


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
    found = with_ending(path, ".png", ".pdf", ".svg")
    with replacing(found) as handle:
        figure.savefig(handle, format=found.suffix[1:].lower())
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


def add_colour_bar(place: FigureBase, drawn: ScaledMap, axes: Axes) -> None:
    clipped = (np.abs(drawn.values) > drawn.top).any()
    beyond = ("both" if drawn.signed else "max") if clipped else "neither"
    bar = place.colorbar(axes.images[0], ax=[axes], extend=beyond, fraction=0.05, pad=0.02, shrink=0.9)
    bar.set_label("map, summed over channels" if drawn.signed else "|map|, summed over channels", fontsize=9)
    bar.ax.tick_params(labelsize=8)
    bar.outline.set_visible(False)


def draw_tile(axes: Axes, tile: Tile, title: str) -> None:
    if isinstance(tile, ScaledMap):
        title += "" if tile.values.any() else " (all zero)"
        axes.imshow(tile.values, cmap=_COLOURS[tile.signed], vmin=tile.limits[0], vmax=tile.limits[1])
    else:
        axes.imshow(tile)
    axes.set_title(title, fontsize=10)


def tile_height(tile: Tile, width: float) -> float:
    """In inches; long images get a margin instead of an endless figure."""
    high, wide = tile.shape[:2]
    return width * min(max(high / wide, 1 / 3), 2.0)


def dots_per_inch(tile: Tile, width: float) -> float:
    """Enough that a pixel of a large sparse map is not averaged away."""
    return min(max(1.2 * max(tile.shape[:2]) / width, 100.0), 300.0)
