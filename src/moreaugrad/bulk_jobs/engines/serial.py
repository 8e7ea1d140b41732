"""One worker in this process: for models that cannot be sent elsewhere, for notebooks, for a debugger."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from moreaugrad.bulk_jobs.engines.base import Event, Finished
from moreaugrad.bulk_jobs.worker import Task, Worker, WorkerSpec


class SerialEngine:
    """Explains while it waits. An error that is no image's own is raised where it happens.

    Args:
        spec: what to do.
    """

    def __init__(self, spec: WorkerSpec) -> None:
        self._worker, self._threads = Worker(spec), spec.threads if spec.device == "cpu" else None
        self._task: Task | None = None

    def idle(self) -> Sequence[int]:
        return [0] if self._task is None else []

    def submit(self, worker: int, task: Task) -> None:
        self._task = task

    def wait(self, seconds: float) -> Sequence[Event]:
        task, self._task = self._task, None
        if task is None:
            return []
        before = torch.get_num_threads()
        try:
            if self._threads is not None:
                torch.set_num_threads(self._threads)
            return [Finished(0, task, self._worker.run(task))]
        finally:
            torch.set_num_threads(before)

    def close(self) -> None:
        self._worker.close()
