"""A folder with inputs for every command, and processes that work on them."""

import os
import signal

import pytest

from reliability import commands, tiny
from reliability.commands import COMMANDS
from reliability.kills.process import Forked

if not hasattr(os, "fork"):
    pytest.skip("needs fork", allow_module_level=True)


@pytest.fixture
def place(tmp_path, monkeypatch):
    """The inputs, in the current folder."""
    tiny.make_inputs(tmp_path)
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def start(place):
    """Starts a command in a process of its own, which does not outlive the test."""
    runs = []

    def go(name, prepare=lambda: None, words=None):
        runs.append(Forked(COMMANDS[name], place, words, prepare))
        return runs[-1]

    yield go
    for run in runs:
        if run.code is None:
            os.kill(run.pid, signal.SIGCONT)
            run.end(signal.SIGKILL)
        run.close()


@pytest.fixture
def finish(start):
    """Runs a command to its end: exit code and what it said."""

    def go(name, **options):
        run = start(name, **options)
        assert run.wait(300) is not None
        return run.code, run.said()

    return go


@pytest.fixture
def whole(place):
    """What a command's folder holds after an undisturbed run; the folder is put aside."""

    def go(name):  # in this process, so that those that are forked from it need not load everything again
        command = COMMANDS[name]
        if command.before is not None:
            assert commands.run(COMMANDS[command.before]) == 0
        before = (place / command.out).is_dir()
        assert commands.run(command) == 0
        found = commands.read_contents(place / command.out)
        if not before:
            (place / command.out).rename(place / f"whole {command.out}")
        return found

    return go
