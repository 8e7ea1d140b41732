"""Writes that fail: every command, at every file that it opens for writing, writes, flushes, renames or makes.

After each failure no file under its own name is half written, nothing is left behind, and the next run completes the
folder to what an undisturbed run gives.
"""

from __future__ import annotations

import builtins
import errno
import gc
import io
import os
import shutil
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, redirect_stderr, redirect_stdout
from dataclasses import dataclass, field
from io import StringIO
from itertools import groupby
from pathlib import Path
from typing import Any
from unittest.mock import patch

from reliability import commands
from reliability.commands import Command
from reliability.state import changed, global_state

GROWING = ("results.jsonl", "rows.csv", "net.log.jsonl")  # lines are added to them
CHANGING = ("index.html", "net.checkpoint.pt", "report.html")  # replaced as the work goes on
KINDS: dict[str, Callable[[], BaseException]] = {
    "ENOSPC": lambda: OSError(errno.ENOSPC, "No space left on device"),
    "EIO": lambda: OSError(errno.EIO, "Input/output error"),
    "PermissionError": lambda: PermissionError(errno.EACCES, "Permission denied"),
    "KeyboardInterrupt": KeyboardInterrupt,
}
LASTING = ("ENOSPC", "PermissionError")  # a full disk stays full; the others happen once


@dataclass
class Disk:
    """Counts what changes files below a folder, and fails from, or at, one of these operations."""

    folder: Path
    at: int | None = None
    kind: str = "EIO"
    done: list[str] = field(default_factory=list)

    def step(self, what: str, path: object) -> None:
        """Counts an operation, or raises in its place."""
        self.done.append(f"{what} {Path(str(path)).name}")
        number = len(self.done) - 1
        if self.at is not None and (number == self.at or (number > self.at and self.kind in LASTING)):
            raise KINDS[self.kind]()

    def holds(self, path: object) -> bool:
        if not isinstance(path, str | os.PathLike):
            return False
        whole = os.path.abspath(os.fspath(path))  # noqa: PTH100 - links stay what they are
        return whole == str(self.folder) or whole.startswith(f"{self.folder}{os.sep}")

    @contextmanager
    def watched(self) -> Iterator[None]:
        """Every operation goes through `step` meanwhile."""
        open_file, sync = io.open, os.fsync

        def open_watched(path: Any, mode: str = "r", *more: Any, **options: Any) -> Any:
            if not set(mode) & set("wax+") or not self.holds(path):
                return open_file(path, mode, *more, **options)
            self.step("open", path)
            return _File(open_file(path, mode, *more, **options), self)

        def sync_watched(handle: int) -> None:
            path = Path(f"/proc/self/fd/{handle}").readlink()
            if self.holds(path):
                self.step("fsync", path)
            sync(handle)

        def wrap(name: str) -> Any:
            original = getattr(os, name)

            def changing(path: Any, *more: Any, **options: Any) -> Any:
                if self.holds(path):
                    self.step(name, more[0] if more and isinstance(more[0], str | os.PathLike) else path)
                return original(path, *more, **options)

            return patch.object(os, name, changing)

        with ExitStack() as stack:
            stack.enter_context(patch.object(io, "open", open_watched))
            stack.enter_context(patch.object(builtins, "open", open_watched))
            stack.enter_context(patch.object(os, "fsync", sync_watched))
            for name in ("rename", "replace", "mkdir"):
                stack.enter_context(wrap(name))
            yield


class _File:
    """A file whose writes may fail half-way."""

    def __init__(self, file: Any, disk: Disk) -> None:
        self._file, self._disk = file, disk

    def __getattr__(self, name: str) -> Any:
        return getattr(self._file, name)

    def __enter__(self) -> _File:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def write(self, data: Any) -> Any:
        try:
            self._disk.step("write", self._file.name)
        except BaseException:
            self._file.write(bytes(data)[: len(bytes(data)) // 2])
            raise
        return self._file.write(data)

    def close(self) -> None:
        if not self._file.closed:
            self._file.close()
            self._disk.step("close", self._file.name)


@dataclass
class Outcome:
    """What a command did in this process."""

    code: int | None
    said: str
    faults: list[str]


def run_watched(command: Command, disk: Disk) -> Outcome:
    """A command with operations that may fail, and what it left in this process."""
    said, faults, code = StringIO(), list[str](), None
    gc.freeze()  # what is there already need not be looked through
    before, threads, handles = global_state(), threading.active_count(), _count_handles()
    with redirect_stdout(StringIO()), redirect_stderr(said), disk.watched():
        try:
            code = commands.run(command)
        except BaseException as error:
            faults.append(f"{error!r} came out of the command")
    gc.collect()
    faults += [f"left changed: {name}" for name in changed(before, global_state())]
    faults += ["left a thread"] * (not settle_threads(threads))
    faults += ["left an open file"] * (_count_handles() > handles)
    faults += ["showed a traceback"] * ("Traceback" in said.getvalue())
    return Outcome(code, said.getvalue(), faults)


def settle_threads(most: int, seconds: float = 5.0) -> bool:
    """Whether no more threads are left, after those that are at their end have had time for it."""
    until = time.monotonic() + seconds
    while threading.active_count() > most and time.monotonic() < until:
        time.sleep(0.002)
    return threading.active_count() <= most


def _count_handles() -> int:
    return len(os.listdir("/proc/self/fd")) if sys.platform == "linux" else 0  # noqa: PTH208 - the folder changes


def fail_everywhere(command: Command, stride: int = 1) -> tuple[int, list[str]]:
    """Each kind of failure at each operation, or at each `stride`-th; how many there were, and what was wrong.

    The current folder holds the inputs of the commands.
    """
    out = Path(command.out).resolve()
    begin = save(out)
    first = Disk(out)
    outcome = run_watched(command, first)
    if outcome.code != 0 or outcome.faults:
        return 0, [f"undisturbed: code {outcome.code}, {outcome.faults}, {outcome.said}"]
    whole, faults, count = commands.read_contents(out), list[str](), 0
    for at in choose(first.done)[::stride]:
        for kind in KINDS:
            begin()
            found = fail_once(command, Disk(out, at, kind), whole)
            faults += [f"{kind} at {first.done[at]} ({at}): {each}" for each in found]
            count += 1
    begin()
    return count, faults


def choose(done: list[str]) -> list[int]:
    """The operations to fail at: all, but of many that are the same in a row the first, the last and the middle."""
    found: list[int] = []
    for _, places in groupby(range(len(done)), key=done.__getitem__):
        row = list(places)
        found += row if len(row) <= 3 else [row[0], row[len(row) // 2], row[-1]]
    return found


def save(folder: Path) -> Callable[[], None]:
    """A function that puts a folder back to what it holds now."""
    copy = folder.with_name(f"{folder.name}.saved")
    there = folder.is_dir()
    if there:
        shutil.copytree(folder, copy, dirs_exist_ok=True)

    def put_back() -> None:
        shutil.rmtree(folder, ignore_errors=True)
        if there:
            shutil.copytree(copy, folder)

    return put_back


def fail_once(command: Command, disk: Disk, whole: dict[str, Any]) -> list[str]:
    """What is wrong after one failure, and after the run that follows."""
    outcome = run_watched(command, disk)
    faults = outcome.faults + judge_folder(disk.folder, whole)
    if disk.kind == "KeyboardInterrupt" and outcome.code not in (130, 0):
        faults.append(f"exit code {outcome.code}: {outcome.said}")
    if not outcome.said and outcome.code != 0:
        faults.append(f"exit code {outcome.code} without a word")
    if outcome.code == 0 and not outcome.said and commands.read_contents(disk.folder) != whole:
        faults.append("exit code 0 without all files, and without a word")
    after = run_watched(command, Disk(disk.folder))
    faults += [f"then: {each}" for each in after.faults]
    if after.code != 0:
        faults.append(f"then exit code {after.code}: {after.said}")
    faults += [f"then left {each}" for each in commands.find_left(disk.folder)]
    found = commands.read_contents(disk.folder)
    faults += [f"then {name} differs" for name in sorted({*whole, *found}) if whole.get(name) != found.get(name)]
    return faults


def judge_folder(folder: Path, whole: dict[str, Any], killed: bool = False) -> list[str]:
    """What is wrong with the files of a command that did not come to its end; one that was killed leaves drafts."""
    if not folder.is_dir():
        return []
    try:
        found = commands.read_contents(folder)
    except Exception as error:
        return [f"a file is not whole: {error!r}"]
    faults = [f"left {name}" for name in commands.find_left(folder) if not killed and not _is_promised(folder, name)]
    for name, content in found.items():
        if name.endswith(GROWING):
            faults += [f"{name} is not a part of what it becomes"] * (not _is_part(content, whole[name]))
        elif name not in whole:
            faults.append(f"{name} is none of the command's files")
        elif not name.endswith(CHANGING) and content != whole[name]:
            faults.append(f"{name} differs")
    return faults


def _is_part(some: list[Any], whole: list[Any]) -> bool:
    return all(each in whole for each in some) and len(some) <= len(whole)


def _is_promised(folder: Path, name: str) -> bool:
    """Whether a line of `explain` names the file: then its next run puts the file in its place."""
    lines = folder / "results.jsonl"
    return lines.is_file() and f'"{name.removeprefix(".").removesuffix(".tmp")}"' in lines.read_text(encoding="utf-8")
