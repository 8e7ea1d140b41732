"""Jobs: what visitors ask for, done one after the other by one thread, told while it happens, stopped at will."""

from __future__ import annotations

import logging
import queue
import re
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
KEPT, KEPT_BYTES, KEPT_SECONDS = 48, 500_000_000, 3600  # results; those that were made first go first
EVERY = 0.25  # seconds between two previews
WAITING, RUNNING, DONE, FAILED, STOPPED = "waiting", "running", "done", "failed", "stopped"
OVER = (DONE, FAILED, STOPPED)
FOLDERS = re.compile(r"(?<![\w.:/])(?:[A-Za-z]:)?[\\/](?:[^\s\\/'\"<>|]+[\\/])+")


def hide_folders(text: str) -> str:
    """A text with the names of files, but not of the folders that they are in: those are nobody's business."""
    return FOLDERS.sub("", text)


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
    """What a job found: facts for JSON, files by what they are, and about how many bytes it takes to keep them."""

    facts: Mapping[str, Any]
    files: Mapping[str, File]
    size: int = 0


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
    ended: float = 0.0
    stop: threading.Event = field(default_factory=threading.Event)
    listeners: int = 0
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
        self.result, self.error, self.ended = result, error, time.monotonic()
        self._news.pop("preview", None)
        words = {DONE: self.facts, FAILED: {"error": error}, STOPPED: {}}
        self.tell(state, words[state])
        self.state, self.work = state, None  # the work holds the photo; the state last, as listeners leave by it


class JobQueue:
    """One thread that works off the line of jobs, and the results of the last ones."""

    def __init__(self) -> None:
        self._line: queue.Queue[Job | None] = queue.Queue()
        self._jobs: OrderedDict[str, Job] = OrderedDict()
        self._lock = threading.Lock()
        self._current: Job | None = None
        self.closing = False
        self._thread = threading.Thread(target=self._work, name="solver", daemon=True)
        # between two steps of a solver the network is asked many times: a stop need not wait for the step's end
        self._hook = register_module_forward_pre_hook(self._check)
        self._thread.start()

    def add(self, job: Job) -> Job:
        """Put a job into the line; a full line refuses."""
        with self._lock:
            if len(self._waiting()) >= MOST_WAITING:
                sentence = f"at most {MOST_WAITING} jobs may wait, and so many do; try again later"
                raise Refusal(503, sentence, {"Retry-After": str(RETRY)})
            self._jobs[job.key] = job
            self._line.put(job)
        self.forget()
        return job

    def stop(self, job: Job) -> None:
        """Stop a job; one that waits is over at once."""
        job.stop.set()
        with self._lock:
            if job.state == WAITING:
                job.end(STOPPED)

    def __getitem__(self, key: str) -> Job:
        self.forget()
        with self._lock:
            if key not in self._jobs:
                raise Refusal(404, "the job must be one that was asked for, got an unknown one; old ones are forgotten")
            return self._jobs[key]

    def ahead(self, job: Job) -> int:
        """How many jobs come first."""
        line = self._waiting()
        return (line.index(job) if job in line else 0) + (self._current is not None)

    def stop_all(self) -> None:
        """Stop what runs and what waits, and whoever listens to it."""
        self.closing = True
        for job in list(self._jobs.values()):
            job.stop.set()

    def close(self) -> None:
        """Stop all jobs and the thread; a network in the middle of a pass is not waited for."""
        self.stop_all()
        self._line.put(None)
        self._thread.join(timeout=1)
        self._hook.remove()

    def forget(self) -> None:
        """Drop old results, and the oldest where they are many or large; never the last, nor what waits or runs."""
        with self._lock:
            over = [job for job in self._jobs.values() if job.state in OVER]
            done = [job for job in over if job.result is not None]
            rest = [job for job in over if job.result is None]
            large = sum(job.result.size for job in done if job.result is not None)
            now = time.monotonic()
            for jobs in (done, rest):
                many = len(jobs) - KEPT
                for number, job in enumerate(jobs):
                    too_large = job.result is not None and large > KEPT_BYTES and job is not done[-1]
                    if number < many or too_large or now - job.ended > KEPT_SECONDS:
                        large -= 0 if job.result is None else job.result.size
                        del self._jobs[job.key]

    def _waiting(self) -> list[Job]:
        with self._line.mutex:
            return [each for each in self._line.queue if each is not None and not each.stop.is_set()]

    def _work(self) -> None:
        while (job := self._line.get()) is not None:
            with self._lock:  # a job is stopped either before it runs or by itself
                if job.state != WAITING:
                    continue
                job.began, job.state = time.monotonic(), RUNNING
            self._current = job
            try:
                self._run(job)
            finally:
                self._current = None

    def _run(self, job: Job) -> None:
        try:
            job.check()
            known = self._find_same(job)
            assert job.work is not None
            job.end(DONE, job.work(job) if known is None else known)
        except Stopped:
            job.end(STOPPED)
        except Refusal as error:
            job.end(FAILED, error=str(error))
        except BaseException as error:  # whatever a network does, the thread lives on
            log.debug("a job failed", exc_info=True)
            job.end(FAILED, error=hide_folders(describe_error(error)))

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
