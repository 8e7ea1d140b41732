"""What a run asks of an engine, and what it hears from it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from moreaugrad.bulk_jobs.worker import Done, Task


@dataclass(frozen=True)
class Progress:
    """Images of a task that were explained just now."""

    worker: int
    images: int


@dataclass(frozen=True)
class Finished:
    """A worker has done its task."""

    worker: int
    task: Task
    done: Done


@dataclass(frozen=True)
class Died:
    """A worker is gone, and its task with it; another one takes its place."""

    worker: int
    task: Task | None  # None: it had none
    reason: str


@dataclass(frozen=True)
class Broken:
    """Something that would go wrong for every image and every worker: the run cannot go on."""

    error: str


Event = Progress | Finished | Died | Broken


class Engine(Protocol):
    """Workers with numbers; each takes one task at a time."""

    def idle(self) -> Sequence[int]:
        """The workers that can take a task now."""
        ...

    def submit(self, worker: int, task: Task) -> None:
        """Give a task to an idle worker."""
        ...

    def wait(self, seconds: float) -> Sequence[Event]:
        """What has happened; after so many seconds perhaps nothing."""
        ...

    def close(self) -> None:
        """Stop all workers at once. What they have not written is lost."""
        ...
