"""Maps as pictures: heat, overlay, panels side by side. Matplotlib is loaded by the first picture.

A map is drawn as the sum of its absolute values over the channels, or, signed, as their plain sum in red
(above zero) and blue (below). Scales are linear, zero has the colour of zero, and full colour is at the
99th percentile (`planes.Plane` says which); beyond it colours are clipped.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from moreaugrad import validate
from moreaugrad.files import replacing, with_ending
from moreaugrad.plotting import planes
from moreaugrad.plotting.planes import Array, Plane

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_COLOURS = {False: "inferno", True: "RdBu_r"}  # by signed
_UNITS = {False: "|map|, summed over channels", True: "map, summed over channels"}
_BACKDROP = {False: (0.0, 0.5), True: (0.5, 1.0)}  # range of the grey photo under an overlay: dark, signed bright
_LIFT = 0.3  # where the colours of an overlay begin: what is kept is never black
_GREY = np.array([0.299, 0.587, 0.114])


def heat(map: Any, scale: float | None = None, signed: bool = False) -> Array:
    """A map (C, H, W) or (H, W) as (H, W) in [0, 1], signed in [-1, 1]; `scale` is the size that gives 1."""
    return planes.plane(map, scale, signed).heat


def scale_of(*maps: Any, signed: bool = False) -> float:
    """One scale for maps of the same units: the largest of their own; 1 where all are zero."""
    return max((planes.plane(each, None, signed).top for each in maps), default=0.0) or 1.0


def overlay(image: Any, map: Any, scale: float | None = None, signed: bool = False) -> NDArray[np.uint8]:
    """The photo, grey and faint, under the map in colour: RGB, (H, W, 3)."""
    return _overlaid(planes.photo(image), planes.plane(map, scale, signed))


def show_map_on_image(image: Any, mask: Any, image_weight: float = 0.5) -> NDArray[np.uint8]:
    """image_weight * image + (1 - image_weight) * colours of the mask, both in [0, 1]; RGB, (H, W, 3)."""
    validate.not_negative("image_weight", image_weight)
    if image_weight > 1:
        raise ValueError(f"image_weight must be in [0, 1], the share of the image, got {image_weight!r}")
    shown, values = planes.photo(image), planes.mask(mask)
    planes.same_size(shown, values.shape)
    return _bytes(image_weight * shown + (1 - image_weight) * _coloured(values, signed=False))


def panel(image: Any, map: Any, title: str = "", signed: bool = False) -> Figure:
    """Input, map with a colour bar in its own units, and overlay; without an image the map alone."""
    from moreaugrad.plotting.figure import Picture

    drawn = planes.plane(map, None, signed)
    tiles: list[tuple[str, Plane | NDArray[Any]]] = [("map", drawn)]
    if image is not None:
        shown = planes.photo(image)
        tiles = [("input", shown), *tiles, ("overlay", _overlaid(shown, drawn))]
    figure = Picture(3.7 * len(tiles) + 0.9, _height(drawn, 3.6) + 0.8, title, _dots(drawn, 3.6))
    places = figure.tiles(1, len(tiles))
    for axes, (name, tile) in zip(places, tiles, strict=True):
        _draw(axes, tile, name)
    if drawn.top:
        _bar(figure, drawn, [places[len(places) // 2]])
    return figure


def grid(
    tiles: Sequence[tuple[str, Any]], columns: int = 4, shared: bool = False, signed: bool = False, title: str = ""
) -> Figure:
    """Titled tiles side by side: tensors are maps, anything else (PIL, arrays) is an image.

    Each map has its own scale, or all have one (`shared`, for equal units) and a colour bar.
    """
    from moreaugrad.plotting.figure import Picture

    validate.at_least("the number of tiles", len(tiles), 1)
    validate.at_least("columns", columns, 1)
    drawn = [planes.plane(tile, None, signed) if isinstance(tile, Tensor) else planes.photo(tile) for _, tile in tiles]
    top = max((each.top for each in drawn if isinstance(each, Plane)), default=0.0)
    if shared:
        drawn = [replace(each, top=top) if isinstance(each, Plane) else each for each in drawn]
    columns = min(columns, len(tiles))
    rows = -(-len(tiles) // columns)
    tall = max(_height(each, 2.9) for each in drawn) + 0.3
    size = 3.0 * columns + (0.9 if shared else 0), rows * tall + (0.9 if title else 0.5)
    figure = Picture(*size, title, max(_dots(each, 2.9) for each in drawn))
    places = figure.tiles(rows, columns)
    for axes, (name, _), each in zip(places, tiles, drawn, strict=False):
        _draw(axes, each, name)
    _caption(figure, drawn, shared, places)
    return figure


def bars(map: Any, title: str = "", signed: bool = False) -> Figure:
    """A map without pixels, (D,) or (T, ...): one bar per position, in units of the map."""
    from moreaugrad.plotting.figure import Picture

    values = planes.row(map, signed).values
    figure = Picture(9.0, 3.2, title)
    axes = figure.subplots()
    edges = np.arange(values.size + 1) - 0.5
    for part, colour in ((values.clip(min=0), "tab:red"), (values.clip(max=0), "tab:blue")):
        axes.stairs(part, edges, fill=True, color=colour)  # one patch, however many bars
    axes.axhline(0, color="black", linewidth=0.8)
    axes.set(xlabel="position", ylabel="map" if signed else "|map|", xlim=(edges[0], edges[-1]))
    axes.spines[["top", "right"]].set_visible(False)
    return figure


def write(figure: Figure, path: str | os.PathLike[str]) -> Path:
    """A whole .png (or .pdf, .svg where the path says so), or none; returns the path."""
    found = with_ending(path, ".png", ".pdf", ".svg")
    with replacing(found) as handle:
        figure.savefig(handle, format=found.suffix[1:].lower())
    return found


def _overlaid(shown: Array, drawn: Plane) -> NDArray[np.uint8]:
    planes.same_size(shown, drawn.values.shape)
    opacity = (np.abs(drawn.heat) ** 0.7)[..., None]
    low, high = _BACKDROP[drawn.signed]
    backdrop = low + (high - low) * (shown @ _GREY)[..., None]
    return _bytes((1 - opacity) * backdrop + opacity * _coloured(drawn.heat, drawn.signed, _LIFT))


def _coloured(values: Array, signed: bool, lift: float = 0.0) -> Array:
    from matplotlib import colormaps

    lifted = np.sign(values) * (lift + (1 - lift) * np.abs(values))
    found: Array = colormaps[_COLOURS[signed]]((1 + lifted) / 2 if signed else lifted)[..., :3]
    return found


def _bytes(colours: Array) -> NDArray[np.uint8]:
    found: NDArray[np.uint8] = np.rint(255 * colours.clip(0, 1)).astype(np.uint8)
    return found


def _size(drawn: Plane | NDArray[Any]) -> tuple[int, int]:
    high, wide = (drawn.values if isinstance(drawn, Plane) else drawn).shape[:2]
    return high, wide


def _height(drawn: Plane | NDArray[Any], width: float) -> float:
    """Of a tile in inches; long images get a margin instead of an endless figure."""
    high, wide = _size(drawn)
    return width * min(max(high / wide, 1 / 3), 2.0)


def _dots(drawn: Plane | NDArray[Any], width: float) -> float:
    """Dots per inch: a pixel of a large sparse map must not be averaged away."""
    return min(max(1.2 * max(_size(drawn)) / width, 100.0), 300.0)


def _draw(axes: Axes, drawn: Plane | NDArray[Any], title: str) -> None:
    if isinstance(drawn, Plane):
        title += "" if drawn.values.any() else " (all zero)"
        low, high = _limits(drawn)
        axes.imshow(drawn.values, cmap=_COLOURS[drawn.signed], vmin=low, vmax=high)
    else:
        axes.imshow(drawn)
    axes.set_title(title, fontsize=10)


def _limits(drawn: Plane) -> tuple[float, float]:
    top = drawn.top or 1.0
    return (-top if drawn.signed else 0.0, top)


def _bar(figure: Figure, drawn: Plane, places: list[Axes]) -> None:
    from matplotlib.cm import ScalarMappable
    from matplotlib.colors import Normalize

    colours = ScalarMappable(Normalize(*_limits(drawn)), _COLOURS[drawn.signed])
    beyond = ("both" if drawn.signed else "max") if drawn.clipped else "neither"
    bar = figure.colorbar(colours, ax=places, extend=beyond, fraction=0.05, pad=0.02, shrink=0.9)
    bar.set_label(_UNITS[drawn.signed], fontsize=9)
    bar.ax.tick_params(labelsize=8)
    bar.outline.set_visible(False)


def _caption(figure: Figure, drawn: Sequence[Plane | NDArray[Any]], shared: bool, places: list[Axes]) -> None:
    maps = [each for each in drawn if isinstance(each, Plane)]
    if not maps:
        return
    own = "each map on its own scale: full colour at its 99th percentile"
    figure.supxlabel("all maps on one scale" if shared else own, fontsize=9)
    if shared:
        _bar(figure, max(maps, key=lambda each: each.clipped), places)
