"""Failures planted at every call of a model and at every write of a command, and what each of them leaves behind.

python -m reliability.failures [--most 40] [--stride 1] [--commands a,b]

`most`: failures of each thing that calls a model; `stride`: fail at every so-many-th write.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from io import StringIO
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from benchmarks import record
from reliability import commands, failing_calls, failing_writes, tiny
from reliability.commands import COMMANDS

SHOWN = 20  # faults of one thing that are told and stored


def main() -> None:
    args = record.arguments(__doc__, data=False, most=40, stride=1, commands="")
    began = time.perf_counter()
    rows = [] if args.commands else [{"what": "model calls", **row} for row in fail_calls(args.most)]
    chosen = args.commands.split(",") if args.commands else list(COMMANDS)
    rows += [{"what": "writes", **row} for row in fail_writes(chosen, args.stride)]
    faults = sum(row["faults"] for row in rows)
    counts = {
        f"{what} failed": sum(row["failures"] for row in rows if row["what"] == what)
        for what in ("model calls", "writes")
    }
    results = {**counts, "faults": faults, "kinds": list(failing_writes.KINDS), "rows": rows}
    print(counts, f"{faults} faults, {time.perf_counter() - began:.0f} s")
    if not args.commands:
        record.store("failures", "cpu", results | {"seconds": time.perf_counter() - began}, args.out)
    sys.exit(bool(faults))


def fail_calls(most: int) -> Iterator[dict[str, Any]]:
    """Failures of models, by what calls them."""
    for name, make in failing_calls.list_subjects().items():
        yield tell(name, *failing_calls.fail_everywhere(name, make, most))


def fail_writes(names: list[str], stride: int) -> Iterator[dict[str, Any]]:
    """Failures of writes, by command."""
    for name in names:
        with workplace():
            command = COMMANDS[name]
            with redirect_stdout(StringIO()), redirect_stderr(StringIO()):
                if command.before is not None:
                    commands.run(COMMANDS[command.before])
                put_back = failing_writes.save(Path(command.out))
                commands.run(command)  # loads what is loaded once
                put_back()
            yield tell(name, *failing_writes.fail_everywhere(command, stride))


@contextmanager
def workplace() -> Iterator[Path]:
    """A folder with inputs, which is the current one meanwhile."""
    before = Path.cwd()
    with TemporaryDirectory() as name:
        folder = Path(name).resolve()
        tiny.make_inputs(folder)
        os.chdir(folder)
        try:
            yield folder
        finally:
            os.chdir(before)


def tell(name: str, count: int, faults: list[str]) -> dict[str, Any]:
    for fault in faults[:SHOWN]:
        print(f"{name}: {fault}"[:600])
    print(f"{name}: {count} failures, {len(faults)} faults", flush=True)
    return {"name": name, "failures": count, "faults": len(faults), "examples": faults[:SHOWN]}


if __name__ == "__main__":
    main()
