"""Lock files: one holder for each share, freed with its process, gone with the last holder."""

import os
import signal
import time

import pytest

from moreaugrad import locks

needs_fork = pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")


def test_a_lock_is_refused_to_a_second_holder_and_its_file_goes_with_the_first(tmp_path):
    path = tmp_path / ".lock"
    with locks.hold(path, "it"):
        assert locks.is_held(path)
        with pytest.raises(BlockingIOError, match="it must be filled by one run at a time"), locks.hold(path, "it"):
            pass
        assert locks.is_held(path)
    assert not path.exists()
    assert not locks.is_held(path)
    with locks.hold(path, "it"):
        pass


def test_a_lock_is_free_after_an_exception(tmp_path):
    with pytest.raises(KeyboardInterrupt), locks.hold(tmp_path / ".lock", "it"):
        raise KeyboardInterrupt
    assert list(tmp_path.iterdir()) == []


def hold_elsewhere(path, places):
    """A process that holds some places until it is killed."""
    child = os.fork()
    if not child:
        with locks.hold(path, "it", places):
            path.with_name("ready").touch()
            time.sleep(600)
        os._exit(0)
    while not path.with_name("ready").exists():
        time.sleep(0.002)
    path.with_name("ready").unlink()
    return child


@needs_fork
def test_another_process_holds_its_share_until_it_dies(tmp_path):
    path = tmp_path / ".lock"
    child = hold_elsewhere(path, range(2, 4))
    try:
        assert locks.is_held(path)
        for places in (locks.WHOLE, range(3, 5), range(2, 3)):
            with pytest.raises(BlockingIOError), locks.hold(path, "it", places):
                pass
        with locks.hold(path, "it", range(4, 9)):
            pass
        assert path.exists()  # the other share is held yet
    finally:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
    assert path.exists()
    assert not locks.is_held(path)
    with locks.hold(path, "it"):
        pass
    assert not path.exists()


@needs_fork
def test_asking_does_not_keep_a_run_from_starting(tmp_path):
    """One process asks all the time, which takes the lock for a moment; another one must get it whenever it wants."""
    path = tmp_path / ".lock"
    path.touch()
    child = os.fork()
    if not child:
        while True:
            with path.open("a+b") as handle:
                locks.try_lock(handle.fileno(), 0, 2**30)
            time.sleep(0.0002)
    try:
        for _ in range(100):
            with locks.hold(path, "it"):
                pass
    finally:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
