"""Locks on bytes of an open file, which the system frees when a process dies."""

from __future__ import annotations

import errno
import os
import sys
import warnings
from contextlib import suppress

if sys.platform == "win32":
    import msvcrt
else:
    import fcntl


def lock(handle: int, place: int, length: int = 1) -> bool:
    """Whether this process now holds the bytes from `place` on. Disks that have no locks give them to everyone."""
    try:
        if sys.platform == "win32":
            os.lseek(handle, place, os.SEEK_SET)
            msvcrt.locking(handle, msvcrt.LK_NBLCK, length)
        else:
            fcntl.lockf(handle, fcntl.LOCK_EX | fcntl.LOCK_NB, length, place)
    except OSError as error:
        if error.errno in (errno.EACCES, errno.EAGAIN, errno.EDEADLK):
            return False
        warnings.warn(f"files cannot be locked here ({error.strerror}); run one process at a time", stacklevel=2)
    return True


def unlock(handle: int, place: int, length: int = 1) -> None:
    """Let others have the bytes."""
    with suppress(OSError):  # as above
        if sys.platform == "win32":
            os.lseek(handle, place, os.SEEK_SET)
            msvcrt.locking(handle, msvcrt.LK_UNLCK, length)
        else:
            fcntl.lockf(handle, fcntl.LOCK_UN, length, place)
