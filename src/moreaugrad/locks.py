"""Locks on bytes of an open file, which the system frees when a process dies; and files that hold only a lock."""

from __future__ import annotations

import errno
import os
import sys
import time
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from threading import Lock
from typing import BinaryIO

if sys.platform == "win32":
    import msvcrt
else:
    import fcntl

TRIES, PAUSE = 3, 0.02  # before a lock counts as another's; seconds between two
WHOLE = range(2**30)  # every place of a lock file
_held: set[Path] = set()  # by this process, whose second handle would drop the locks of the first
_threads = Lock()  # over `_held`


def lock(handle: int, place: int, length: int = 1) -> bool:
    """Whether this process now holds the bytes from `place` on. Disks that have no locks give them to everyone."""
    found = try_lock(handle, place, length)
    if found is None:
        warnings.warn("files cannot be locked here; run one process at a time", stacklevel=2)
    return found is not False


def try_lock(handle: int, place: int, length: int = 1) -> bool | None:
    """Whether this process now holds the bytes; None on disks that have no locks."""
    try:
        if sys.platform == "win32":
            os.lseek(handle, place, os.SEEK_SET)
            msvcrt.locking(handle, msvcrt.LK_NBLCK, length)
        else:
            fcntl.lockf(handle, fcntl.LOCK_EX | fcntl.LOCK_NB, length, place)
    except OSError as error:
        return False if error.errno in (errno.EACCES, errno.EAGAIN, errno.EDEADLK) else None
    return True


def unlock(handle: int, place: int, length: int = 1) -> None:
    """Let others have the bytes."""
    with suppress(OSError):  # as above
        if sys.platform == "win32":
            os.lseek(handle, place, os.SEEK_SET)
            msvcrt.locking(handle, msvcrt.LK_UNLCK, length)
        else:
            fcntl.lockf(handle, fcntl.LOCK_UN, length, place)


@contextmanager
def hold(path: Path, what: str, places: range = WHOLE, advice: str = "") -> Iterator[None]:
    """The right to fill something, which a lock file stands for; refused at once where another run has it.

    The system frees the right when a process dies. The last one to leave removes the file.

    Args:
        path: the lock file.
        what: that is filled, for the message.
        places: the share of it; those of several runs may not overlap.
        advice: what else helps, for the message.
    """
    own = path.parent.resolve() / path.name
    with _threads:
        handle = None if own in _held else _open_locked(path, places)
        if handle is None:
            raise BlockingIOError(
                f"{what} must be filled by one run at a time, got another one that is at work on it; wait for it, or "
                f"stop it first{advice}"
            )
        _held.add(own)
    try:
        yield
    finally:
        with _threads, handle:
            _held.discard(own)
            if try_lock(handle.fileno(), WHOLE.start, len(WHOLE)):  # nobody has another share
                with suppress(OSError):  # Windows keeps open files
                    path.unlink()


def is_held(path: Path) -> bool:
    """Whether some run has the right that a lock file stands for, or a share of it."""
    with _threads:
        if path.parent.resolve() / path.name in _held or not path.is_file():
            return path.parent.resolve() / path.name in _held
        with path.open("r+b") as handle:
            return not lock(handle.fileno(), WHOLE.start, len(WHOLE))


def _insist(handle: int, places: range) -> bool:
    """Whether the places are held now; one who only asks whether they are free has them for a moment."""
    for attempt in range(TRIES):
        time.sleep(PAUSE if attempt else 0)
        if lock(handle, places.start, max(1, len(places))):
            return True
    return False


def _open_locked(path: Path, places: range) -> BinaryIO | None:
    """The open lock file; None where another process holds one of the places."""
    while True:
        handle = path.open("a+b")
        try:
            if not _insist(handle.fileno(), places):
                handle.close()
                return None
            if os.path.samestat(os.fstat(handle.fileno()), path.stat()):
                return handle
        except FileNotFoundError:
            pass
        except BaseException:
            handle.close()
            raise
        handle.close()  # the last one to leave has removed it in between
