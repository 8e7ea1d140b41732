"""Rows of several data sets that are measured block by block and grow on disk, for figures without attacks.

Data sets may come in any order and in runs of their own; each is resumed with the settings it began with.
"""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from moreaugrad.studies.resumable_csv import ResumableCsv, write_json
from moreaugrad.studies.summary import group_rows
from paper.data.datasets import Sample, sample
from paper.data.records import Line, format_value
from paper.figures.figure_cache import describe_run
from paper.settings import Settings

CELL = ("dataset", "block", "method")
RUNS = "runs"  # beside the settings: when, where and by which command


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
        write_json(self.description, known)

    def restart(self, datasets: Iterable[str]) -> None:
        """Forget some data sets; the rows of the others stay."""
        left = {name: given for name, given in self.settings().items() if name not in set(datasets)}
        self.file.rewrite([row for row in self.read() if row["dataset"] in left] if left else [])
        write_json(self.description, left)

    def resume(self, sizes: Mapping[tuple[str, ...], int]) -> list[tuple[str, ...]]:
        """The planned cells that are not whole, by the rows that each should have; the file keeps whole cells only.

        A data set that is not planned now stays as it is.
        """
        planned = {cell[0] for cell in sizes}
        cells = group_rows(self.read(), CELL)
        whole = {cell: rows for cell, rows in cells.items() if cell[0] not in planned or len(rows) == sizes.get(cell)}
        self.file.rewrite(row for rows in whole.values() for row in rows)
        return [cell for cell in sizes if cell not in whole]


def measure_rows(
    file: RowFile,
    settings: Settings,
    counts: Mapping[str, int],
    block: int | Mapping[str, int],
    methods: Sequence[str],
    describe: Callable[[Sample], Mapping[str, Any]],
    measure: Callable[[Sample, slice, str], Iterable[Line]],
) -> bool:
    """Measure or resume the rows of every data set; whether all are there.

    Every run makes progress: its first cell is measured however late it is.

    Args:
        file: where the rows are kept.
        settings: of this run.
        counts: images of each data set.
        block: images that are explained together, for all data sets or for each.
        methods: labels; a cell is one of them on one block.
        describe: the settings that must be the same for a data set to be resumed.
        measure: the rows of a cell.
    """
    until = math.inf if settings.minutes is None else time.monotonic() + 60 * settings.minutes
    samples = {name: sample(name, settings, counts[name]) for name in settings.datasets}
    settings.out.mkdir(parents=True, exist_ok=True)
    if settings.restart:
        file.restart(samples)
    file.describe({name: describe(each) for name, each in samples.items()}, describe_run(file.figure, settings))
    plan = {}
    for name, each in samples.items():
        size = block if isinstance(block, int) else block[name]
        for start in range(0, len(each), size):
            some = slice(start, min(start + size, len(each)))
            plan |= {(name, str(start), method): some for method in methods}
    for number, cell in enumerate(file.resume({cell: some.stop - some.start for cell, some in plan.items()})):
        if number and time.monotonic() >= until:
            return False
        file.file.append(measure(samples[cell[0]], plan[cell], cell[2]))
    return True


def make_lines(shared: Line, columns: Mapping[str, Sequence[Any]]) -> list[Line]:
    """One line per image from columns of one value each."""
    return [shared | dict(zip(columns, values, strict=True)) for values in zip(*columns.values(), strict=True)]
