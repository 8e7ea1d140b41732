"""Jobs: what visitors ask for, done one after the other by one thread, told while it happens, stopped at will."""

from __future__ import annotations

import logging
import queue
import secrets
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from torch import nn
from torch.nn.modules.module import register_module_forward_pre_hook

from moreaugrad.api import describe_error
from moreaugrad.app.refusal import Refusal

log = logging.getLogger("moreaugrad")

MOST_WAITING, RETRY = 30, 10  # jobs in the line; seconds after which to try again
KEPT, KEPT_SECONDS = 48, 3600  # results; those that were made first go first
EVERY = 0.25  # seconds between two previews
WAITING, RUNNING, DONE, FAILED, STOPPED = "waiting", "running", "done", "failed", "stopped"
OVER = (DONE, FAILED, STOPPED)


class Stopped(BaseException):
    """The job was stopped. No Exception, so that nothing in between takes it for an error of the image."""


@dataclass(frozen=True)
class File:
    """A file of a result, which is made when somebody asks for it."""

    name: str
    kind: str  # media type
    make: Callable[[], bytes]


@dataclass(frozen=True)
class JobResult:
    """What a job found: facts for JSON, and files by what they are."""

    facts: Mapping[str, Any]
    files: Mapping[str, File]


@dataclass
class Job:
    """One piece of work, and the latest of each kind of news about it.

    Args:
        work: what is done, in the solver's thread.
        same: equal for jobs with equal results; None where there is no other.
    """

    work: Callable[[Job], JobResult] | None
    same: object = None
    key: str = field(default_factory=lambda: secrets.token_urlsafe(16))
    state: str = WAITING
    result: JobResult | None = None
    error: str | None = None
    began: float = 0.0
    stop: threading.Event = field(default_factory=threading.Event)
    _news: dict[str, tuple[int, Any]] = field(default_factory=dict)
    _count: int = 0
    _shown: float = 0.0

    @property
    def facts(self) -> dict[str, Any] | None:
        """What it found, with the addresses of its files; None while it is not done."""
        if self.result is None:
            return None
        files = {name: f"/api/jobs/{self.key}/{file.name}" for name, file in self.result.files.items()}
        return {**self.result.facts, "files": files}

    def tell(self, name: str, data: Any) -> None:
        """Replace the news of a kind."""
        self._count += 1
        self._news[name] = (self._count, data)

    @property
    def progress(self) -> dict[str, Any]:
        """How far it is, as last told."""
        step: dict[str, Any] = self._news.get("progress", (0, {"step": 0, "total": 0, "seconds": 0.0}))[1]
        return step

    def news_after(self, number: int) -> list[tuple[int, str, Any]]:
        """What is newer, in its order."""
        return sorted((count, name, data) for name, (count, data) in list(self._news.items()) if count > number)

    def watch(
        self, step: int, total: int, info: Mapping[str, Any], preview: Callable[[Any], Any] | None = None
    ) -> None:
        """What solvers call: tells how far they are, and stops them."""
        self.check()
        now = time.monotonic()
        self.tell("progress", {"step": step, "total": total, "seconds": round(now - self.began, 2)})
        if preview is not None and "map" in info and now - self._shown >= EVERY:
            self.tell("preview", preview(info["map"]()))
            self._shown = time.monotonic()

    def check(self) -> None:
        if self.stop.is_set():
            raise Stopped

    def end(self, state: str, result: JobResult | None = None, error: str | None = None) -> None:
        self.result, self.error, self.state = result, error, state
        self._news.pop("preview", None)
        words = {DONE: self.facts, FAILED: {"error": error}, STOPPED: {}}
        self.tell(state, words[state])


class JobQueue:
    """One thread that works off the line of jobs, and the results of the last ones."""

    def __init__(self) -> None:
        self._line: queue.Queue[Job | None] = queue.Queue()
        self._jobs: OrderedDict[str, Job] = OrderedDict()
        self._lock = threading.Lock()
        self._current: Job | None = None
        self._thread = threading.Thread(target=self._work, name="solver", daemon=True)
        # between two steps of a solver the network is asked many times: a stop need not wait for the step's end
        self._hook = register_module_forward_pre_hook(self._check)
        self._thread.start()

    def add(self, job: Job) -> Job:
        """Put a job into the line; a full line refuses."""
        with self._lock:
            if self._line.qsize() >= MOST_WAITING:
                sentence = f"at most {MOST_WAITING} jobs may wait, and so many do; try again later"
                raise Refusal(503, sentence, {"Retry-After": str(RETRY)})
            self._jobs[job.key] = job
            self._forget()
            self._line.put(job)
        return job

    def __getitem__(self, key: str) -> Job:
        with self._lock:
            if key not in self._jobs:
                raise Refusal(404, "the job must be one that was asked for, got an unknown one; old ones are forgotten")
            return self._jobs[key]

    def ahead(self, job: Job) -> int:
        """How many jobs come first."""
        with self._line.mutex:
            line = [each for each in self._line.queue if each is not None and not each.stop.is_set()]
        return (line.index(job) if job in line else 0) + (self._current is not None)

    def close(self) -> None:
        """Stop what runs and what waits."""
        with self._lock:
            for job in self._jobs.values():
                job.stop.set()
        self._line.put(None)
        self._thread.join(timeout=10)
        self._hook.remove()

    def _work(self) -> None:
        while (job := self._line.get()) is not None:
            self._current = job
            try:
                self._run(job)
            finally:
                self._current = None

    def _run(self, job: Job) -> None:
        job.began, job.state = time.monotonic(), RUNNING
        try:
            job.check()
            known = self._find_same(job)
            assert job.work is not None
            job.end(DONE, job.work(job) if known is None else known)
        except Stopped:
            job.end(STOPPED)
        except Refusal as error:
            job.end(FAILED, error=str(error))
        except Exception as error:
            log.debug("a job failed", exc_info=True)
            hidden = isinstance(error, OSError)  # its text may have a path
            job.end(FAILED, error="the server could not read a file that it needs" if hidden else describe_error(error))
        finally:
            job.work = None  # it holds the photo

    def _find_same(self, job: Job) -> JobResult | None:
        """The result of an equal job, with its news."""
        with self._lock:
            for other in reversed(self._jobs.values()):
                if other.state == DONE and job.same is not None and other.same == job.same:
                    for _, name, data in other.news_after(0):
                        if name == "classes":
                            job.tell(name, data)
                    return other.result
        return None

    def _check(self, module: nn.Module, inputs: Any) -> None:
        if self._current is not None and threading.current_thread() is self._thread:
            self._current.check()

    def _forget(self) -> None:
        """Drop old results, and the oldest where they are many; never what waits or runs."""
        now = time.monotonic()
        over = [job for job in self._jobs.values() if job.state in OVER]
        many = len(over) - KEPT
        for number, job in enumerate(over):
            if number < many or now - job.began > KEPT_SECONDS:
                del self._jobs[job.key]
