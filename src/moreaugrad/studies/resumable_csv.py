"""A table that grows cell by cell on disk, and what it is a table of. A killed run loses the cell it was in.

Cells come in a planned order, so what is there is a beginning of the plan; anything after it is dropped.
Knows neither what a column means nor how it is computed.
"""

from __future__ import annotations

import csv
import io
import json
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

from moreaugrad.files import replacing

Row: TypeAlias = dict[str, Any]  # numbers, text, and None for what is not known


@dataclass(frozen=True, slots=True)
class Ledger:
    """rows.csv: a header, then rows."""

    path: Path
    columns: tuple[str, ...]
    identity: tuple[str, ...]  # the columns that a plan foresees

    def resume(self, plan: Iterable[Sequence[Row]]) -> tuple[list[Row], int]:
        """The rows of all whole cells, and how many cells those are; the file is made to hold just these."""
        there, kept, cells = self._read(), 0, 0
        for cell in plan:
            some = there[kept : kept + len(cell)]
            if len(some) < len(cell) or any(map(self._differs, some, cell)):
                break
            kept, cells = kept + len(cell), cells + 1
        text = self._text([dict(zip(self.columns, self.columns, strict=True)), *there[:kept]])
        if not self.path.is_file() or self.path.read_bytes() != text:
            with replacing(self.path) as file:
                file.write(text)
        return there[:kept], cells

    def append(self, rows: Sequence[Row]) -> None:
        """A whole cell, on the disk before this returns."""
        with self.path.open("ab") as file:
            file.write(self._text(rows))
            file.flush()
            os.fsync(file.fileno())

    def _differs(self, row: Row, planned: Row) -> bool:
        return any(written(row[name]) != written(planned[name]) for name in self.identity)

    def _read(self) -> list[Row]:
        """The whole lines of the file, up to the first that is none of ours."""
        if not self.path.is_file():
            return []
        text = self.path.read_text(encoding="utf-8", errors="replace")
        lines = csv.reader(io.StringIO(text[: text.rfind("\n") + 1], newline=""))
        found: list[Row] = []
        try:
            header = next(lines, None)
            if header is not None and tuple(header) != self.columns:
                raise ValueError(f"{self.path} must have the columns {list(self.columns)}, got {header}; move it away")
            for line in lines:
                if len(line) != len(self.columns):
                    break
                found.append({name: read(value) for name, value in zip(self.columns, line, strict=True)})
        except csv.Error:  # bytes that no writer of ours has left
            pass
        return found

    def _text(self, rows: Iterable[Row]) -> bytes:
        return as_csv(self.columns, rows)


def as_csv(columns: Sequence[str], rows: Iterable[Row]) -> bytes:
    stored = io.StringIO(newline="")
    writer = csv.writer(stored, lineterminator="\n")
    writer.writerows([written(row[name]) for name in columns] for row in rows)
    return stored.getvalue().encode()


def write_csv(path: Path, columns: Sequence[str], rows: Iterable[Row]) -> None:
    """A whole table, or none."""
    with replacing(path) as file:
        file.write(as_csv(columns, [dict(zip(columns, columns, strict=True)), *rows]))


def written(value: Any) -> str:
    """So that `read` gives it back: numbers in full, nothing for None, flags as 1 and 0."""
    if value is None:
        return ""
    return str(int(value)) if isinstance(value, bool) else repr(value) if isinstance(value, float) else str(value)


def read(text: str) -> Any:
    """A number where it is one as we write it; 007 and 1e3 are names."""
    if text == "":
        return None
    for kind in (int, float):
        try:
            if written(number := kind(text)) == text:
                return number
        except ValueError:
            continue
    return text


def describe(path: Path, configuration: Mapping[str, Any], run: Mapping[str, Any], rows: Path) -> None:
    """study.json: what is asked, and each run that worked on it. Another configuration is refused."""
    asked = json.loads(json.dumps(configuration))
    runs: list[Any] = []
    if path.is_file():
        known, runs = _described(path)
        _same(asked, known, path)
    elif rows.is_file():
        raise ValueError(
            f"--out must be empty or hold a study, got {str(path.parent)!r} with {rows.name} but without "
            f"{path.name}; name another folder"
        )
    with replacing(path) as file:
        file.write((json.dumps({"configuration": asked, "runs": [*runs, run]}, indent=2) + "\n").encode())


def _described(path: Path) -> tuple[dict[str, Any], list[Any]]:
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
        return dict(found["configuration"]), list(found["runs"])
    except (ValueError, KeyError, TypeError) as error:
        raise ValueError(f"{path} must describe a study, got {type(error).__name__}; name another folder") from error


def _same(asked: Mapping[str, Any], known: Mapping[str, Any], path: Path, at: str = "") -> None:
    for name in {**asked, **known}:
        one, other = asked.get(name), known.get(name)
        if isinstance(one, dict) and isinstance(other, dict) and one and other:
            _same(one, other, path, f"{at}{name}.")
        elif one != other:
            raise ValueError(
                f"a study goes on with the configuration it began with, got {at}{name} = {_short(one)} where "
                f"{path} has {_short(other)}; take that, or name another folder"
            )


def _short(value: Any) -> str:
    text = json.dumps(value)
    return text if len(text) <= 80 else f"{text[:77]}..."
