"""A table that grows cell by cell on disk, and a description of it. A killed run loses only the cell it was in.

Knows neither what a column means nor how it is computed.
"""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

from moreaugrad.files import append_whole, find_difference, parse_json, replacing

RENAMED = {"apart": "hessian_step", "grad_mode": "derivative"}  # options in the files of earlier versions
Row: TypeAlias = dict[str, Any]  # column -> number, text, or None


def format_value(value: Any) -> str:
    """So that `parse_value` gives it back: numbers in full, nothing for None, flags as 1 and 0."""
    if value is None:
        return ""
    return str(int(value)) if isinstance(value, bool) else repr(value) if isinstance(value, float) else str(value)


def parse_value(text: str) -> Any:
    """A number where the text is one as we write it; 007 and 1e3 are names."""
    if text == "":
        return None
    for kind in (int, float):
        try:
            if format_value(number := kind(text)) == text:
                return number
        except ValueError:
            continue
    return text


@dataclass(frozen=True, slots=True)
class ResumableCsv:
    """A header, then rows; cells are appended whole.

    Args:
        path: the file.
        columns: its columns, in order.
        identity: the columns that tell a row from all others.
        numbers: the columns that hold a number in every row; a row without is not whole.
        encode: a value -> its text.
        decode: its text -> the value.
        hint: what to do about a file with other columns, for the error message.
    """

    path: Path
    columns: tuple[str, ...]
    identity: tuple[str, ...] = ()
    numbers: tuple[str, ...] = ()
    encode: Callable[[Any], str] = format_value
    decode: Callable[[str], Any] = parse_value
    hint: str = "move it away"

    def resume(self, plan: Iterable[Sequence[Row]]) -> tuple[list[Row], int]:
        """The rows of the planned cells that are whole, up to the first that is not, and how many cells those are.

        The file then holds just these.
        """
        there, kept, cells = self.read(), 0, 0
        for cell in plan:
            some = there[kept : kept + len(cell)]
            if len(some) < len(cell) or any(map(self._differs, some, cell)):
                break
            kept, cells = kept + len(cell), cells + 1
        self.rewrite(there[:kept])
        return there[:kept], cells

    def append(self, rows: Iterable[Mapping[str, Any]]) -> None:
        """Add a whole cell; it is on the disk before this returns."""
        with self.path.open("ab", buffering=0) as file:
            append_whole(file, self._text(rows))

    def rewrite(self, rows: Iterable[Mapping[str, Any]]) -> None:
        """Make the file hold just these rows; a file that does already is left alone."""
        text = self._text([dict(zip(self.columns, self.columns, strict=True)), *rows])
        if not self.path.is_file() or self.path.read_bytes() != text:
            with replacing(self.path) as file:
                file.write(text)

    def read(self) -> list[Row]:
        """The whole lines of the file, up to the first that is not one of ours."""
        if not self.path.is_file():
            return []
        text = self.path.read_text(encoding="utf-8", errors="replace")
        lines = csv.reader(io.StringIO(text[: text.rfind("\n") + 1], newline=""))
        found: list[Row] = []
        try:
            header = next(lines, None)
            if header is not None and tuple(header) != self.columns:
                raise ValueError(f"{self.path} must have the columns {list(self.columns)}, got {header}; {self.hint}")
            for line in lines:
                if len(line) != len(self.columns):
                    break
                found.append({name: self.decode(value) for name, value in zip(self.columns, line, strict=True)})
        except csv.Error:  # bytes that no writer of ours has left
            pass
        return found

    def _differs(self, row: Row, planned: Row) -> bool:
        whole = all(isinstance(row[name], int | float) for name in self.numbers)
        return not whole or any(self.encode(row[name]) != self.encode(planned[name]) for name in self.identity)

    def _text(self, rows: Iterable[Mapping[str, Any]]) -> bytes:
        stored = io.StringIO(newline="")
        writer = csv.writer(stored, lineterminator="\n")
        writer.writerows([self.encode(row.get(name)) for name in self.columns] for row in rows)
        return stored.getvalue().encode()


def describe_study(path: Path, configuration: Mapping[str, Any], run: Mapping[str, Any], rows: Path) -> None:
    """Write study.json: the configuration, and each run that worked on it. Another configuration is refused."""
    asked = json.loads(json.dumps(configuration))
    runs: list[Any] = []
    if path.is_file():
        try:
            found = parse_json(path.read_text(encoding="utf-8"))
            known, runs = _rename(dict(found["configuration"])), list(found["runs"])
        except (ValueError, KeyError, TypeError) as error:
            raise ValueError(
                f"{path} must describe a study, got {type(error).__name__}; name another folder"
            ) from error
        if difference := find_difference(asked, known):
            name, new, old = difference
            raise ValueError(
                f"a study must be resumed with the configuration it began with, got {name} = {new} where {path} has "
                f"{old}; take that, or name another folder"
            )
    elif rows.is_file():
        raise ValueError(
            f"--out must be empty or hold a study, got {str(path.parent)!r} with {rows.name} but without "
            f"{path.name}; name another folder"
        )
    write_json(path, {"configuration": asked, "runs": [*runs, run]})


def _rename(value: Any) -> Any:
    """A stored configuration with the names that options have now."""
    return {RENAMED.get(key, key): _rename(each) for key, each in value.items()} if isinstance(value, dict) else value


def write_json(path: Path, content: Mapping[str, Any]) -> None:
    """A whole file, or none."""
    with replacing(path) as file:
        file.write((json.dumps(content, indent=2) + "\n").encode())
