"""Workers as processes of this machine, started afresh: nothing of this process but what they are sent.

They talk through their standard input and output, in pickles. A worker whose input ends, because the process that
started it was killed, ends at once.
"""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
from collections.abc import Sequence
from contextlib import suppress
from queue import Empty, Queue
from threading import Thread
from typing import Any

from moreaugrad.bulk_jobs.engines.base import Broken, Died, Event, Finished, Progress
from moreaugrad.bulk_jobs.worker import Done, Task

START = "from moreaugrad.bulk_jobs.engines.process import main; main()"


class LocalEngine:
    """Worker processes, each with its own device.

    Args:
        spec: the pickled `WorkerSpec`.
        devices: of each worker.
        threads: of each worker on a CPU.
    """

    def __init__(self, spec: bytes, devices: Sequence[str], threads: int) -> None:
        self._spec, self._devices, self._threads = spec, devices, threads
        self.workers = len(devices)
        self._heard: Queue[tuple[int, subprocess.Popen[bytes], Any]] = Queue()
        self._ready: set[int] = set()
        self._tasks: dict[int, Task] = {}
        self._processes = [self._start(worker) for worker in range(len(devices))]

    def idle(self) -> Sequence[int]:
        return sorted(self._ready - self._tasks.keys())

    def submit(self, worker: int, task: Task) -> None:
        self._tasks[worker] = task
        self._send(worker, task)

    def wait(self, seconds: float) -> Sequence[Event]:
        try:
            worker, process, message = self._heard.get(timeout=seconds)
        except Empty:
            return []
        if process is not self._processes[worker]:  # the last words of one that was replaced
            return []
        found: Event | None = None
        match message:
            case "ready":
                self._ready.add(worker)
            case int():
                found = Progress(worker, message)
            case Done():
                found = Finished(worker, self._tasks.pop(worker), message)
            case Broken():
                found = message
            case None:
                found = self._replace(worker)
        return [] if found is None else [found]

    def close(self) -> None:
        for process in self._processes:
            process.kill()
        for process in self._processes:
            _bury(process)

    def _start(self, worker: int) -> subprocess.Popen[bytes]:
        environment = os.environ | {
            "PYTHONPATH": os.pathsep.join(filter(None, sys.path)),
            "OMP_WAIT_POLICY": "PASSIVE",  # threads that wait by spinning take the cores from other workers
            "OMP_NUM_THREADS": str(self._threads),
        }
        process = subprocess.Popen(
            [sys.executable, "-P", "-c", START], stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment
        )
        Thread(target=self._listen, args=(worker, process), daemon=True).start()
        Thread(target=self._greet, args=(worker, process), daemon=True).start()
        return process

    def _greet(self, worker: int, process: subprocess.Popen[bytes]) -> None:
        """Send what a worker begins with; it may be long, and the worker is still importing."""
        assert process.stdin is not None
        with suppress(OSError):  # it is gone; who listens to it says so
            pickle.dump((self._devices[worker], self._spec), process.stdin)
            process.stdin.flush()

    def _listen(self, worker: int, process: subprocess.Popen[bytes]) -> None:
        assert process.stdout is not None
        try:
            while True:
                self._heard.put((worker, process, pickle.load(process.stdout)))
        except Exception:  # the end, or half a message
            process.stdout.close()
            self._heard.put((worker, process, None))

    def _send(self, worker: int, message: Any) -> None:
        stdin = self._processes[worker].stdin
        assert stdin is not None
        with suppress(OSError):  # as above
            pickle.dump(message, stdin)
            stdin.flush()

    def _replace(self, worker: int) -> Died:
        process = self._processes[worker]
        process.kill()
        code = _bury(process)
        self._ready.discard(worker)
        died = Died(worker, self._tasks.pop(worker, None), f"signal {-code}" if code < 0 else f"exit code {code}")
        self._processes[worker] = self._start(worker)
        return died


def _bury(process: subprocess.Popen[bytes]) -> int:
    """The exit code of a process that was killed, when nothing of it is left."""
    code = process.wait()
    with suppress(OSError):  # what was written may not have been read
        if process.stdin is not None:
            process.stdin.close()
    return code
