"""Runs the cases of a target in a process that is watched: a case that hangs or ends its process is a failure."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from queue import Empty, Queue
from threading import Thread
from typing import IO, Any

from reliability.fuzz.targets import make

LONGEST = 20.0  # seconds of a case
START = 120.0  # seconds until a process is ready
BATCH = 500  # cases of one process, so that memory of one does not count for the next


@dataclass(frozen=True)
class Failure:
    """A case whose answer is wrong; `python -m reliability.fuzz --only TARGET:NUMBER --seed SEED` runs it alone."""

    target: str
    number: int
    name: str
    fault: str


def run_cases(target: str, seed: int, first: int, count: int) -> Iterator[tuple[int, Failure | None]]:
    """The cases of a target, each with what is wrong with it."""
    at, end = first, first + count
    while at < end:
        for number, fault in _run_process(target, seed, at, min(at + BATCH, end)):
            yield number, None if fault is None else Failure(target, number, _name(target, seed, number), fault)
            at = number + 1


def _name(target: str, seed: int, number: int) -> str:
    try:
        return make(target, seed, number).name
    except Exception as error:
        return f"a case that cannot be made: {error!r}"


def _run_process(target: str, seed: int, first: int, last: int) -> Iterator[tuple[int, str | None]]:
    """Cases until the last one, or until one of them ends the process."""
    with tempfile.TemporaryDirectory() as scratch, (Path(scratch) / "errors").open("w+b") as errors:
        process = subprocess.Popen(
            [sys.executable, "-m", "reliability.fuzz.worker", target, *map(str, (seed, first, last))],
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
            start_new_session=True,  # so that what a case starts ends with it
            env=os.environ | {"TMPDIR": scratch, "OMP_NUM_THREADS": "1"},
        )
        lines: Queue[str] = Queue()
        reader = Thread(target=_forward, args=(process.stdout, lines))
        reader.start()
        at = first
        try:
            for news in _read(lines):
                if "end" in news:
                    yield news["end"], news["fault"]
                    at = news["end"] + 1
                elif "silent" in news:
                    process.send_signal(signal.SIGUSR1)
                    time.sleep(0.5)
                    yield at, f"hangs for more than {LONGEST:.0f} s: {_end_of(errors)}"
                    return
            if at < last:
                yield at, f"ended its process with exit code {process.wait()}: {_end_of(errors)}"
        finally:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            reader.join()


def _read(lines: Queue[str]) -> Iterator[dict[str, Any]]:
    """The news of a process; {"silent": True} where none comes for too long."""
    patience = START
    while True:
        try:
            line = lines.get(timeout=patience)
        except Empty:
            yield {"silent": True}
            return
        if not line:
            return
        yield json.loads(line)
        patience = LONGEST


def _forward(stream: IO[str], lines: Queue[str]) -> None:
    with stream:
        for line in stream:
            lines.put(line)
    lines.put("")


def _end_of(errors: IO[bytes]) -> str:
    errors.seek(0)
    lines = errors.read().decode(errors="replace").split("\n")  # of a stack: the innermost calls come first
    return " | ".join(lines if len(lines) <= 24 else [*lines[:12], "...", *lines[-12:]])[:3000]
