"""Tells a person or a program how far a long call has come."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from tqdm.auto import tqdm

from moreaugrad.types import Watch, unwatched


@contextmanager
def progress(title: str, bar: bool, callback: Watch | None) -> Iterator[Watch]:
    """A watcher that draws a bar, calls back, or does neither. The bar is closed in any case."""
    if not bar:
        yield callback or unwatched
        return
    drawn = tqdm(desc=title, unit="step")
    try:

        def watch(step: int, total: int, info: Mapping[str, Any]) -> None:
            drawn.total = total
            drawn.update(step - drawn.n)
            if callback is not None:
                callback(step, total, info)

        yield watch
    finally:
        drawn.close()
