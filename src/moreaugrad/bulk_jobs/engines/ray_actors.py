"""Workers as actors of a Ray cluster, which places them, starts them again, and may grow for them.

Parts are handed out one by one by this process, so Ray Data and its checkpoints have nothing to do here: a part that
is there is done, whichever engine wrote it.
"""

from __future__ import annotations

import logging
import os
import pickle
import socket
import subprocess
import sys
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any

from moreaugrad.bulk_jobs.engines.base import Broken, Died, Event, Finished
from moreaugrad.bulk_jobs.worker import Done, Task

PATIENCE = 10  # seconds for a cluster to answer
RETRIES = 3  # of the loading of a model; that of a part is for this process, which knows which images it holds
NAMES = ("images", "errors", "gradients")  # of the counters that Ray's metrics show, after "moreaugrad_"


class RayEngine:
    """Actors that explain parts.

    Args:
        spec: the pickled `WorkerSpec`, whose folder every node must see under the same name.
        workers: how many; None: as many as the cluster has room for now.
        address: of the cluster, as `ray.init` takes it; None starts one on this machine.
        gpus: of each worker; a fraction shares one.
        threads: CPUs of each worker.
    """

    def __init__(self, spec: bytes, workers: int | None, address: str | None, gpus: float, threads: int) -> None:
        ray = import_ray()
        self._ray, self._mine = ray, not ray.is_initialized()
        if self._mine:
            _connect(ray, address, threads)
        resources = ray.cluster_resources()
        room = resources.get("GPU", 0) / gpus if gpus else resources.get("CPU", 1) / threads
        self.workers = max(1, int(room)) if workers is None else workers
        remote = ray.remote(num_cpus=threads, num_gpus=gpus, max_restarts=-1, max_task_retries=0)(Actor)
        self._spec = ray.put(spec)
        self._actors = [remote.remote() for _ in range(self.workers)]
        self._starting: dict[Any, int] = {}
        self._ready: set[int] = set()
        self._tasks: dict[Any, tuple[int, Task]] = {}
        for worker in range(self.workers):
            self._start(worker)

    def idle(self) -> Sequence[int]:
        return sorted(self._ready - {worker for worker, _ in self._tasks.values()})

    def submit(self, worker: int, task: Task) -> None:
        self._tasks[self._actors[worker].run.remote(task, self._spec)] = worker, task

    def wait(self, seconds: float) -> Sequence[Event]:
        refs = [*self._tasks, *self._starting]
        found, _ = self._ray.wait(refs, num_returns=1, timeout=seconds) if refs else ([], [])
        return [event for ref in found if (event := self._read(ref)) is not None]

    def close(self) -> None:
        for actor in self._actors:
            with suppress(Exception):
                self._ray.kill(actor)
        if self._mine:
            self._ray.shutdown()

    def _start(self, worker: int) -> None:
        """Let an actor load the model. Ray waits for one that is being started again, and repeats a call that died."""
        start = self._actors[worker].start.options(max_task_retries=RETRIES)
        self._starting[start.remote(self._spec)] = worker

    def _read(self, ref: Any) -> Event | None:
        """What became of a call. An actor that is gone is started again by Ray; then it says that it is ready."""
        starting = self._starting.pop(ref, None)
        worker, task = (starting, None) if starting is not None else self._tasks.pop(ref)
        try:
            found = self._ray.get(ref)
        except self._ray.exceptions.RayTaskError as error:
            return Broken(_describe(error.cause))
        except self._ray.exceptions.RayError as error:  # the actor, its node, or the way to it
            self._ready.discard(worker)
            self._start(worker)
            return Died(worker, task, type(error).__name__)
        if isinstance(found, Broken):
            return found
        if not isinstance(found, Done) or task is None:
            self._ready.add(worker)
            return None
        return Finished(worker, task, found)


class Actor:
    """The worker of one actor. What goes wrong is returned, so that Ray does not take it for its own."""

    def start(self, spec: bytes) -> Broken | None:
        """Load the model; called again after Ray has started the actor again."""
        from ray.util.metrics import Counter

        from moreaugrad.bulk_jobs.worker import Worker

        try:
            found = pickle.loads(spec)
            found = replace(found, device="cuda" if found.device.startswith("cuda") else found.device)
            Worker.prepare_process(found)
            self._worker = Worker(found)
        except Exception as error:
            return Broken(_describe(error))
        self._counters = {name: Counter(f"moreaugrad_{name}", f"{name} of bulk runs so far") for name in NAMES}
        return None

    def run(self, task: Task, spec: bytes) -> Done | Broken:
        from moreaugrad.bulk_jobs.worker import DeviceLost

        if not hasattr(self, "_worker") and (broken := self.start(spec)):  # the actor died while it had no task
            return broken
        try:
            done: Done = self._worker.run(task)
        except DeviceLost:
            os._exit(70)
        except Exception as error:
            return Broken(_describe(error))
        self._count(done)
        return done

    def _count(self, done: Done) -> None:
        for name, counter in self._counters.items():
            if number := getattr(done, name):
                counter.inc(number)


def import_ray() -> Any:
    """Ray, or one sentence on how to get it."""
    try:
        import ray
    except ImportError as error:
        raise ImportError(
            "engine='ray' needs Ray, which is not installed; pip install 'moreaugrad[ray]', or use engine='local'"
        ) from error
    return ray


def _connect(ray: Any, address: str | None, threads: int) -> None:
    """Start a cluster on this machine, or join one."""
    os.environ.setdefault("RAY_worker_niceness", "0")  # else workers give way to everything else
    os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
    environment = {"OMP_WAIT_POLICY": "PASSIVE", "OMP_NUM_THREADS": str(threads)}
    environment |= {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))} if address is None else {}
    given: dict[str, Any] = {"runtime_env": {"env_vars": environment}, "log_to_driver": False}
    given |= {"logging_level": logging.ERROR, "configure_logging": False}
    if address is not None:
        _check_cluster(str(address))
    try:
        ray.init(address=address or "local", **given)
    except (ConnectionError, RuntimeError, TimeoutError, ValueError) as error:
        raise _refuse_address(address, _describe(error)) from error


def _check_cluster(address: str) -> None:
    """Refuse an address at which no cluster answers, for which Ray itself would wait for minutes."""
    host, colon, port = address.removeprefix("ray://").rpartition(":")
    if address != "auto" and not (colon and port.isdecimal()):
        raise ValueError(f"--address must be HOST:PORT, ray://HOST:PORT or auto, got {address!r}")
    try:
        if address.startswith("ray://"):  # a proxy, which the check below does not know
            socket.create_connection((host.strip("[]"), int(port)), timeout=PATIENCE).close()
            return
        command = [sys.executable, "-m", "ray.scripts.scripts", "health-check"]
        command += [] if address == "auto" else ["--address", address]
        found = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE, check=False)
    except (OSError, OverflowError) as error:
        raise _refuse_address(address, str(error)) from error
    except subprocess.TimeoutExpired:
        raise _refuse_address(address, f"no answer within {PATIENCE} s") from None
    if found.returncode:
        raise _refuse_address(address, (found.stderr.strip() or "nothing answers").splitlines()[-1].split(". ")[0])


def _refuse_address(address: str | None, reason: str) -> ConnectionError:
    return ConnectionError(
        f"--address must be that of a Ray cluster that runs and lets you in, got {address!r}: {reason}; start one with "
        "`ray start --head` (and set RAY_AUTH_MODE=token where it asks for a token), or leave --address out"
    )


def _describe(error: BaseException) -> str:
    from moreaugrad.api import describe_error

    return describe_error(error)
