"""`run_study`: a study on images in memory or on disk, block by block, into a folder that can be gone on with.

Writes rows.csv as it goes, study.json before, table.csv and curves.png after. Memory does not grow with the images.
"""

from __future__ import annotations

import platform
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from moreaugrad.methods.options import versions
from moreaugrad.model.sharing import shared_engines
from moreaugrad.plotting import pictures
from moreaugrad.plotting.curves import curves
from moreaugrad.studies import resumable_csv as ledger
from moreaugrad.studies import summary as tally
from moreaugrad.studies.plan import Study
from moreaugrad.studies.resumable_csv import Ledger, Row
from moreaugrad.studies.runner import COLUMNS, COSTS, IDENTITY, Arena
from moreaugrad.studies.sources import Source, Tensors
from moreaugrad.types import Watch, unwatched

TICKS = 100  # of the watcher, per cell


@dataclass(frozen=True, slots=True)
class Standing:
    """How far a study has come."""

    done: int  # cells
    total: int
    rows: list[Row]
    table: list[Row]

    @property
    def finished(self) -> bool:
        return self.done == self.total


def run_study(
    study: Study,
    model: Any,
    images: Tensor | Source,
    out: str | Path,
    *,
    minutes: float | None = None,
    watch: Watch = unwatched,
    name: str | None = None,
    command: str = "",
) -> Standing:
    """Runs all cells that are not in the folder yet; stops after the cell in which `minutes` have passed.

    `images`: preprocessed tensors (N, C, H, W), or a Source. `name`: what to call the model. The attacked maps are
    of the model's own predictions; each is judged with noise that the attack has not seen, by default the clean map's.
    """
    began = time.monotonic()
    arena = Arena(study, model, images if isinstance(images, Source) else Tensors(images))
    folder = Path(out)
    folder.mkdir(parents=True, exist_ok=True)
    book = Ledger(folder / "rows.csv", (*COLUMNS, *study.metrics, *COSTS), IDENTITY)
    ledger.describe(folder / "study.json", arena.configuration(name), _this_run(arena, command), book.path)
    plan = list(arena.plan())
    rows, done = book.resume(arena.expected(*each) for each in plan)
    with shared_engines(model):
        for some, cell in plan[done:]:
            watch(done * TICKS, len(plan) * TICKS, {"cell": cell})
            new = arena.measure(some, cell, rows, partial(_within, watch, done, len(plan)))
            book.append(new)
            rows += new
            done += 1
            if minutes is not None and time.monotonic() - began >= 60 * minutes:
                break
    return Standing(done, len(plan), rows, write(study, rows, folder))


def _within(watch: Watch, done: int, cells: int, step: int, total: int, info: Mapping[str, Any]) -> None:
    """The steps of an attack as parts of its cell."""
    watch(done * TICKS + TICKS * step // max(total, 1), cells * TICKS, info)


def _this_run(arena: Arena, command: str) -> dict[str, Any]:
    """When, where and by which command; also what the judges' methods are by default, which the study does not say."""
    device = arena.device
    card = torch.cuda.get_device_name(device) if device.type == "cuda" else platform.machine()
    when = datetime.now(UTC).isoformat(timespec="seconds")
    found = {"date": when, "command": command, "device": f"{device} ({card})", "versions": versions()}
    return found | {"methods": arena.judges()}


def write(study: Study, rows: Sequence[Row], folder: Path) -> list[Row]:
    """table.csv and curves.png of what is there."""
    found = tally.table(rows, study.metrics)
    ledger.write_csv(folder / "table.csv", tally.TABLE, found)
    count = len({row["image"] for row in rows})
    note = (
        f"{count} images; the strongest slope of each, images with a valid attack; bands: 95 % of the median; "
        f"hollow: under {tally.MOSTLY:.0%} valid; dashed: two seeds, no attack"
    )
    pictures.write(curves(tally.Summaries.of(found).panels(study), note=note), folder / "curves.png")
    return found
