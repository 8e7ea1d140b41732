"""Measures rows of several data sets block by block, for figures that explain images without attacking them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from paper.data.datasets import Sample, sample
from paper.data.records import Line
from paper.data.row_file import RowFile
from paper.figures.figure_cache import describe_run
from paper.settings import Settings


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

    Args:
        file: where the rows are kept.
        settings: of this run.
        counts: images of each data set.
        block: images that are explained together, for all data sets or for each.
        methods: labels; a cell is one of them on one block.
        describe: the settings that must be the same for a data set to be resumed.
        measure: the rows of a cell.
    """
    until = settings.deadline()
    samples = {name: sample(name, settings, counts[name]) for name in settings.datasets}
    if settings.restart:
        file.restart(samples)
    file.describe({name: describe(each) for name, each in samples.items()}, describe_run(file.figure, settings))
    plan = {}
    for name, each in samples.items():
        size = block if isinstance(block, int) else block[name]
        for start in range(0, len(each), size):
            some = slice(start, min(start + size, len(each)))
            plan |= {(name, str(start), method): some for method in methods}
    sizes = {cell: some.stop - some.start for cell, some in plan.items()}
    return file.measure(sizes, lambda cell: measure(samples[cell[0]], plan[cell], cell[2]), until)


def make_lines(shared: Line, columns: Mapping[str, Sequence[Any]]) -> list[Line]:
    """One line per image from columns of one value each."""
    count = len(next(iter(columns.values())))
    return [shared | {name: column[place] for name, column in columns.items()} for place in range(count)]
