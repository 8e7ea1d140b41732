"""Rows of several data sets that grow on disk cell by cell, and a description of how each data set was measured.

Data sets may come in any order and in runs of their own; each is resumed with the settings it began with.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from moreaugrad.studies.resumable_csv import ResumableCsv, write_json
from moreaugrad.studies.summary import group_rows
from paper.data.records import format_value

CELL = ("dataset", "block", "method")
RUNS = "runs"  # beside the settings: when, where and by which command
Key = tuple[str, ...]


class RowFile:
    """OUT/<figure>_rows.csv, and OUT/<figure>.json with the settings and the runs of each data set."""

    def __init__(self, out: Path, figure: str, columns: tuple[str, ...]) -> None:
        hint = "name another --out, or start over with --restart"
        self.figure = figure
        self.description = out / f"{figure}.json"
        self.file = ResumableCsv(out / f"{figure}_rows.csv", columns, encode=format_value, decode=str, hint=hint)
        self.read = self.file.read

    def settings(self) -> dict[str, Any]:
        """The settings of each data set, and its runs."""
        return json.loads(self.description.read_text(encoding="utf-8")) if self.description.is_file() else {}

    def describe(self, asked: Mapping[str, Mapping[str, Any]], run: Mapping[str, Any]) -> None:
        """Add data sets, and this run to those that it resumes; other settings for one are refused."""
        known = self.settings()
        for dataset, given in json.loads(json.dumps(asked)).items():
            there = known.setdefault(dataset, given)
            there.setdefault(RUNS, []).append(dict(run))
            for name in {**given, **there}:
                if name != RUNS and given.get(name) != there.get(name):
                    raise ValueError(
                        f"the rows of {dataset} go on with what they began with, got {name} = {given.get(name)!r} "
                        f"where {self.description} has {there.get(name)!r}; take that, name another --out, or start "
                        "over with --restart"
                    )
        self.description.parent.mkdir(parents=True, exist_ok=True)
        write_json(self.description, known)

    def restart(self, datasets: Iterable[str]) -> None:
        """Forget some data sets; the rows of the others stay."""
        left = {name: given for name, given in self.settings().items() if name not in set(datasets)}
        kept = [row for row in self.read() if row["dataset"] in left] if left else []
        self.description.parent.mkdir(parents=True, exist_ok=True)
        self.file.rewrite(kept)
        write_json(self.description, left)

    def resume(self, sizes: Mapping[Key, int]) -> set[Key]:
        """The cells that are whole; the file then holds just their rows.

        `sizes`: the number of rows of each planned cell. A data set that is not planned now stays as it is.
        """
        planned = {cell[0] for cell in sizes}
        cells = group_rows(self.read(), CELL)
        whole = {cell: rows for cell, rows in cells.items() if cell[0] not in planned or len(rows) == sizes.get(cell)}
        self.file.rewrite(row for rows in whole.values() for row in rows)
        return set(whole)

    def measure(
        self, sizes: Mapping[Key, int], measure: Callable[[Key], Iterable[Mapping[str, Any]]], until: float | None
    ) -> bool:
        """Measure the planned cells that are not there; False: time.monotonic() passed `until` before the last.

        Every run makes progress: its first cell is measured however late it is.
        """
        done = self.resume(sizes)
        for number, cell in enumerate(cell for cell in sizes if cell not in done):
            if number and until is not None and time.monotonic() >= until:
                return False
            self.file.append(measure(cell))
        return True
