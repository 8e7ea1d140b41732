"""Signals at random moments of every command that works for long, and whether the next run makes up for them.

python -m reliability.kills [--kills 100] [--seed 0] [--commands explain,serve]

Most runs are forked from this process, so that a kill finds them at work and not at their imports; every fifth one is
a process of its own, killed while it starts.
"""

from __future__ import annotations

import json
import os
import random
import signal
import sys
import time
from collections import Counter
from contextlib import closing, redirect_stderr, redirect_stdout
from dataclasses import dataclass, field
from io import StringIO
from pathlib import Path
from typing import Any

import torch

from benchmarks import record
from moreaugrad.training import trainer
from reliability import commands
from reliability.commands import COMMANDS, Command
from reliability.failing_writes import judge_folder
from reliability.failures import workplace
from reliability.kills import page
from reliability.kills.process import LONGEST, Forked, Run, Started

SIGNALS = (signal.SIGKILL, signal.SIGINT, signal.SIGTERM)
CHOSEN = ("explain", "compare", "robustness", "train", "paper", "bulk", "serve")
OWN = 5  # every so-many-th run is a process of its own


@dataclass
class Tally:
    """What became of the kills of one command."""

    command: str
    kills: Counter[str] = field(default_factory=Counter)  # by signal
    runs: int = 0
    finished: int = 0  # folders that were completed, and compared
    different: int = 0
    slowest: float = 0.0  # seconds from INT or TERM to the end
    faults: list[str] = field(default_factory=list)

    def describe(self) -> dict[str, Any]:
        return {**vars(self), "kills": dict(self.kills), "faults": len(self.faults), "examples": self.faults[:10]}


def main() -> None:
    args = record.arguments(__doc__, data=False, kills=100, seed=0, commands="")
    torch.set_num_threads(1)  # as forked processes have, for two threads round differently
    trainer.SAVE_EVERY = 0.0  # so that a short training has checkpoints to go on from
    names, began = args.commands.split(",") if args.commands else list(CHOSEN), time.perf_counter()
    rows = []
    for number, name in enumerate(names):
        each = args.kills * (number + 1) // len(names) - args.kills * number // len(names)
        chance = random.Random(f"{name}/{args.seed}")
        with workplace() as folder:
            tally = (
                page.kill(folder, Tally(name), each, chance) if name == "serve" else kill(folder, name, each, chance)
            )
        rows.append(tally.describe())
        print(json.dumps(rows[-1]), flush=True)
    kills = {each.name: sum(row["kills"].get(each.name, 0) for row in rows) for each in SIGNALS}
    sums = {what: sum(row[what] for row in rows) for what in ("finished", "different", "faults")}
    print(kills, sums)
    if not args.commands:
        seconds = time.perf_counter() - began
        record.store("kills", "cpu", {"kills": kills, **sums, "commands": rows, "seconds": seconds}, args.out)
    sys.exit(bool(sums["faults"]))


def kill(folder: Path, name: str, kills: int, chance: random.Random) -> Tally:
    """Kill a command so many times; each folder is completed in the end, and compared with an undisturbed one."""
    command, tally = COMMANDS[name], Tally(name)
    out = folder / command.out
    whole, longest = run_undisturbed(command, out)
    dirty = False
    while tally.kills.total() < kills:
        tally.runs += 1
        own = tally.runs % OWN == 0
        run: Run = Started(command, folder) if own else Forked(command, folder)
        number = chance.choice(SIGNALS)
        if run.wait(chance.uniform(0, LONGEST / 4 if own else longest)) is None:
            tally.kills[number.name] += 1
            tally.slowest = max(tally.slowest, run.end(number))
            judge_end(run, command, number, own, tally)
        elif run.code != 0:
            tally.faults.append(f"ended by itself with exit code {run.code}: {run.said()}")
        run.close()
        dirty = dirty or run.code == -signal.SIGKILL  # what it left goes with the run that completes the folder
        tally.faults += [f"after {number.name}: {fault}" for fault in judge_folder(out, whole, dirty)]
        if run.code == 0:
            dirty = False
            complete(command, out, whole, tally)
    complete(command, out, whole, tally)
    return tally


def run_undisturbed(command: Command, out: Path) -> tuple[dict[str, Any], float]:
    """What the folder holds in the end, and how long it takes; in this process, which then has loaded everything."""
    with redirect_stdout(StringIO()), redirect_stderr(StringIO()):
        assert commands.run(command) == 0
    whole = commands.read_contents(out)
    clear(out)
    began = time.monotonic()
    with closing(Forked(command, out.parent)) as run:
        assert run.wait(300) == 0, run.said()
    clear(out)
    return whole, time.monotonic() - began


def complete(command: Command, out: Path, whole: dict[str, Any], tally: Tally) -> None:
    """Finish a folder, compare it, and clear it away."""
    with closing(Forked(command, out.parent)) as run:
        if run.wait(300) != 0:
            tally.faults.append(f"the last run ended with exit code {run.code}: {run.said()}")
    found = commands.read_contents(out)
    names = sorted(name for name in {*whole, *found} if whole.get(name) != found.get(name))
    tally.finished, tally.different = tally.finished + 1, tally.different + bool(names)
    tally.faults += [f"in the end {name} differs" for name in names]
    tally.faults += [f"in the end {name} is left" for name in commands.find_left(out)]
    clear(out)


def clear(out: Path) -> None:
    os.rename(out, out.with_name(f"done{time.monotonic_ns()}"))  # noqa: PTH104 - as the system does it


def judge_end(run: Run, command: Command, number: signal.Signals, own: bool, tally: Tally) -> None:
    """Signal 9 ends a process; the others end it with one line and exit code 130, or before it has any work."""
    said = run.said()
    if number == signal.SIGKILL:
        fine = run.code in (-signal.SIGKILL, 0)
    elif run.code == 0:  # it was at its end
        fine = True
    elif own and run.code in (-signal.SIGINT, -signal.SIGTERM):  # Python itself was starting
        fine = command.module != "moreaugrad" or "moreaugrad" not in said
    else:
        fine = run.code == 130 and "Traceback" not in said and sum(map(is_error, said.splitlines())) == 1
    if not fine:
        tally.faults.append(f"{number.name}: exit code {run.code}: {said[-600:]}")


def is_error(line: str) -> bool:
    return line.startswith(("error: ", "interrupted: "))


if __name__ == "__main__":
    main()
