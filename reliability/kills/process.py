"""Commands in processes that are there to be killed."""

from __future__ import annotations

import os
import signal
import sys
import tempfile
import time
import traceback
from abc import ABC, abstractmethod
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import torch

from moreaugrad.cli.terminal import Interruption
from reliability import commands
from reliability.commands import Command

LONGEST = 20.0  # seconds that a command may take to end, at most


def let_signals_meet_handlers() -> None:
    """Signals that come before the command hears them, or after, wait: this process is no start of Python."""
    enter, leave = Interruption.__enter__, Interruption.__exit__
    signals = (signal.SIGINT, signal.SIGTERM)

    def enter_and_hear(self: Interruption) -> Interruption:
        found = enter(self)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, signals)
        return found

    def leave_in_peace(self: Interruption, *error: object) -> None:
        signal.pthread_sigmask(signal.SIG_BLOCK, signals)
        leave(self, *error)

    Interruption.__enter__, Interruption.__exit__ = enter_and_hear, leave_in_peace  # type: ignore[method-assign]


class Run(ABC):
    """A process at work on a command; what it says is kept."""

    def __init__(
        self,
        command: Command,
        folder: Path,
        words: list[str] | None = None,
        prepare: Callable[[], object] = lambda: None,  # called in the process before the command, where it is forked
    ) -> None:
        self.code: int | None = None
        self.prepare = prepare
        self.log = tempfile.TemporaryFile("w+b")  # noqa: SIM115 - closed with the process
        self.pid = self._start(command, folder, words)

    @abstractmethod
    def _start(self, command: Command, folder: Path, words: list[str] | None) -> int: ...

    def wait(self, seconds: float) -> int | None:
        """The exit code; None where the process is still at work after so many seconds."""
        until = time.monotonic() + seconds
        while self.code is None:
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            if pid:
                self.code = os.waitstatus_to_exitcode(status)
            elif time.monotonic() >= until:
                return None
            else:
                time.sleep(0.002)
        return self.code

    def end(self, number: signal.Signals) -> float:
        """Send a signal; the seconds until the process has ended."""
        began = time.monotonic()
        os.kill(self.pid, number)
        if self.wait(LONGEST) is None:
            with suppress(ProcessLookupError):
                os.killpg(self.pid, signal.SIGKILL)
            self.wait(LONGEST)
            return LONGEST
        return time.monotonic() - began

    def close(self) -> None:
        self.log.close()

    def said(self) -> str:
        self.log.seek(0)
        return self.log.read().decode(errors="replace")


class Started(Run):
    """A process of its own, from its first import on."""

    def _start(self, command: Command, folder: Path, words: list[str] | None) -> int:
        process = commands.start(command, folder, words, self.log)
        process.returncode = 0  # waited for here
        return process.pid


class Forked(Run):
    """A copy of this process, which has loaded everything."""

    def _start(self, command: Command, folder: Path, words: list[str] | None) -> int:
        sys.stdout.flush()
        sys.stderr.flush()
        held = signal.pthread_sigmask(signal.SIG_BLOCK, (signal.SIGINT, signal.SIGTERM))
        if pid := os.fork():
            signal.pthread_sigmask(signal.SIG_SETMASK, held)
            return pid
        code = 99
        try:
            if command.module != "moreaugrad":
                signal.pthread_sigmask(signal.SIG_SETMASK, held)  # never outside of `try`: nobody's loop goes on here
            os.setsid()
            for number in (1, 2):
                os.dup2(self.log.fileno(), number)
            # whoever started this may have replaced them
            sys.stdout, sys.stderr = (os.fdopen(each, "w", closefd=False) for each in (1, 2))
            os.chdir(folder)
            os.environ["XDG_CACHE_HOME"] = str(folder / "cache")
            torch.set_num_threads(1)  # the threads of the parent are not here
            self.prepare()
            if command.module == "moreaugrad":
                let_signals_meet_handlers()
            code = commands.run(command, words)
            sys.stdout.flush()
            sys.stderr.flush()
        except BaseException:
            traceback.print_exc()
            sys.stderr.flush()
        finally:
            os._exit(code)
