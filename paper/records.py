"""Tables of the results: CSV files, read and written whole. Knows no column."""

from __future__ import annotations

import csv
import io
import math
import os
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

Line = dict[str, Any]


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """A draft beside `path` that takes its place at the end, or vanishes after an exception."""
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = path.with_name(f".{os.getpid()}.{path.name}")  # the ending stays: it names a picture's format
    try:
        yield draft
        draft.replace(path)
    finally:
        draft.unlink(missing_ok=True)


def write(path: Path, lines: Iterable[Mapping[str, Any]], columns: Iterable[str]) -> None:
    """The whole table, or none; numbers with six digits, nothing for None and NaN."""
    with replacing(path) as draft:
        draft.write_text(as_text(lines, columns, header=True), encoding="utf-8")


def as_text(lines: Iterable[Mapping[str, Any]], columns: Iterable[str], header: bool = False) -> str:
    names, stored = list(columns), io.StringIO(newline="")
    writer = csv.writer(stored, lineterminator="\n")
    if header:
        writer.writerow(names)
    writer.writerows([written(line.get(name)) for name in names] for line in lines)
    return stored.getvalue()


def written(value: Any) -> str:
    if value is None or (isinstance(value, float) and math.isnan(value)):
        return ""
    if isinstance(value, bool):
        return str(int(value))
    return f"{value + 0.0:.6g}" if isinstance(value, float) else str(value)  # no -0


def read(path: Path) -> list[dict[str, str]]:
    if not path.is_file():
        raise FileNotFoundError(f"the table {path} must be there, got nothing; make its figure first")
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def number(value: Any) -> float:
    """NaN where there is none."""
    return float("nan") if value is None or value == "" else float(value)
