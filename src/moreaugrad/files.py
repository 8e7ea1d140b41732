"""Writing files whole or not at all."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO
from uuid import uuid4


def with_ending(path: str | os.PathLike[str], *endings: str) -> Path:
    """The path itself where it has one of the endings, otherwise with the first one added."""
    found = Path(path)
    return found if found.suffix.lower() in endings else found.with_name(found.name + endings[0])


@contextmanager
def replacing(path: Path) -> Iterator[BinaryIO]:
    """A handle whose content replaces `path` at the end, or vanishes after an exception.

    A reader sees the old file or the new one; a killed process leaves at most a hidden `.tmp` beside it.
    """
    if not path.parent.is_dir():
        raise FileNotFoundError(f"the folder of {path} must exist, got {path.parent}; create it first")
    # opened directly, not by tempfile: the result then has the permissions that the user's umask gives
    draft = path.with_name(f".{uuid4().hex}.tmp")
    try:
        with draft.open("xb") as handle:
            yield handle
        draft.replace(path)
    except BaseException:
        draft.unlink(missing_ok=True)
        raise
