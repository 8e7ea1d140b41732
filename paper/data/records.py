"""CSV tables of the results, read and written whole. Knows no column."""

from __future__ import annotations

import csv
import math
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from moreaugrad.studies.resumable_csv import ResumableCsv

Line = dict[str, Any]


def format_value(value: Any) -> str:
    """Numbers with six digits, nothing for None and NaN."""
    if value is None or (isinstance(value, float) and math.isnan(value)):
        return ""
    if isinstance(value, bool):
        return str(int(value))
    return f"{value + 0.0:.6g}" if isinstance(value, float) else str(value)  # no -0


def write(path: Path, lines: Iterable[Mapping[str, Any]], columns: Iterable[str]) -> None:
    """Write the whole table, or none."""
    path.parent.mkdir(parents=True, exist_ok=True)
    ResumableCsv(path, tuple(columns), encode=format_value).rewrite(lines)


def read(path: Path) -> list[dict[str, str]]:
    if not path.is_file():
        raise FileNotFoundError(f"the table {path} must be there, got nothing; make its figure first")
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def number(value: Any) -> float:
    """NaN where there is none."""
    return float("nan") if value is None or value == "" else float(value)
