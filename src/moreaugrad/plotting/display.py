"""Where figures appear: in a notebook, in a window, or in a file that is no photo."""

from __future__ import annotations

import os
import sys
from collections.abc import Collection
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from typing import Any, Protocol

from moreaugrad.files import with_ending

WRITTEN = (".png", ".pdf", ".svg")
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


def _find_cell() -> object:
    """The running cell of a notebook; None in scripts and terminals."""
    ipython: Any = sys.modules.get("IPython")
    shell = None if ipython is None else ipython.get_ipython()
    return None if shell is None or not hasattr(shell, "kernel") else (id(shell), shell.execution_count)


def _opens_windows(backend: str) -> bool:
    from matplotlib.backends.registry import BackendFilter, backend_registry

    return backend.lower() not in backend_registry.list_builtin(BackendFilter.NON_INTERACTIVE)  # type: ignore[no-untyped-call]
