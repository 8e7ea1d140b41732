"""Stores the outputs of the notebooks whose packages the site can do without: make stored-notebooks"""

from __future__ import annotations

import sys
from pathlib import Path

import jupytext
import nbformat
from nbclient import NotebookClient

FOLDER = Path(__file__).parents[1] / "docs" / "notebooks"
KEPT = ("kernelspec", "moreaugrad")


def main(names: list[str]) -> None:
    for script in sorted(FOLDER.glob("*.py")):
        found = jupytext.read(script, fmt="py:percent")
        if "moreaugrad" not in found.metadata or (names and script.stem not in names):
            continue
        NotebookClient(found, timeout=300, resources={"metadata": {"path": str(FOLDER)}}).execute()
        for number, cell in enumerate(found.cells):
            cell.id, cell.metadata = f"cell-{number}", {}  # the same bytes for the same outputs
        found.metadata = {name: value for name, value in found.metadata.items() if name in KEPT}
        nbformat.write(found, FOLDER / "stored" / f"{script.stem}.ipynb")
        sys.stdout.write(f"{script.stem}\n")


if __name__ == "__main__":
    main(sys.argv[1:])
