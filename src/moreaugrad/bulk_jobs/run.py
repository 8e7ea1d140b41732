"""Fills the parts of a job that are not there yet: hands them to workers, and copes with those that die."""

from __future__ import annotations

import signal
import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from types import FrameType
from typing import TypeAlias

from moreaugrad.bulk_jobs.engines.base import Broken, Died, Engine, Event, Finished, Progress
from moreaugrad.bulk_jobs.folder import Part
from moreaugrad.bulk_jobs.parts import BulkRow, write_part
from moreaugrad.bulk_jobs.worker import Task, WorkerSpec

STRIKES = 3  # deaths of workers after which a part is explained image by image, and an image given up
TICK = 0.2  # seconds between two looks at limits and interruptions


@dataclass
class RunState:
    """How far a run is.

    Attributes:
        total: images that this run is to explain.
        before: images that were there when it began.
        errors_before: those of them with an error.
        images, errors, gradients: what it has written so far.
        deaths: workers that died.
        started: seconds until the first worker was ready.
        stopped: why it hands out no more parts: "interrupted", "limit"; None while it does.
    """

    total: int
    before: int = 0
    errors_before: int = 0
    images: int = 0
    errors: int = 0
    gradients: int = 0
    deaths: int = 0
    workers: int = 0
    started: float | None = None
    stopped: str | None = None
    began: float = field(default_factory=time.monotonic)
    unwritten: Counter[int] = field(default_factory=Counter)  # images explained of the part that a worker is at

    @property
    def seconds(self) -> float:
        return time.monotonic() - self.began

    @property
    def explained(self) -> int:
        """Images of this run, those of unfinished parts among them."""
        return self.images + self.unwritten.total()

    @property
    def images_per_second(self) -> float:
        """Since the first worker was ready."""
        return self.explained / max(1e-9, self.seconds - (self.started or 0))

    @property
    def gradients_per_second(self) -> float:
        return self.gradients / max(1e-9, self.seconds - (self.started or 0))

    @property
    def seconds_left(self) -> float | None:
        """By the rate so far; None before the first image."""
        return (self.total - self.explained) / self.images_per_second if self.explained else None


Watcher: TypeAlias = Callable[[RunState, Event | None], None]  # None: nothing new


class WorkerError(RuntimeError):
    """Something that would go wrong for every image."""


class PartQueue:
    """What is to be done, and for whom: each worker knows its next part, and reads it while it solves.

    A part whose workers died again and again is explained image by image, to find the one that kills them.
    """

    def __init__(self, parts: Sequence[Part], spec: WorkerSpec) -> None:
        self._spec = spec
        self._parts = deque(parts)
        self._reserved: dict[int, Part] = {}
        self._deaths: Counter[int] = Counter()  # by part
        self._rows: deque[tuple[Part, int]] = deque()  # single images to try
        self._found: dict[int, dict[int, BulkRow]] = {}  # rows of parts explained image by image
        self._strikes: Counter[int] = Counter()  # by row

    def take(self, worker: int) -> Task | None:
        """The next task of a worker; None where nothing is left to hand out."""
        if self._rows:
            part, row = self._rows.popleft()
            return Task(part, range(row, row + 1))
        if worker not in self._reserved:
            self._reserve(worker)
        if worker not in self._reserved:
            return None
        part = self._reserved.pop(worker)
        if self._parts:
            self._reserve(worker)
        upcoming = self._reserved.get(worker)
        return Task(part, part.rows, range(0) if upcoming is None else upcoming.rows)

    def finish(self, task: Task, rows: Sequence[BulkRow] | None) -> bool:
        """Take in what a worker has done. Whether the part is written."""
        for row in rows or ():
            self._found[task.part.number][row.row] = row
        return rows is None or self._write_if_whole(task.part)

    def give_back(self, worker: int, task: Task | None, reason: str) -> bool:
        """Do again what a dead worker was at. Whether a part was written, with an image that is given up."""
        if (reserved := self._reserved.pop(worker, None)) is not None:
            self._parts.appendleft(reserved)
        if task is None:
            return False
        part, row = task.part, task.rows.start
        if part.number not in self._found:
            self._deaths[part.number] += 1
            if self._deaths[part.number] < STRIKES:
                self._parts.appendleft(part)
            else:
                self._found[part.number] = {}
                self._rows.extend((part, each) for each in part.rows)
            return False
        self._strikes[row] += 1
        if self._strikes[row] < STRIKES:
            self._rows.appendleft((part, row))
            return False
        error = f"the worker that explained this image died {STRIKES} times ({reason}), as when the memory runs out"
        self._found[part.number][row] = BulkRow(key=self._spec.source.keys[row], row=row, error=error)
        return self._write_if_whole(part)

    def errors_of(self, part: Part) -> int:
        """Errors of a part that was explained image by image."""
        return sum(row.error is not None for row in self._found.get(part.number, {}).values())

    def _reserve(self, worker: int) -> None:
        """The next part; where there is none, one that is reserved for another worker, which is still busy."""
        if self._parts:
            self._reserved[worker] = self._parts.popleft()
        elif self._reserved:
            self._reserved[worker] = self._reserved.popitem()[1]

    def _write_if_whole(self, part: Part) -> bool:
        found = self._found[part.number]
        if len(found) < len(part.rows):
            return False
        write_part(part.path(self._spec.folder), [found[row] for row in part.rows], self._spec.half)
        return True


@dataclass
class Run:
    """One engine at work on the parts of a job.

    Args:
        engine: the workers.
        queue: what is to be done.
        state: counts, for who watches.
        watch: called at every event, and at least once a second.
        limit: hand out no more parts than make so many images.
        limit_seconds: hand out no more parts after so many seconds.
    """

    engine: Engine
    queue: PartQueue
    state: RunState
    watch: Watcher
    limit: int | None = None
    limit_seconds: float | None = None
    _busy: dict[int, Task] = field(default_factory=dict)
    _stillborn: int = 0  # workers in a row that died before they were ready

    def finish(self) -> None:
        """Work until everything is written, or as much as was asked for."""
        with self._hear_signals():
            while self._hand_out() or self._busy or self._waits_for_workers():
                events = self.engine.wait(TICK)
                for event in events:
                    self._take_in(event)
                    self.watch(self.state, event)
                if not events:
                    self.watch(self.state, None)

    def _hand_out(self) -> bool:
        """Give idle workers something to do. Whether somebody got a task."""
        given = False
        for worker in self.engine.idle():
            if self.state.started is None:
                self.state.started = self.state.seconds
            self._stillborn = 0
            task = None if self._has_enough() else self.queue.take(worker)
            if task is not None:
                self._busy[worker] = task
                self.engine.submit(worker, task)
                given = True
        return given

    def _has_enough(self) -> bool:
        under_way = sum(len(task.rows) for task in self._busy.values())
        full = self.limit is not None and self.state.images + under_way >= self.limit
        late = self.limit_seconds is not None and self.state.seconds >= self.limit_seconds
        if full or late:
            self.state.stopped = self.state.stopped or "limit"
        return self.state.stopped is not None

    def _waits_for_workers(self) -> bool:
        """Whether work is left that nobody has, because every worker is starting."""
        return not self.engine.idle() and self.state.stopped is None and self.state.images < self.state.total

    def _take_in(self, event: Event) -> None:
        match event:
            case Progress(worker, images):
                self.state.unwritten[worker] += images
            case Finished(worker, task, done):
                del self._busy[worker], self.state.unwritten[worker]
                self.state.gradients += done.gradients
                if self.queue.finish(task, done.rows):
                    self._count(task.part, done.errors if done.rows is None else self.queue.errors_of(task.part))
            case Died(worker, task, reason):
                self.state.deaths += 1
                self._busy.pop(worker, None)
                self.state.unwritten.pop(worker, None)
                self._stillborn += task is None
                if self._stillborn > STRIKES * max(1, self.state.workers):
                    raise WorkerError(
                        f"workers must live to explain images, got {STRIKES} of each that died ({reason})"
                    )
                if self.queue.give_back(worker, task, reason) and task is not None:
                    self._count(task.part, self.queue.errors_of(task.part))
            case Broken(error):
                raise WorkerError(error)

    def _count(self, part: Part, errors: int) -> None:
        self.state.images += len(part.rows)
        self.state.errors += errors

    @contextmanager
    def _hear_signals(self) -> Iterator[None]:
        """Ctrl-C lets the parts that are under way finish; a second one, and SIGTERM, stop at once."""
        if threading.current_thread() is not threading.main_thread():  # Python allows handlers there only
            yield
            return

        def hear(number: int, frame: FrameType | None) -> None:
            if number == signal.SIGTERM or self.state.stopped == "interrupted":
                self.state.stopped = "interrupted"
                raise KeyboardInterrupt
            self.state.stopped = "interrupted"

        before = {each: signal.signal(each, hear) for each in (signal.SIGINT, signal.SIGTERM)}
        try:
            yield
        finally:
            for each, handler in before.items():
                signal.signal(each, handler)
