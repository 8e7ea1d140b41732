"""Figures: made outside pyplot, composed of panels, shown where the user looks: a notebook, a window, a file."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from html import escape
from importlib import import_module
from io import BytesIO
from pathlib import Path
from textwrap import fill
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure, FigureBase
from matplotlib.layout_engine import ConstrainedLayoutEngine

TITLE = 0.5  # inches
_PHOTOS = frozenset({".jpg", ".jpeg", ".webp", ".gif", ".tif", ".tiff", ".bmp"})  # kinds that are not written


class Picture(Figure):
    """A figure outside pyplot: no global state, nothing to close, and a notebook shows it all the same."""

    html: str | None = None  # what a notebook shows instead of the pixels
    displayed: object = None  # the notebook cell that shows it already

    def __init__(self, width: float, height: float, title: str = "", dots: float = 100.0) -> None:
        layout = ConstrainedLayoutEngine(h_pad=0.08, w_pad=0.06)
        super().__init__(figsize=(width, height), dpi=dots, facecolor="white", layout=layout)
        if title:  # about eleven letters to the inch; a dollar sign in the name of a class is no formula
            self.suptitle(fill(title, int(11 * width)), fontsize=11, parse_math=False)

    def _repr_png_(self) -> bytes:
        stored = BytesIO()
        self.savefig(stored, format="png")
        return stored.getvalue()

    def _ipython_display_(self) -> None:
        """Once in each cell: by `show`, or as the last expression, but not by both."""
        cell = _find_cell()
        if cell is None or cell != self.displayed:
            self.displayed = cell
            rich: Any = import_module("IPython.display")
            rich.display(rich.Image(self._repr_png_()) if self.html is None else rich.HTML(self.html))


@dataclass(frozen=True, eq=False)
class Panel:
    """A part of a figure: its size in inches, its resolution, and how it is drawn."""

    width: float
    height: float
    draw: Callable[[FigureBase], None]
    dots: float = 100.0
    html: str | None = None  # the same for a notebook, where that reads better than pixels


def compose(panels: Sequence[Panel], title: str = "") -> Picture:
    """One panel below the other, under a common title."""
    width, dots = max(each.width for each in panels), max(each.dots for each in panels)
    figure = Picture(width, sum(each.height for each in panels) + TITLE, title, dots)
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


def make_tiles(place: FigureBase, rows: int, columns: int, widths: Sequence[float] | None = None) -> list[Axes]:
    """Axes without ticks or frame, row by row; `widths`: of the columns, relative to each other."""
    found = list(place.subplots(rows, columns, squeeze=False, width_ratios=widths).flat)
    for axes in found:
        axes.set_axis_off()
    return found


def present(figure: Picture) -> None:
    """Show a figure where there is a place for it: in a notebook at once, in a window at the next `plt.show()`.

    Elsewhere nothing happens: pyplot would keep the figure for ever.
    """
    if _find_cell() is not None:
        figure._ipython_display_()
        return
    pyplot: Any = sys.modules.get("matplotlib.pyplot")
    if pyplot is not None and _opens_windows(pyplot.get_backend()):
        pyplot.figure(FigureClass=lambda **_: figure)  # hands over a figure that is there already


def check_path(path: Any, photos: Collection[Path | None]) -> Path:
    """Where to write a figure, unless that would destroy one of these photos, or is itself meant as a photo."""
    if not isinstance(path, str | os.PathLike):
        raise TypeError(f"path must be the file to write, got {type(path).__name__}; pass a picture as image=")
    file = Path(path)
    if file.suffix.lower() in _PHOTOS or file.resolve() in photos:
        raise ValueError(
            f"path must be a new .png, .pdf or .svg file to write, got {str(file)!r}; show() draws the photo that was "
            "explained, show(image=...) another one"
        )
    return file


def _find_cell() -> object:
    """The running cell of a notebook; None in scripts and terminals."""
    ipython: Any = sys.modules.get("IPython")
    shell = None if ipython is None else ipython.get_ipython()
    return None if shell is None or not hasattr(shell, "kernel") else (id(shell), shell.execution_count)


def _opens_windows(backend: str) -> bool:
    from matplotlib.backends.registry import BackendFilter, backend_registry

    return backend.lower() not in backend_registry.list_builtin(BackendFilter.NON_INTERACTIVE)  # type: ignore[no-untyped-call]
