"""Reads the notebooks of the site, which are scripts; one whose packages are missing keeps its stored outputs."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

import jupytext
import nbformat
from nbformat import NotebookNode

STORED = Path(__file__).parents[1] / "notebooks" / "stored"


def read(text: str) -> NotebookNode:
    """The notebook of a script in the percent format.

    Its header may say `jupyter: moreaugrad: {name: ..., needs: [package, ...]}`. Where one of these packages is
    missing, the notebook is not executed; its outputs come from notebooks/stored, and a note says so.
    """
    found = jupytext.reads(text, fmt="py:percent")
    own = found.metadata.get("moreaugrad", {})
    missing = [name for name in own.get("needs", ()) if find_spec(name) is None]
    if missing:
        found = nbformat.read(STORED / f"{own['name']}.ipynb", as_version=4)
        names = ", ".join(f"`{name}`" for name in missing)
        note = f":::{{note}}\nThe outputs here are stored ones. Missing where the site was made: {names}.\n:::"
        found.cells.insert(1, nbformat.v4.new_markdown_cell(note))
        found.metadata["mystnb"] = {"execution_mode": "off"}
        for cell in found.cells:
            cell.source = cell.source.replace("```console\n", "```sh\n")  # as conf.py does for other pages
    return found


def check_stored(folder: Path) -> None:
    """Raise where a notebook with packages of its own has no stored outputs, or those of another text."""
    for script in sorted(folder.glob("*.py")):
        now = jupytext.read(script, fmt="py:percent")
        own = now.metadata.get("moreaugrad")
        if own is None:
            continue
        stored = STORED / f"{own.get('name')}.ipynb"
        sources = [cell.source for cell in now.cells]
        if not stored.is_file() or [cell.source for cell in nbformat.read(stored, as_version=4).cells] != sources:
            raise ValueError(
                f"{script.name} needs packages that may be missing, so {stored.name} must have its cells and outputs "
                "as they are now; run: make stored-notebooks"
            )
