"""What a method keeps from call to call because it is expensive to make."""

from __future__ import annotations

from functools import cached_property
from typing import Any


class Cache:
    """A method with a `cache`, which is neither stored nor sent elsewhere with it."""

    @cached_property
    def cache(self) -> dict[Any, Any]:
        return {}

    def __getstate__(self) -> dict[str, Any]:
        state: Any = super().__getstate__()
        return {key: value for key, value in state.items() if key != "cache"}
