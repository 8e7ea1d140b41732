"""For methods that run the model themselves: chunks of one constant shape, and what is kept from call to call."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from weakref import WeakKeyDictionary

import torch
from jaxtyping import Int
from torch import Tensor

from moreaugrad.model.prepared import Engine
from moreaugrad.types import Images, Watch, ignore_progress

_KEPT: WeakKeyDictionary[Any, dict[Any, Any]] = WeakKeyDictionary()


def cache_of(method: object) -> dict[Any, Any]:
    """What a method keeps because it is expensive to make; neither stored nor sent elsewhere with it."""
    return _KEPT.setdefault(method, {})


def run_in_chunks(
    engine: Engine,
    x: Images,
    run: Callable[[Int[Tensor, "r"]], tuple[Tensor, ...]],
    rows_per_image: int = 1,
    watch: Watch = ignore_progress,
) -> tuple[Tensor, ...]:
    """Joins the tensors that `run` makes of each chunk of image numbers; halves the chunk where memory runs out.

    Every chunk has the same shape, so that the map of an image does not depend on the others.
    """
    found: list[tuple[Tensor, ...]] = []
    start = 0
    while start < len(x):
        size = max(1, engine.rows // rows_per_image)
        count = min(size, len(x) - start)
        try:
            # padded with real rows, which can neither overflow nor be NaN
            parts = run(start + torch.arange(size, device=x.device) % count)
        except torch.OutOfMemoryError as error:
            engine.halve_rows(size * rows_per_image if size > 1 else 1, error)
            continue
        found.append(tuple(part[:count] for part in parts))
        start += count
        watch(start, len(x), {})
    return tuple(torch.cat(parts) for parts in zip(*found, strict=True))
