"""Two processes on one folder: one is refused at once, or they share the work; rows are never doubled or torn."""

import os
import signal
import time

import pytest

from moreaugrad import locks
from reliability import commands
from reliability.commands import COMMANDS

pytestmark = pytest.mark.slow  # every test works in several processes
LOCKS = {
    "robustness": "study/.lock",
    "train": "trained/.net.safetensors.lock",
    "paper": "figures/.groups.lock",
    "bulk": "job/.lock",
}


def wait_for(what):
    until = time.monotonic() + 120
    while not what():
        assert time.monotonic() < until
        time.sleep(0.005)


@pytest.mark.parametrize("name", LOCKS)
def test_a_second_run_is_refused_while_the_first_one_lives(name, place, start, finish, whole):
    wanted, lock = whole(name), place / LOCKS[name]
    first = start(name)
    wait_for(lambda: first.wait(0) is not None or locks.is_held(lock))
    os.kill(first.pid, signal.SIGSTOP)
    code, said = finish(name)
    assert first.code is None, first.said()
    assert (code, "Traceback" in said) == (2, False)
    (line,) = (each for each in said.splitlines() if each.startswith("error: "))
    assert "must be filled by one run at a time" in line
    os.kill(first.pid, signal.SIGCONT)
    assert first.wait(300) == 0
    assert commands.read_contents(place / COMMANDS[name].out) == wanted
    assert commands.find_left(place / COMMANDS[name].out) == []


@pytest.mark.parametrize("name", LOCKS)
def test_the_lock_of_a_killed_run_is_free(name, place, start, finish, whole):
    wanted, lock = whole(name), place / LOCKS[name]
    first = start(name)
    wait_for(lambda: first.wait(0) is not None or locks.is_held(lock))
    assert first.code is None
    first.end(signal.SIGKILL)
    assert lock.is_file()
    assert finish(name)[0] == 0
    assert commands.read_contents(place / COMMANDS[name].out) == wanted
    assert commands.find_left(place / COMMANDS[name].out) == []


@pytest.mark.parametrize("name", ["explain", "compare", "report", "certify"])
def test_two_runs_at_once_leave_what_one_leaves(name, place, start, whole):
    wanted = whole(name)
    runs = [start(name) for _ in range(2)]
    assert [run.wait(300) for run in runs] == [0, 0]
    found = commands.read_contents(place / COMMANDS[name].out)
    for each in (wanted, found):
        each.pop("index.html", None)  # in the order of the lines
    assert found == wanted
    assert commands.find_left(place / COMMANDS[name].out) == []


def test_shards_of_a_figure_may_be_drawn_at_the_same_time(tmp_path):
    from paper.__main__ import places

    assert not set(places(1)) & set(places(2))
    assert set(places(3)) < set(places(None))
