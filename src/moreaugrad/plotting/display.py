"""Where figures appear: in a notebook, in a window, or in a file that is no photo."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Collection
from contextlib import suppress
from importlib import import_module
from io import BytesIO
from pathlib import Path
from typing import Any, Protocol

from moreaugrad.files import with_ending

WRITTEN = (".png", ".pdf", ".svg")
TILES = "Tiles"
_PHOTOS = frozenset({".jpg", ".jpeg", ".webp", ".gif", ".tif", ".tiff", ".bmp"})  # kinds that are not written


class Displayed(Protocol):
    """A figure that knows where it was shown; pictures.Picture is one."""

    html: str | None
    displayed: object

    def _repr_png_(self) -> bytes: ...


def present(figure: Displayed) -> None:
    """Show a figure where there is a place for it: in a notebook at once, in a window at the next `plt.show()`.

    Elsewhere nothing happens: pyplot would keep the figure for ever.
    """
    if _find_cell() is not None:
        show_in_notebook(figure)
        return
    pyplot: Any = sys.modules.get("matplotlib.pyplot")
    if pyplot is not None and _opens_windows(pyplot.get_backend()):
        with suppress(ImportError):  # windows were asked for where there is no screen
            pyplot.figure(FigureClass=lambda **_: figure)  # hands over a figure that is there already


def show_in_notebook(figure: Displayed) -> None:
    """Once in each cell: by `show`, or as the last expression, but not by both."""
    cell = _find_cell()
    if cell is None or cell != figure.displayed:
        figure.displayed = cell
        rich: Any = import_module("IPython.display")
        rich.display(rich.Image(figure._repr_png_()) if figure.html is None else rich.HTML(figure.html))


def check_path(path: Any, photos: Collection[Path | None]) -> Path:
    """Where to write a figure, unless that would destroy one of these photos, or is itself meant as a photo."""
    if not isinstance(path, str | os.PathLike):
        raise TypeError(f"path must be the file to write, got {type(path).__name__}; pass a picture as image=")
    file = with_ending(path, *WRITTEN)
    if Path(path).suffix.lower() in _PHOTOS or file.resolve() in photos:
        raise ValueError(
            f"path must be a new .png, .pdf or .svg file to write, got {str(path)!r}; show() draws the photo that was "
            "explained, show(image=...) another one"
        )
    return file


def to_png(figure: Any) -> bytes:
    """A figure as a .png file. Drawn once, where `savefig` draws twice, and packed in a third of its time.

    The text `TILES` in it says where each tile is: title -> left, top, right, bottom in pixels.
    """
    import numpy as np
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from PIL import Image
    from PIL.PngImagePlugin import PngInfo

    before = figure.canvas  # that of a window, perhaps
    canvas: Any = FigureCanvasAgg(figure)
    try:
        canvas.draw()
        pixels = np.asarray(canvas.buffer_rgba())[..., :3].copy()
        tiles = {axes.get_title(): axes.get_position() for axes in figure.axes if axes.images}
    finally:
        figure.set_canvas(before)
    high, wide = pixels.shape[:2]
    boxes = {name: (at.x0 * wide, (1 - at.y1) * high, at.x1 * wide, (1 - at.y0) * high) for name, at in tiles.items()}
    text = PngInfo()
    text.add_text(TILES, json.dumps({name: list(map(round, box)) for name, box in boxes.items()}))
    stored = BytesIO()
    Image.fromarray(pixels).save(stored, "png", compress_level=1, dpi=(figure.dpi, figure.dpi), pnginfo=text)
    return stored.getvalue()


def _find_cell() -> object:
    """The running cell of a notebook; None in scripts and terminals."""
    ipython: Any = sys.modules.get("IPython")
    shell = None if ipython is None else ipython.get_ipython()
    return None if shell is None or not hasattr(shell, "kernel") else (id(shell), shell.execution_count)


def _opens_windows(backend: str) -> bool:
    from matplotlib.backends.registry import BackendFilter, backend_registry

    return backend.lower() not in backend_registry.list_builtin(BackendFilter.NON_INTERACTIVE)  # type: ignore[no-untyped-call]
