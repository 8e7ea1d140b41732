"""Maps as pictures: heat, overlay, panels side by side.

A map is drawn as the sum of its absolute values over the channels, or, signed, as their plain sum in red
(above zero) and blue (below). Scales are linear, zero has the colour of zero, and full colour is at the
99th percentile (`ScaledMap` says which); beyond it colours are clipped.
"""

from __future__ import annotations

import json
import os
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from textwrap import fill, wrap
from typing import Any, TypeAlias

import numpy as np
import torch
from matplotlib import colormaps
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.layout_engine import ConstrainedLayoutEngine
from numpy.typing import NDArray
from PIL import Image
from PIL.PngImagePlugin import PngInfo
from torch import Tensor

from moreaugrad import validate
from moreaugrad.files import replacing, with_ending

Array: TypeAlias = NDArray[np.float64]

ALL_ZERO = (
    "map is all zero: eta is above every gradient entry; lower it or use sparsity= "
    "(without a prior: the score does not change with the input)"
)
_COLOURS = {False: "inferno", True: "RdBu_r"}  # by signed
_BACKDROP = {False: (0.0, 0.5), True: (0.5, 1.0)}  # range of the grey photo under an overlay: dark, signed bright
TILES = "Tiles"  # the text in a .png that says where its tiles are: name -> left, top, right, bottom in pixels
_LIFT = 0.3  # where the colours of an overlay begin: what is kept is never black
_GREY = np.array([0.299, 0.587, 0.114])


@dataclass(frozen=True, slots=True)
class ScaledMap:
    """One number per pixel, and the size that gets full colour.

    That size is the 99th percentile of all pixels, or the 90th of those that are not zero where that is
    larger: in a very sparse map the first is zero, or paints nearly all that was kept in one colour.
    """

    values: Array
    top: float  # 0 for a map of zeros
    signed: bool

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

    def __init__(self, width: float, height: float, title: str = "", dots: float = 100.0, fixed: bool = False) -> None:
        layout = None if fixed else ConstrainedLayoutEngine(h_pad=0.08, w_pad=0.06)
        super().__init__(figsize=(width, height), dpi=dots, facecolor="white", layout=layout)
        if title:
            top = {"y": 1 - 0.08 / height} if fixed else {}
            self.suptitle(fill(title, int(11 * width)), fontsize=11, **top)  # about eleven letters to the inch

    def tiles(self, rows: int, columns: int) -> list[Axes]:
        """Axes without ticks or frame, row by row."""
        found = list(self.subplots(rows, columns, squeeze=False).flat)
        for axes in found:
            axes.set_axis_off()
        return found

    def place(self, left: float, bottom: float, width: float, height: float) -> Axes:
        """Axes at a place given in inches."""
        across, up = self.get_size_inches()
        return self.add_axes((left / across, bottom / up, width / across, height / up))

    def add_colour_bar(self, drawn: ScaledMap, axes: Axes, place: Axes) -> None:
        clipped = (np.abs(drawn.values) > drawn.top).any()
        beyond = ("both" if drawn.signed else "max") if clipped else "neither"
        bar = self.colorbar(axes.images[0], cax=place, extend=beyond)
        bar.set_label("map, summed over channels" if drawn.signed else "|map|, summed over channels", fontsize=9)
        bar.ax.tick_params(labelsize=8)
        bar.outline.set_visible(False)

    def _repr_png_(self) -> bytes:
        return to_png(self)


def heat(map: Any, signed: bool = False) -> Array:
    """A map (C, H, W) or (H, W) as (H, W) in [0, 1], signed in [-1, 1]."""
    return scale_map(map, signed).heat


def panel(image: Any, map: Any, title: str = "", signed: bool = False) -> Figure:
    """Input, map with a colour bar in its own units, and overlay; without an image the map alone."""
    drawn = scale_map(map, signed)
    tiles: list[tuple[str, Tile]] = [("map", drawn)]
    if image is not None:
        shown = read_photo(image)
        tiles = [("input", shown), *tiles, ("overlay", overlay(shown, drawn))]
    tall, side = _tile_height(drawn, 3.6), 3.7
    wide = side * len(tiles) + 0.9
    lines = len(wrap(title, int(11 * wide)))
    figure = Picture(wide, tall + 0.45 + 0.19 * lines, title, _dots_per_inch(drawn, 3.6), fixed=True)
    lefts = [0.1 + side * place + 0.85 * (place > len(tiles) // 2) for place in range(len(tiles))]  # after the bar
    for left, (name, tile) in zip(lefts, tiles, strict=True):
        axes = figure.place(left, 0.1, 3.6, tall)
        axes.set_axis_off()
        draw_tile(axes, tile, name)
    if drawn.top:
        middle = len(tiles) // 2
        bar = figure.place(lefts[middle] + 3.67, 0.1 + tall / 20, 0.16, 0.9 * tall)
        figure.add_colour_bar(drawn, figure.axes[middle], bar)
    return figure


def grid(tiles: Sequence[tuple[str, Any]], columns: int = 4, title: str = "") -> Figure:
    """Titled tiles side by side: tensors are maps, each on its own scale, anything else (PIL, arrays) is an image."""
    validate.at_least("the number of tiles", len(tiles), 1)
    validate.at_least("columns", columns, 1)
    drawn = [scale_map(tile) if isinstance(tile, Tensor) else read_photo(tile) for _, tile in tiles]
    columns = min(columns, len(tiles))
    rows = -(-len(tiles) // columns)
    tall = max(_tile_height(each, 2.9) for each in drawn) + 0.3
    dots = max(_dots_per_inch(each, 2.9) for each in drawn)
    figure = Picture(3.0 * columns, rows * tall + (0.9 if title else 0.5), title, dots)
    for axes, (name, _), each in zip(figure.tiles(rows, columns), tiles, drawn, strict=False):
        draw_tile(axes, each, name)
    if any(isinstance(each, ScaledMap) for each in drawn):
        figure.supxlabel("each map on its own scale: full colour at its 99th percentile", fontsize=9)
    return figure


def bars(map: Any, title: str = "", signed: bool = False) -> Figure:
    """A map without pixels, (D,) or (T, ...): one bar per position, in units of the map."""
    found = _to_array(map)
    values = _scale(found, tuple(range(1, found.ndim)), signed).values
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
    ending = found.suffix[1:].lower()
    with replacing(found) as handle:
        if ending == "png":
            handle.write(to_png(figure))
        else:
            figure.savefig(handle, format=ending)
    return found


def to_png(figure: Figure) -> bytes:
    """The bytes of a .png file. Drawn once, where `savefig` draws twice, and packed in a third of its time."""
    canvas = FigureCanvasAgg(figure)
    canvas.draw()  # type: ignore[no-untyped-call]
    pixels = np.asarray(canvas.buffer_rgba())[..., :3]  # type: ignore[no-untyped-call]
    high, wide = pixels.shape[:2]
    tiles = {axes.get_title(): axes.get_position() for axes in figure.axes if axes.images}
    boxes = {name: [at.x0 * wide, (1 - at.y1) * high, at.x1 * wide, (1 - at.y0) * high] for name, at in tiles.items()}
    text = PngInfo()
    text.add_text(TILES, json.dumps({name: [round(side) for side in box] for name, box in boxes.items()}))
    stored = BytesIO()
    Image.fromarray(pixels).save(stored, "png", compress_level=1, dpi=(figure.dpi, figure.dpi), pnginfo=text)
    return stored.getvalue()


def overlay(shown: Array, drawn: ScaledMap) -> NDArray[np.uint8]:
    """The photo (H, W, 3), grey and faint, under the map in colour: RGB, (H, W, 3)."""
    if shown.shape[:2] != drawn.shape:
        raise ValueError(
            f"an image must have the height and width of its map, {drawn.shape}, got {shown.shape[:2]}; "
            "pass the picture as the model saw it, after resizing and cropping"
        )
    opacity = (np.abs(drawn.heat) ** 0.7)[..., None]
    low, high = _BACKDROP[drawn.signed]
    backdrop = low + (high - low) * (shown @ _GREY)[..., None]
    lifted = np.sign(drawn.heat) * (_LIFT + (1 - _LIFT) * np.abs(drawn.heat))
    colours = colormaps[_COLOURS[drawn.signed]]((1 + lifted) / 2 if drawn.signed else lifted)[..., :3]
    mixed = (1 - opacity) * backdrop + opacity * colours
    found: NDArray[np.uint8] = np.rint(255 * mixed.clip(0, 1)).astype(np.uint8)
    return found


def scale_map(drawing: Any, signed: bool = False) -> ScaledMap:
    """A map (C, H, W) or (H, W) with its channels summed, in size or, signed, as they are."""
    found = _to_array(drawing)
    if found.ndim not in (2, 3):
        raise ValueError(f"a map must be (C, H, W) or (H, W) to be drawn, got {found.shape}; take one image, map[i]")
    return _scale(found if found.ndim == 3 else found[None], (0,), signed)


def _to_array(drawing: Any) -> Array:
    """As float64 on the CPU, where the smallest half-precision sums survive."""
    tensor = torch.as_tensor(drawing)
    if tensor.numel() == 0 or tensor.ndim == 0 or tensor.is_complex():
        raise ValueError(f"a map must hold real numbers to be drawn, got shape {tuple(tensor.shape)}, {tensor.dtype}")
    return np.asarray(tensor.double().numpy(force=True))


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


def _scale(found: Array, axes: tuple[int, ...], signed: bool) -> ScaledMap:
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
    return ScaledMap(values, top, signed)


def _warn(text: str) -> None:
    warnings.warn(text, UserWarning, stacklevel=5)  # the caller of heat


def draw_tile(axes: Axes, tile: Tile, title: str) -> None:
    if isinstance(tile, ScaledMap):
        title += "" if tile.values.any() else " (all zero)"
        axes.imshow(tile.values, cmap=_COLOURS[tile.signed], vmin=tile.limits[0], vmax=tile.limits[1])
    else:
        axes.imshow(tile)
    axes.set_title(title, fontsize=10, y=1.0)  # y: without it matplotlib measures all ticks, which nobody sees


def _tile_height(tile: Tile, width: float) -> float:
    """In inches; long images get a margin instead of an endless figure."""
    high, wide = tile.shape[:2]
    return width * min(max(high / wide, 1 / 3), 2.0)


def _dots_per_inch(tile: Tile, width: float) -> float:
    """Enough that a pixel of a large sparse map is not averaged away."""
    return min(max(1.2 * max(tile.shape[:2]) / width, 100.0), 300.0)
