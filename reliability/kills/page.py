"""The web page under kills: the port is free afterwards, and its cache holds whole files only."""

from __future__ import annotations

import http.client
import random
import signal
import socket
import time
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING
from zipfile import ZipFile

from reliability.commands import Command
from reliability.kills.process import LONGEST, Forked

if TYPE_CHECKING:
    from reliability.kills.__main__ import Tally

SERVE = Command("serve --model lipschitz_cifar10 --examples photos --quiet --port", "cache")
MODERATE = 3.0  # seconds of service before a kill, at most


def kill(folder: Path, tally: Tally, kills: int, chance: random.Random) -> Tally:
    """Serve, ask, kill, and serve again on the same port."""
    port = find_port()
    while tally.kills.total() < kills:
        tally.runs += 1
        run = Forked(SERVE, folder, [*SERVE.arguments(), str(port)])
        answered = ask(port, run)
        if not answered:
            tally.faults.append(f"the server did not answer: {run.code}: {run.said()[-600:]}")
            run.end(signal.SIGKILL)
            return tally
        until = time.monotonic() + chance.uniform(0, MODERATE)
        while time.monotonic() < until:
            get(port, "/api/models")
        number = chance.choice((signal.SIGKILL, signal.SIGINT, signal.SIGTERM))
        tally.kills[number.name] += 1
        tally.slowest = max(tally.slowest, run.end(number))
        lines = [line for line in run.said().splitlines() if not line.startswith("http://")]
        ended = run.code == -number if number == signal.SIGKILL else run.code in (0, 130) and len(lines) <= 1
        if not ended or any("Traceback" in line for line in lines):
            tally.faults.append(f"{number.name}: exit code {run.code}: {run.said()[-600:]}")
        tally.faults += judge_cache(folder / "cache" / "moreaugrad", number == signal.SIGKILL)
        if not is_free(port):
            tally.faults.append(f"the port is taken after {number.name}")
    tally.finished = tally.runs
    return tally


def ask(port: int, run: Forked) -> bool:
    """Whether the page comes, before the process ends."""
    until = time.monotonic() + 3 * LONGEST
    while time.monotonic() < until and run.wait(0) is None:
        if get(port, "/") == 200:
            return True
        time.sleep(0.02)
    return False


def get(port: int, path: str) -> int | None:
    """The status of an answer."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=5)
    with suppress(OSError, http.client.HTTPException):
        connection.request("GET", path)
        return connection.getresponse().status
    return None


def judge_cache(cache: Path, killed: bool) -> list[str]:
    """What is wrong with the files that a server leaves."""
    faults = [f"left {path.name}" for path in cache.glob(".*") if not killed]
    for path in cache.glob("[!.]*"):
        with ZipFile(path) as archive:
            faults += [f"{path.name} is damaged"] * (archive.testzip() is not None)
    return faults


def find_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as place:
        return int(place.getsockname()[1])


def is_free(port: int) -> bool:
    with suppress(OSError), socket.create_server(("127.0.0.1", port)):
        return True
    return False
