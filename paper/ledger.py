"""Rows that grow on disk cell by cell, and what they are rows of. A killed run loses the cell it was in.

Data sets may come in any order and in runs of their own; each must go on with what it began with.
"""

from __future__ import annotations

import csv
import io
import json
import os
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from paper import records

CELL = ("dataset", "block", "method")
RUNS = "runs"  # beside the configuration: when, where and by which command


@dataclass(frozen=True, slots=True)
class Ledger:
    """A table of rows and, beside it, a JSON file with the configuration of each data set."""

    rows: Path
    description: Path
    columns: tuple[str, ...]

    def told(self) -> dict[str, Any]:
        """The configuration of each data set, and its runs."""
        return json.loads(self.description.read_text(encoding="utf-8")) if self.description.is_file() else {}

    def describe(self, asked: Mapping[str, Mapping[str, Any]], run: Mapping[str, Any]) -> None:
        """Adds data sets, and a run to those that it goes on with; another configuration of one is refused."""
        known = self.told()
        for dataset, told in json.loads(json.dumps(asked)).items():
            there = known.setdefault(dataset, told)
            there.setdefault(RUNS, []).append(dict(run))
            for name in {**told, **there}:
                if name != RUNS and told.get(name) != there.get(name):
                    raise ValueError(
                        f"the rows of {dataset} go on with what they began with, got {name} = {told.get(name)!r} where "
                        f"{self.description} has {there.get(name)!r}; take that, name another --out, or begin anew "
                        "with --restart"
                    )
        with records.replacing(self.description) as draft:
            draft.write_text(json.dumps(known, indent=2) + "\n", encoding="utf-8")

    def restart(self, datasets: Iterable[str]) -> None:
        """Forgets some data sets; what others have cost stays."""
        left = {name: told for name, told in self.told().items() if name not in set(datasets)}
        kept = [row for row in self.read() if row["dataset"] in left] if left else []
        records.write(self.rows, kept, self.columns)
        with records.replacing(self.description) as draft:
            draft.write_text(json.dumps(left, indent=2) + "\n", encoding="utf-8")

    def resume(self, sizes: Mapping[tuple[str, ...], int]) -> set[tuple[str, ...]]:
        """The cells that are whole; the file is made to hold just their rows.

        `sizes`: the rows of each planned cell. A data set that is not planned now stays as it is.
        """
        cells: dict[tuple[str, ...], list[Mapping[str, str]]] = {}
        for row in self.read():
            cells.setdefault(tuple(row[name] for name in CELL), []).append(row)
        planned = {cell[0] for cell in sizes}
        whole = {cell: rows for cell, rows in cells.items() if cell[0] not in planned or len(rows) == sizes.get(cell)}
        records.write(self.rows, (row for rows in whole.values() for row in rows), self.columns)
        return set(whole)

    def go_on(
        self,
        sizes: Mapping[tuple[str, ...], int],
        measure: Callable[[tuple[str, ...]], Iterable[Mapping[str, Any]]],
        until: float | None,
    ) -> bool:
        """Measures the planned cells that are not there; False: time.monotonic() passed `until` before the last.

        Every run gets on: the first of them is never too late.
        """
        done = self.resume(sizes)
        for number, cell in enumerate(cell for cell in sizes if cell not in done):
            if number and until is not None and time.monotonic() >= until:
                return False
            self.append(measure(cell))
        return True

    def read(self) -> list[dict[str, str]]:
        """All whole lines; a torn last one does not count."""
        if not self.rows.is_file():
            return []
        text = self.rows.read_text(encoding="utf-8", errors="replace")
        lines = csv.reader(io.StringIO(text[: text.rfind("\n") + 1], newline=""))
        header = next(lines, None)
        if header is not None and tuple(header) != self.columns:
            raise ValueError(
                f"{self.rows} must have the columns {list(self.columns)}, got {header}; name another --out, or begin "
                "anew with --restart"
            )
        return [dict(zip(self.columns, line, strict=True)) for line in lines if len(line) == len(self.columns)]

    def append(self, lines: Iterable[Mapping[str, Any]]) -> None:
        """A whole cell, on the disk before this returns."""
        with self.rows.open("a", encoding="utf-8", newline="") as file:
            file.write(records.as_text(lines, self.columns))
            file.flush()
            os.fsync(file.fileno())
