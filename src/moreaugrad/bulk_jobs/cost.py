"""What a job will cost: gradients, seconds and bytes, by an image of its own."""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory

from moreaugrad.bulk_jobs.folder import Part
from moreaugrad.bulk_jobs.worker import Task, Worker, WorkerSpec

TRIED = 20  # images that are tried, until one can be explained
FEW = 40  # gradients of the trial, where a method has a budget


@dataclass(frozen=True)
class Cost:
    """What one image costs.

    Attributes:
        gradients: of its map.
        seconds: of one worker, reading and writing included.
        bytes: in a part.
    """

    gradients: int
    seconds: float
    bytes: int


def estimate_cost(spec: WorkerSpec) -> Cost:
    """The cost of the first image that can be explained, by a trial of few gradients, after one to warm up."""
    budget = getattr(spec.make_explainer().method, "budget", None)
    short = min(budget, FEW) if budget else None
    trial = replace(spec, options=dict(spec.options) | ({"budget": short} if short else {}))
    with TemporaryDirectory() as folder:
        worker = Worker(replace(trial, folder=Path(folder)))
        try:
            return _try_images(worker, (budget or 1) / (short or 1))
        finally:
            worker.close()


def _try_images(worker: Worker, more: float) -> Cost:
    """`more`: how many times as many gradients as the trial a map takes."""
    for row in range(min(TRIED, len(worker.spec.source.keys))):
        part = Part(0, range(row, row + 1))
        if worker.run(Task(part, part.rows)).errors:
            continue
        began = time.perf_counter()
        done = worker.run(Task(part, part.rows))
        seconds = time.perf_counter() - began
        size = part.path(worker.spec.folder).stat().st_size
        return Cost(round(done.gradients * more), seconds * more, size)
    raise ValueError(f"the cost needs an image that can be explained, got errors for the first {TRIED}; see --limit 20")
