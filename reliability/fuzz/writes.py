"""Which files the package writes, moves or removes, as told by Python's audit hooks."""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND
CHANGES = {  # event: which of its arguments are paths that change
    "os.mkdir": [0],
    "os.rename": [0, 1],
    "os.remove": [0],
    "os.rmdir": [0],
    "os.link": [1],
    "os.symlink": [1],
    "os.truncate": [0],
    "os.chmod": [0],
}
FOLLOWED = ("open", "os.truncate", "os.chmod")  # the others act on a link itself, not on what it leads to
_watching: dict[str, Any] = {"package": None, "allowed": (), "found": []}
_hooked: list[bool] = []


@contextmanager
def watch(package: str, *allowed: Path) -> Iterator[list[str]]:
    """Collects the paths that code of the package changes outside of these folders, caches and the temporary folder."""
    if not _hooked:  # a hook stays until the process ends
        sys.addaudithook(_hear)
        _hooked.append(True)
    caches = [os.environ.get("XDG_CACHE_HOME"), os.environ.get("MPLCONFIGDIR"), tempfile.gettempdir(), "/dev"]
    usual = [os.path.realpath(each) for each in caches if each]
    # the case's folder is itself a temporary one: only what lies beside it is usual
    case = os.path.realpath(allowed[0].parent)
    found: list[str] = []
    _watching.update(package=package, allowed=[os.path.realpath(each) for each in allowed], usual=usual, case=case)
    _watching["found"] = found
    try:
        yield found
    finally:
        _watching["package"] = None


def _hear(event: str, arguments: tuple[Any, ...]) -> None:
    if _watching["package"] is None or (event != "open" and event not in CHANGES):
        return
    if event == "open":
        path, mode, flags = arguments
        writes = bool(flags & WRITING) if isinstance(flags, int) and flags else any(c in "wax+" for c in mode or "")
        paths = [path] if writes else []
    else:
        paths = [arguments[i] for i in CHANGES[event]]
    for path in paths:
        if (
            isinstance(path, str | bytes | os.PathLike)
            and not _is_allowed(_resolve(event, os.fsdecode(path)))
            and _is_asked()
        ):
            _watching["found"].append(f"{event} {os.fsdecode(path)}")


def _resolve(event: str, path: str) -> str:
    """The place that changes."""
    place = Path(path)
    return os.path.realpath(path) if event in FOLLOWED else str(Path(os.path.realpath(place.parent), place.name))


def _is_allowed(whole: str) -> bool:
    if whole == _watching["case"] or _is_below(whole, [_watching["case"]]):
        return _is_below(whole, _watching["allowed"])
    return _is_below(whole, _watching["usual"]) or "__pycache__" in whole


def _is_below(path: str, folders: list[str]) -> bool:
    return any(path == each or path.startswith(each + os.sep) for each in folders)


def _is_asked() -> bool:
    """Whether a frame of the package is at work: inputs that a case makes itself do not count."""
    frame: FrameType | None = sys._getframe(2)
    while frame is not None:
        if frame.f_code.co_filename.startswith(_watching["package"]):
            return True
        frame = frame.f_back
    return False
