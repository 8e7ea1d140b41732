"""What a person sees: lines, errors, and a bar that is there only while something runs.

Results go to stdout, everything else to stderr; nothing is read as markup.
"""

from __future__ import annotations

import logging
import sys
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from moreaugrad.types import Watch


@dataclass(frozen=True, slots=True)
class Terminal:
    """The two streams."""

    quiet: bool = False  # errors only
    json: bool = False  # stdout holds JSON lines and nothing else

    @property
    def lively(self) -> bool:
        """Whether anyone watches."""
        return not self.quiet and sys.stderr.isatty()

    def say(self, text: str) -> None:
        if not self.quiet and not self.json:
            self._write(text)

    def result(self, line: str) -> None:
        if self.json:
            self._write(line)

    def error(self, text: str) -> None:
        sys.stderr.write(f"error: {' '.join(text.split())}\n")

    def _write(self, line: str) -> None:
        sys.stdout.write(line + "\n")
        sys.stdout.flush()

    def hear_warnings(self) -> None:
        """Our own warnings as one line each; those that other packages write for developers are dropped."""
        log = logging.getLogger("moreaugrad")
        log.handlers = [_Lines(logging.ERROR if self.quiet else logging.WARNING)]
        warnings.simplefilter("ignore")
        if not self.quiet:
            warnings.simplefilter("default", UserWarning)
            warnings.showwarning = _show  # type: ignore[assignment]

    @contextmanager
    def busy(self, title: str) -> Iterator[None]:
        """A sign of life for work without a known length."""
        if not self.lively:
            yield
            return
        from rich.console import Console
        from rich.markup import escape

        with Console(stderr=True).status(escape(title)):
            yield

    @contextmanager
    def bar(self, title: str) -> Iterator[Watch]:
        """A watcher that draws how far one call has come, and leaves nothing behind."""
        if not self.lively:
            yield lambda step, total, info: None
            return
        from rich.console import Console
        from rich.markup import escape
        from rich.progress import Progress

        with Progress(console=Console(stderr=True), transient=True, redirect_stdout=False) as progress:
            task = progress.add_task(escape(title), total=None)

            def watch(step: int, total: int, info: Mapping[str, Any]) -> None:
                progress.update(task, completed=step, total=total)

            yield watch


class _Lines(logging.Handler):
    """Log records as lines on stderr."""

    def emit(self, record: logging.LogRecord) -> None:
        _show(record.getMessage())


def _show(message: Warning | str, *where: Any) -> None:
    sys.stderr.write(f"warning: {' '.join(str(message).split())}\n")
