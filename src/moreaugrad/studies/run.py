"""Runs a study block by block; the output folder can be resumed.

Writes study.json first, rows.csv as it goes, table.csv and curves.png at the end. Memory does not grow with the images.
"""

from __future__ import annotations

import platform
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from moreaugrad import limits
from moreaugrad.files import make_folder
from moreaugrad.locks import hold
from moreaugrad.methods.options import versions
from moreaugrad.plotting import pictures
from moreaugrad.plotting.curves import curves
from moreaugrad.studies import summary
from moreaugrad.studies.plan import Study
from moreaugrad.studies.resumable_csv import ResumableCsv, Row, describe_study
from moreaugrad.studies.runner import COLUMNS, COSTS, IDENTITY, StudyRunner
from moreaugrad.studies.sources import Source, TensorSource
from moreaugrad.types import Watch, ignore_progress

ROWS, LOCK = "rows.csv", ".lock"
TICKS = 100  # of the progress watcher, per cell


class StudyRow(dict[str, Any]):
    """A row of a study, or a line of its table: column -> number or text; None where nothing is known.

    Example:
        >>> row = mg.StudyRow(image=0, method="gradient", attack="topk", mode="strongest", normalised_distance=0.4)
        >>> row["method"], row["normalised_distance"]
        ('gradient', 0.4)
    """


@dataclass(frozen=True, slots=True)
class StudyResult:
    """What `run_study` has measured so far.

    Attributes:
        done: cells that are measured; a cell is one method under one attack of one size, on one block of images.
        total: cells of the whole study.
        rows: one per image and cell, as in rows.csv: the mode, whether the attack was valid, norms of the change,
            probabilities before and after, every metric, and what it cost.
        table: one per group of rows and metric, as in table.csv: median with its 95 % interval, mean, counts.

    Example:
        >>> mg.StudyResult(done=3, total=4, rows=[], table=[]).finished
        False
    """

    done: int
    total: int
    rows: list[StudyRow]
    table: list[StudyRow]

    @property
    def finished(self) -> bool:
        """Whether every cell is measured."""
        return self.done == self.total


def run_study(
    study: Study,
    model: Any,
    images: Tensor | Source,
    out: str | Path,
    *,
    minutes: float | None = None,
    watch: Watch = ignore_progress,
    name: str | None = None,
    command: str = "",
) -> StudyResult:
    """Carry out a study, or resume it: measures every cell that is not yet in the folder.

    Maps explain the model's own predictions. Each attacked map is judged with noise that the attack has not seen, by
    default the clean map's. Writes study.json, rows.csv, table.csv and curves.png.

    Args:
        study: the plan.
        model: a module in evaluation mode, or any callable that returns scores (N, classes).
        images: preprocessed images (N, C, H, W), or a `Source`.
        out: the folder; one that holds the same study is resumed.
        minutes: stop after the cell in which so many minutes have passed; None runs to the end.
        watch: called with (step, total, info) as the study proceeds.
        name: name of the model for study.json; default: its class.
        command: command line for study.json.

    Returns:
        The rows and the table so far, and whether all cells are done.

    Raises:
        ValueError: if the folder holds another study, or a method, attack or metric does not fit the model or images.
        BlockingIOError: another run is at work on the folder.

    Example:
        >>> from tempfile import mkdtemp
        >>> study = mg.Study({"gradient": {}}, {"topk": {"steps": 1}}, epsilons=(1.0,), metrics=())
        >>> result = mg.run_study(study, net, x, mkdtemp())
        >>> result.finished, result.rows[0]["method"], result.rows[0]["mode"]
        (True, 'gradient', 'floor')
    """
    _check_call(study, out, minutes, watch, {"name": name or "", "command": command})
    runner = StudyRunner(study, model, images if isinstance(images, Source) else TensorSource(images))
    folder = Path(out)
    make_folder(folder)
    with hold(folder / LOCK, repr(str(folder))):
        describe_study(folder / "study.json", runner.describe(name), _describe_run(runner, command), folder / ROWS)
        return _resume(runner, folder, minutes, watch)


def _resume(runner: StudyRunner, folder: Path, minutes: float | None, watch: Watch) -> StudyResult:
    """Measure the cells that are not in the folder yet, for whoever has the right to fill it."""
    began, study = time.monotonic(), runner.study
    columns = (*COLUMNS, *study.metrics, *COSTS)
    numbers = (*study.metrics, "attack_gradients", "map_gradients", "seconds")
    file = ResumableCsv(folder / ROWS, columns, IDENTITY, numbers)
    plan = list(runner.plan())
    rows, done = file.resume(runner.identify_rows(*each) for each in plan)

    def watch_cell(step: int, total: int, info: Mapping[str, Any]) -> None:
        """Report the steps of an attack as parts of its cell."""
        watch(done * TICKS + TICKS * step // max(total, 1), len(plan) * TICKS, info)

    for some, cell in plan[done:]:
        watch_cell(0, 1, {"cell": cell})
        new = runner.measure(some, cell, rows, watch_cell)
        file.append(new)
        rows += new
        done += 1
        if minutes is not None and time.monotonic() - began >= 60 * minutes:
            break
    table = write_summary(study, rows, folder)
    return StudyResult(done, len(plan), [StudyRow(row) for row in rows], [StudyRow(line) for line in table])


def _check_call(study: Any, out: Any, minutes: Any, watch: Any, words: Mapping[str, Any]) -> None:
    """What can be refused before the model is prepared."""
    if not isinstance(study, Study):
        raise TypeError(f"study must be a mg.Study, got {study!r}")
    limits.path("out", out)
    if minutes is not None:
        limits.positive("minutes", minutes)
    if not callable(watch):
        raise TypeError(f"watch must be a function of (step, total, info), got {watch!r}")
    for name, given in words.items():
        if not isinstance(given, str):
            raise TypeError(f"{name} must be a text, got {given!r}")


def _describe_run(runner: StudyRunner, command: str) -> dict[str, Any]:
    """When, where and by which command; and the options of the judged methods, defaults included."""
    device = runner.device
    card = torch.cuda.get_device_name(device) if device.type == "cuda" else platform.machine()
    return {
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "command": command,
        "device": f"{device} ({card})",
        "versions": versions(),
        "methods": runner.judge_options(),
    }


def write_summary(study: Study, rows: Sequence[Row], folder: Path) -> list[Row]:
    """Write table.csv and curves.png of the rows."""
    table = summary.summarise(rows, study.metrics)
    ResumableCsv(folder / "table.csv", summary.TABLE).rewrite(table)
    count = len({row["image"] for row in rows})
    note = (
        f"{count} images; the strongest slope of each, images with a valid attack; bands: 95 % of the median; "
        f"hollow: under {summary.MOSTLY:.0%} valid; dashed: two seeds, no attack"
    )
    pictures.write(curves(summary.make_panels(study, table), note=note), folder / "curves.png")
    return table
