"""What all threads of a process share, and what a fork of it takes along."""

from __future__ import annotations

import logging
import os
import re
import sys
import threading
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

log = logging.getLogger("moreaugrad")

# Held around what torch can do in one thread at a time, and while a network is made ready or gets hooks. One lock for
# all of it, so that no two threads can wait for each other.
ALONE = threading.RLock()


class OwnHook:
    """A hook that the package sets in the caller's module: it serves the thread that set it, and is no part of the
    model, so a copy of the model has a hook that does nothing."""

    def __init__(self, function: Callable[..., Any] | None) -> None:
        self.function, self.thread = function, threading.get_ident()

    def __call__(self, *given: Any) -> Any:
        return None if self.function is None or threading.get_ident() != self.thread else self.function(*given)

    def __deepcopy__(self, memo: Any) -> OwnHook:
        return OwnHook(None)

    def __reduce__(self) -> tuple[Any, ...]:
        return OwnHook, (None,)


@contextmanager
def ignore_warnings(category: type[Warning], message: str = "", module: str = "") -> Iterator[None]:
    """Leaves out warnings of a kind, whatever other threads do with the filters at the same time.

    `warnings.catch_warnings` puts back the list that it found: of two threads that overlap, the second puts back that
    of the first, and its filter stays for good.

    Args:
        category: the kind.
        message: a pattern for how they begin. Other threads miss those that match, too.
        module: a pattern for the name of the module whose line warns.
    """
    if getattr(sys.flags, "context_aware_warnings", False):  # of Python 3.14: threads have lists of their own
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message, category, module)
            yield
        return
    patterns = re.compile(message, re.IGNORECASE) if message else None, re.compile(module) if module else None
    entry = ("ignore", patterns[0], category, patterns[1], 0)
    filters: list[Any] = warnings.filters  # type: ignore[assignment]
    filters.insert(0, entry)
    try:
        yield
    finally:
        with suppress(ValueError):  # somebody emptied the list in between
            filters.remove(entry)


@contextmanager
def initial_weights(seed: int) -> Iterator[None]:
    """Networks that are built inside get the initial weights of a seed; the random state is left as it was."""
    import torch

    with ALONE, torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(seed)
        yield


def _begin_fork() -> None:
    """In a process that was forked: only the thread that forked goes on, without those of OpenMP.

    What it shared out among them would wait for ever. One thread needs no others, as in workers of a DataLoader.
    """
    ALONE._at_fork_reinit()  # type: ignore[attr-defined]  # another thread may have held it
    torch = sys.modules.get("torch")  # absent: a listing has no use for it
    if torch is not None and torch.get_num_threads() > 1:
        torch.set_num_threads(1)
        log.info("a forked process computes with one thread; start processes by spawn or forkserver for more")


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_begin_fork)
