"""What the decoders of images have to say: they warn about damage, which readers report by themselves."""

from __future__ import annotations

import re
import threading
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

_IGNORE = ("ignore", None, Warning, re.compile(r"PIL\b"), 0)  # warnings that come from lines of Pillow
_module: Any = warnings  # typed as if its filters could only be read
_lock = threading.Lock()
_readers = [0]  # that are inside just now, in all threads


@contextmanager
def silence_decoders() -> Iterator[None]:
    """Drop Pillow's warnings meanwhile, for all threads that read.

    The filters belong to the whole process. If every thread saved and restored them by a `catch_warnings` of its own,
    one of them would restore what another one had set for a moment, and that would stay.
    """
    with _lock:
        if not _readers[0]:
            _module.filters.insert(0, _IGNORE)
        _readers[0] += 1
    try:
        yield
    finally:
        with _lock:
            _readers[0] -= 1
            if not _readers[0]:
                with suppress(ValueError):  # somebody has reset the filters
                    _module.filters.remove(_IGNORE)
