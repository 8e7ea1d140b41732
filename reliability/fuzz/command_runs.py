"""Runs a command line in this process, in a folder of its own, and judges what came of it."""

from __future__ import annotations

import io
import json
import pkgutil
import resource
import signal
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout, suppress
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from io import BytesIO
from pathlib import Path
from types import FrameType
from typing import Any

import moreaugrad
from reliability.fuzz.case import is_ours
from reliability.fuzz.command_inputs import digests, job, make_inputs, photo

ROOT = Path(__file__).parents[2]
ENDS = {0: "all well", 1: "not all of it", 2: "refused", 130: "interrupted"}
PATIENCE = 1.5  # seconds of work after which a run is interrupted as by Ctrl-C: asking for much work is no fault
ADDRESSES = 6 << 30  # bytes that a run may ask the system for beyond what the process has
ENDINGS = (".png", ".npz", ".json", ".jsonl", ".csv", ".html", ".safetensors")
STARTED = ("results.jsonl", "job.json", "study.json", "_compare.png", ".log.jsonl")


@dataclass(frozen=True)
class Run:
    """What a command line came to."""

    line: list[str]
    code: object
    out: bytes
    err: bytes
    folder: Path
    changed: list[str]  # inputs that are not as they were
    warned: list[str]  # warnings that are not the package's
    interrupted: bool


def run_line(line: list[str], by_pipe: bool, folder: Path) -> Run:
    """Types a line in the folder `out`, where photos lie too; `by_pipe`: with a photo on standard input."""
    load_package()
    make_inputs(folder, "job" in line)
    out, err = (
        io.TextIOWrapper(BytesIO(), "utf-8", errors, write_through=True) for errors in ("strict", "backslashreplace")
    )
    before, warned = digests(folder), list[str]()
    stdin, sys.stdin = sys.stdin, io.TextIOWrapper(BytesIO(photo() if by_pipe else b""))
    try:
        with (
            hearing(warned),
            small_memory(),
            not_served(),
            in_folder(folder / "out"),
            redirect_stdout(out),
            redirect_stderr(err),
        ):
            code, interrupted = call(line)
    finally:
        sys.stdin = stdin
    after = digests(folder)
    changed = [name for name, digest in before.items() if after.get(name) != digest]
    return Run(line, code, out.buffer.getvalue(), err.buffer.getvalue(), folder, changed, warned, interrupted)


def call(line: list[str]) -> tuple[object, bool]:
    """The exit code, and whether it took so long that it was interrupted."""
    from moreaugrad.cli.app import main

    rung = []

    def ring(number: int, frame: FrameType | None) -> None:
        rung.append(number)
        signal.raise_signal(signal.SIGINT)

    before = signal.signal(signal.SIGVTALRM, ring)
    signal.setitimer(signal.ITIMER_VIRTUAL, PATIENCE, PATIENCE)  # again: `bulk` lets its parts finish at first
    try:
        main(line)
    except SystemExit as end:
        return end.code, bool(rung)
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        signal.signal(signal.SIGVTALRM, before)


def check_answer(answer: object) -> str | None:
    """What is wrong with a run, or None."""
    assert isinstance(answer, Run)
    return next((fault for fault in find_faults(answer) if fault), None)


def find_faults(run: Run) -> Iterator[str | None]:
    try:
        out, err = run.out.decode(), run.err.decode()
    except UnicodeDecodeError as error:
        yield f"printed what is no text: {error}"
        return
    code = run.code or 0
    last = err.splitlines()[-1] if err.splitlines() else ""
    told = f"exit code {code}, stdout {out[-300:]!r}, stderr {err[-500:]!r}"
    yield f"an exit code that means nothing: {told}" if code not in ENDS else None
    yield f"a traceback: {told}" if "Traceback" in out + err or 'File "' in err else None
    yield f"inputs were changed: {run.changed}" if run.changed else None
    yield f"warnings from outside the package: {run.warned}" if run.warned else None
    yield f"interrupted without having been asked: {told}" if code == 130 and not run.interrupted else None
    if code == 2 and not is_help(run, out):
        # `compare` tells of each method as it is done, and that one cannot explain this network when it is at it
        begun = has_begun(run.folder) or (run.line[0] == "compare" and names_method(last))
        yield None if last.startswith("error: ") else f"refused without an error: {told}"
        yield None if is_one_line(err) or begun else f"refused in several lines: {told}"
        yield f"refused with words on stdout: {told}" if out and not begun else None
        yield f"an error without words: {told}" if len(last) < 20 else None
    if code == 0:
        yield f"all well, with an error: {told}" if "error: " in err else None
        yield from (f"names a file that is not there: {each!r}" for each in missing_files(run, out))
    if "--json" in run.line and code == 0 and "--help" not in run.line:
        yield from (
            f"a line that is no JSON: {each!r}"
            for each in out.splitlines()
            if run.line[0] not in ("methods", "models") and not is_json(each)
        )


def names_method(error: str) -> bool:
    from moreaugrad.methods import METHODS

    return error.removeprefix("error: ").partition(":")[0] in set(METHODS)


def is_one_line(err: str) -> bool:
    """Whether nothing but warnings comes before the error."""
    *before, _ = err.splitlines() or [""]
    return all(each.startswith("warning: ") for each in before)


def is_help(run: Run, out: str) -> bool:
    """A group of commands alone tells what there is, with exit code 2."""
    return not run.err and "Usage:" in out


def has_begun(folder: Path) -> bool:
    """Whether the work had begun, so that a part of it may be told, and several images may have failed."""
    return any(path.name.endswith(STARTED) for path in (folder / "out").rglob("*") if path.parent.name != "job")


def missing_files(run: Run, out: str) -> list[str]:
    """Files that the lines for people name, and that are not there."""
    if any(" " in word or not word.isprintable() for word in run.line):
        return []  # names cannot be told from the words around them, or are printed with question marks
    found = []
    for tail in (each.rpartition("-> ")[2] for each in out.splitlines() if "-> " in each):
        place, colon, names = tail.partition(": ")  # FOLDER: FILE, FILE; or FILE, FILE
        files = [Path(place if colon else "", name) for name in (names if colon else tail).split(", ")]
        found += [each for each in files if each.suffix in ENDINGS]
    return [str(each) for each in found if not (run.folder / "out" / each).exists()]


def is_json(line: str) -> bool:
    def refuse(word: str) -> None:
        raise ValueError(word)

    try:
        json.loads(line, parse_constant=refuse)
    except ValueError:
        return False
    return True


@contextmanager
def hearing(warned: list[str]) -> Iterator[None]:
    """Notes warnings of other packages, which the command line would print without telling whose they are."""
    from moreaugrad.cli import terminal

    tell = terminal._show_warning

    def hear(message: Warning | str, *where: Any) -> None:
        if where and not is_ours(warnings.WarningMessage(message, *where[:3])):
            warned.append(f"{where[0].__name__}: {message} ({where[1]}:{where[2]})")
        tell(message, *where)

    terminal._show_warning = hear
    try:
        yield
    finally:
        terminal._show_warning = tell


@contextmanager
def not_served() -> Iterator[None]:
    """`serve` does everything but to serve."""
    from moreaugrad.cli import serve

    run, serve.run = serve.run, lambda *given: None
    try:
        yield
    finally:
        serve.run = run


@contextmanager
def small_memory() -> Iterator[None]:
    """A run that asks for the memory of the whole machine gets none."""
    limits = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (used_addresses() + ADDRESSES, limits[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, limits)


def used_addresses() -> int:
    """Bytes of this process's address space."""
    pages = Path("/proc/self/statm")
    return int(pages.read_text().split()[0]) * resource.getpagesize() if pages.exists() else 64 << 30


@contextmanager
def in_folder(folder: Path) -> Iterator[None]:
    """Code of the package sees this as the current folder."""
    import os

    before = Path.cwd()
    os.chdir(folder)
    try:
        yield
    finally:
        os.chdir(before)


@cache
def load_package() -> None:
    """Everything that commands import when they need it: an interruption must not leave half a module."""
    sys.path.append(str(ROOT / "tests" / "support"))  # the small network
    for name in ("torch._dynamo", "skimage.segmentation.slic_superpixels"):
        import_module(name)  # the one sets a variable of the environment, the other a filter of warnings

    for each in pkgutil.walk_packages(moreaugrad.__path__, "moreaugrad."):
        if not each.name.startswith(("moreaugrad.interop", "moreaugrad.__main__")):
            with suppress(ImportError):
                import_module(each.name)
    job()
