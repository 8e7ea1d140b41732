"""Jobs that run in threads at the same time, compared with the same jobs alone, while a thread watches global state."""

from __future__ import annotations

import asyncio
import sys
import threading
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from reliability.state import changed, global_state

Job = Callable[[], list[Tensor]]
PATIENCE = 120.0  # seconds that threads have to end


@dataclass
class Verdict:
    """What came of jobs in threads.

    Attributes:
        calls: how many calls were compared.
        faults: what was wrong, each once.
        samples: how often the watching thread looked.
    """

    calls: int = 0
    faults: list[str] = field(default_factory=list)
    samples: int = 0

    def add(self, fault: str) -> None:
        if fault not in self.faults:
            self.faults.append(fault)


def run_together(jobs: Sequence[Job], wanted: Sequence[list[Tensor]], rounds: int = 1) -> Verdict:
    """Runs every job in a thread of its own, all from one barrier on; `wanted` is what each gives alone."""
    verdict, start = Verdict(), threading.Barrier(len(jobs))

    def work(number: int) -> None:
        try:
            start.wait(PATIENCE)
            for _ in range(rounds):
                compare(jobs[number](), wanted[number], verdict)
        except Exception as error:
            where = traceback.extract_tb(error.__traceback__)[-1]
            verdict.add(f"{type(error).__name__}: {str(error)[:200]} ({where.name})")

    threads = [threading.Thread(target=work, args=(number,), daemon=True) for number in range(len(jobs))]
    with watching(verdict):
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(PATIENCE)
    if any(thread.is_alive() for thread in threads):
        verdict.add("threads wait for each other")
    return verdict


def run_in_asyncio(jobs: Sequence[Job], wanted: Sequence[list[Tensor]], rounds: int = 1) -> Verdict:
    """The same by `asyncio.to_thread`."""
    verdict = Verdict()

    async def work() -> None:
        for _ in range(rounds):
            tasks = [asyncio.to_thread(job) for job in jobs]
            for found, alone in zip(await asyncio.wait_for(asyncio.gather(*tasks), PATIENCE), wanted, strict=True):
                compare(found, alone, verdict)

    with watching(verdict):
        loop = asyncio.new_event_loop()  # asyncio.run would take over the signals
        loop.run_until_complete(work())
        loop.run_until_complete(loop.shutdown_default_executor())
        loop.close()
    return verdict


def compare(found: list[Tensor], wanted: list[Tensor], verdict: Verdict) -> None:
    """Counts a call, and notes how far its result is from the one alone: it must be the same, bit for bit."""
    verdict.calls += 1
    gap = difference(found, wanted)
    if gap != 0:
        verdict.add(f"differs by {gap:.1e} of the largest entry")


def difference(found: Sequence[Tensor], wanted: Sequence[Tensor]) -> float:
    """The largest difference of two results, each relative to the largest entry; infinity where shapes differ."""
    worst = 0.0
    for one, two in zip(found, wanted, strict=True):
        if one.shape != two.shape or bool((one.isnan() != two.isnan()).any()):
            return float("inf")
        a, b = (each.detach().double().nan_to_num(0, 1e300, -1e300) for each in (one, two))
        if a.numel() and not torch.equal(a, b):
            worst = max(worst, float((a - b).abs().max() / b.abs().max().clamp_min(1e-300)))
    return worst


@contextmanager
def watching(verdict: Verdict) -> Iterator[None]:
    """A thread that looks at global state all the time: what it sees changed is a fault."""
    done, ready = threading.Event(), threading.Event()

    def look() -> None:
        before = look_once()
        ready.set()
        while not done.wait(0.002):
            for name in changed(before, look_once()):
                verdict.add(f"another thread sees changed: {name}")
            verdict.samples += 1

    before, watcher = global_state(), threading.Thread(target=look, daemon=True)
    watcher.start()
    ready.wait(PATIENCE)
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)  # threads change places in the midst of everything
    try:
        yield
    finally:
        sys.setswitchinterval(interval)
        done.set()
        watcher.join()
        for name in changed(before, global_state()):
            verdict.add(f"left changed: {name}")


def look_once() -> dict[str, Any]:
    """Global state without the filters of warnings that name a text: Captum's advice is left out by one, and other
    warnings pass it."""
    state = global_state()
    return state | {"warning filters": [each for each in state["warning filters"] if each[1] is None]}
