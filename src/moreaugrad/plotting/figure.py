"""The figure that every picture is drawn on; the one module here that imports matplotlib."""

from __future__ import annotations

from io import BytesIO
from textwrap import fill

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.layout_engine import ConstrainedLayoutEngine


class Picture(Figure):
    """A figure outside pyplot: no global state, nothing to close, and a notebook shows it all the same."""

    def __init__(self, width: float, height: float, title: str = "", dots: float = 100.0) -> None:
        layout = ConstrainedLayoutEngine(h_pad=0.08, w_pad=0.06)
        super().__init__(figsize=(width, height), dpi=dots, facecolor="white", layout=layout)
        if title:
            self.suptitle(fill(title, int(11 * width)), fontsize=11)  # about eleven letters to the inch

    def tiles(self, rows: int, columns: int) -> list[Axes]:
        """Axes without ticks or frame, row by row."""
        found = list(self.subplots(rows, columns, squeeze=False).flat)
        for axes in found:
            axes.set_axis_off()
        return found

    def _repr_png_(self) -> bytes:
        stored = BytesIO()
        self.savefig(stored, format="png")
        return stored.getvalue()
