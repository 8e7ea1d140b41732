"""What a person sees: lines, errors, and a progress bar while something runs.

Results go to stdout, everything else to stderr. File names are never read as markup.
"""

from __future__ import annotations

import logging
import os
import random
import signal
import sys
import threading
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from types import FrameType
from typing import TYPE_CHECKING, Any

import typer

if TYPE_CHECKING:
    from moreaugrad.types import Watch

INTERRUPTED = 130  # exit code


class ToldCode(int):
    """An exit code whose reason the command has told itself."""


@dataclass(frozen=True, slots=True)
class Terminal:
    """Where a command writes what it has to say.

    Args:
        quiet: print nothing but errors.
        json: print JSON lines to stdout, and nothing else.
    """

    quiet: bool = False
    json: bool = False

    def say(self, text: str) -> None:
        if not self.quiet and not self.json:
            _print(text)

    def result(self, line: str) -> None:
        if self.json:
            _print(line)

    def error(self, text: str) -> None:
        sys.stderr.write(f"error: {' '.join(text.split())}\n")

    def hear_warnings(self) -> None:
        """Print warnings as one line each, or none if quiet; drop those meant for developers of other packages.

        `main` restores them by `keep_settings` when the command ends.
        """
        log = logging.getLogger("moreaugrad")
        log.handlers = [_LineHandler(logging.ERROR if self.quiet else logging.WARNING)]
        warnings.simplefilter("default", UserWarning)
        for kind in (DeprecationWarning, PendingDeprecationWarning, FutureWarning):
            warnings.filterwarnings("ignore", category=kind, module=r"(?!moreaugrad\b)")
        warnings.showwarning = (lambda *warning: None) if self.quiet else _show_warning  # type: ignore[assignment]

    @contextmanager
    def busy(self, title: str) -> Iterator[None]:
        """A bar without an end, for work of unknown length."""
        with self.bar(title):
            yield

    @contextmanager
    def bar(self, title: str) -> Iterator[Watch]:
        """A callback for one call, which draws a progress bar that disappears afterwards."""
        if self.quiet or not sys.stderr.isatty():  # nobody watches
            yield lambda step, total, info: None
            return
        from rich.console import Console
        from rich.markup import escape
        from rich.progress import Progress

        with Progress(console=Console(stderr=True), transient=True, redirect_stdout=False) as progress:
            task = progress.add_task(escape(title), total=None)

            def watch(step: int, total: int, info: Mapping[str, Any]) -> None:
                text = escape(info["text"]) if "text" in info else None
                progress.update(task, completed=step, total=total, description=text)

            yield watch


class Interruption:
    """Ctrl-C and SIGTERM as KeyboardInterrupt, in a `with` statement; never in the middle of what is `held`."""

    def __init__(self) -> None:
        self._holding = self._asked = False
        self._before: dict[signal.Signals, Any] = {}

    def __enter__(self) -> Interruption:
        if threading.current_thread() is threading.main_thread():  # Python allows it there only
            self._before = {each: signal.signal(each, self._hear) for each in (signal.SIGINT, signal.SIGTERM)}
        return self

    def __exit__(self, *error: object) -> None:
        for each, handler in self._before.items():
            signal.signal(each, handler)

    @contextmanager
    def held(self) -> Iterator[None]:
        """Let a short piece of work finish before an interruption; a second one does not wait."""
        self._holding, self._asked = True, False
        try:
            yield
        finally:
            self._holding = False
        if self._asked:
            raise KeyboardInterrupt

    def _hear(self, number: int, frame: FrameType | None) -> None:
        if self._holding and not self._asked:
            self._asked = True
            return
        if _is_importing(frame):  # an exception would leave a library half loaded, which then hangs or fails oddly
            Terminal().error("interrupted")
            sys.stderr.flush()
            os._exit(INTERRUPTED)
        raise KeyboardInterrupt


def _is_importing(frame: FrameType | None) -> bool:
    while frame is not None and not frame.f_code.co_filename.startswith("<frozen importlib"):
        frame = frame.f_back
    return frame is not None


@contextmanager
def keep_settings() -> Iterator[None]:
    """Puts back what a command changes in its process, and what the libraries change that parse and print for it."""
    log, hook, draws = logging.getLogger("moreaugrad"), sys.excepthook, random.getstate()
    handlers = log.handlers
    try:
        with warnings.catch_warnings():
            yield
    finally:
        log.handlers, sys.excepthook = handlers, hook
        random.setstate(draws)


class _LineHandler(logging.Handler):
    """Writes log records as lines on stderr."""

    def emit(self, record: logging.LogRecord) -> None:
        _show_warning(record.getMessage())


def _print(text: str) -> None:
    """A line on stdout; what its encoding has no sign for, as in odd names of files, becomes a question mark."""
    encoding = sys.stdout.encoding or "utf-8"
    typer.echo(text.encode(encoding, "replace").decode(encoding))


def _show_warning(message: Warning | str, *where: Any) -> None:
    sys.stderr.write(f"warning: {' '.join(str(message).split())}\n")
