"""Whether `moreaugrad bulk` loses or doubles anything when its processes are killed at random moments.

Explains a folder of small photos undisturbed, then again and again while signal 9 ends drivers and workers of local
processes and of a Ray cluster; resumes until all is done, and compares every row, its map bit by bit.

python -m reliability.kills.bulk [--files 160] [--local 60] [--ray 40] [--seed 0]
"""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import moreaugrad as mg
from benchmarks import record
from reliability.kills.explain import make_photos

COMMAND = ["bulk", "photos", "--model", "lipschitz_cifar10", "--device", "cpu", "--method", "smoothgrad"]
OPTIONS = ["--samples", "2000", "--workers", "2", "--part-size", "2", "--quiet"]
DRIVER = 0.25  # share of the kills that end the driver
WORKERS = {"local": "bulk_jobs.engines.process", "ray": "ray::"}  # in the command lines of workers
LONGEST = {"local": 6.0, "ray": 12.0}  # seconds between two kills, at most; a driver needs most of them to start


def main() -> None:
    args = record.arguments(__doc__, data=False, files=160, local=60, ray=40, seed=0)
    chance = random.Random(args.seed)
    with TemporaryDirectory() as name:
        folder = Path(name)
        make_photos(folder / "photos", args.files, args.seed)
        began = time.perf_counter()
        assert start(folder, "undisturbed", "local").wait() == 0
        seconds = time.perf_counter() - began
        whole = mg.open_maps(folder / "undisturbed")
        found = {}
        for engine, kills in (("local", args.local), ("ray", args.ray)):
            found[engine] = disturb(folder, engine, kills, whole, chance)
            print(json.dumps({engine: found[engine]}), flush=True)
    record.store("bulk_kills", "cpu", {"files": args.files, "seconds_undisturbed": seconds, **found}, args.out)


def disturb(folder: Path, engine: str, kills: int, whole: mg.BulkMaps, chance: random.Random) -> dict[str, Any]:
    """Jobs, one after the other, until so many processes were killed; and how their rows differ from the whole."""
    killed: Counter[str] = Counter()
    outcome = {"jobs": 0, "starts": 0, "lost": 0, "doubled": 0, "different": 0, "errors": 0, "drafts": 0}
    began = time.perf_counter()
    while killed["driver"] + killed["worker"] < kills:
        out = f"{engine}{outcome['jobs']}"
        outcome["starts"] += run_under_fire(folder, out, engine, kills, killed, chance)
        compare(mg.open_maps(folder / out), whole, outcome)
        outcome["jobs"] += 1
    return {"kills": dict(killed), **outcome, "seconds": time.perf_counter() - began}


def run_under_fire(folder: Path, out: str, engine: str, kills: int, killed: Counter[str], chance: random.Random) -> int:
    """One job to its end, with a kill now and then. How often its driver was started."""
    starts = 0
    while True:
        driver, starts = start(folder, out, engine), starts + 1
        code = None
        while code is None:
            with suppress(subprocess.TimeoutExpired):
                code = driver.wait(chance.uniform(0.1, LONGEST[engine]))
            if code is None and killed["driver"] + killed["worker"] < kills:
                killed[kill(driver, engine, chance)] += 1
        if code == 0:
            return starts
        if code != -signal.SIGKILL:  # such as when Ray gives its only node up
            killed[f"ended with exit code {code}"] += 1
            print((folder / f"{out}.log").read_text()[-2000:], flush=True)
        wait_for_end_of_cluster(engine)


def kill(driver: subprocess.Popen[bytes], engine: str, chance: random.Random) -> str:
    """End the driver or one of its workers; what it was."""
    workers = [pid for pid, line in descendants(driver.pid) if WORKERS[engine] in line]
    if chance.random() < DRIVER:
        driver.kill()
        return "driver"
    if workers:
        with suppress(ProcessLookupError):
            os.kill(chance.choice(workers), signal.SIGKILL)
    return "worker" if workers else "none"


def descendants(parent: int) -> list[tuple[int, str]]:
    """Processes below another one, with their command lines."""
    listed = subprocess.run(["ps", "-wweo", "pid=,ppid=,args="], capture_output=True, text=True, check=True).stdout
    rows = [line.split(None, 2) for line in listed.splitlines()]
    below, found = {parent}, []
    for _ in range(8):
        found = [(int(pid), line) for pid, above, line in rows if int(above) in below]
        below |= {pid for pid, _ in found}
    return [(pid, line) for pid, line in found if pid != parent]


def wait_for_end_of_cluster(engine: str) -> None:
    """Ray ends the processes of a driver that is gone, which takes a moment."""
    end = time.monotonic() + 60
    while engine == "ray" and time.monotonic() < end:
        listed = subprocess.run(["ps", "-wweo", "args="], capture_output=True, text=True, check=True).stdout
        if "raylet" not in listed and "gcs_server" not in listed:
            return
        time.sleep(0.5)


def compare(found: mg.BulkMaps, whole: mg.BulkMaps, outcome: dict[str, int]) -> None:
    """Count what is lost, doubled or different."""
    counts = Counter(found.keys)
    outcome["lost"] += sum(key not in counts for key in whole.keys)
    outcome["doubled"] += sum(count > 1 for count in counts.values())
    outcome["errors"] += len(found.errors)
    outcome["drafts"] += len(list(found.folder.glob(".*.tmp")))
    outcome["different"] += found.digest() != whole.digest()


def start(folder: Path, out: str, engine: str) -> subprocess.Popen[bytes]:
    """The command, in a process of its own."""
    command = [sys.executable, "-m", "moreaugrad", *COMMAND, *OPTIONS, "--engine", engine, "--out", out]
    with (folder / f"{out}.log").open("ab") as log:
        return subprocess.Popen(command, cwd=folder, stderr=log, stdout=log)


if __name__ == "__main__":
    main()
