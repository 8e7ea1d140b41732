"""Checks the shapes that the package's annotations promise, at every call made in a test.

Only hints that speak of shapes are held against the arguments. The others are mypy's business, and
the wording of a wrong argument is that of `moreaugrad.checks`, which must get to see it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar, get_args

import jaxtyping
from beartype import beartype

Function = TypeVar("Function", bound=Callable[..., Any])


def checked(function: Function) -> Function:
    function.__annotations__ = {name: hint for name, hint in function.__annotations__.items() if _checkable(hint)}
    return beartype(function)


def _checkable(hint: Any) -> bool:
    parts = list(_parts(hint))
    shapes = any(isinstance(part, type) and issubclass(part, jaxtyping.AbstractArray) for part in parts)
    protocols = any(getattr(part, "_is_protocol", False) for part in parts)  # isinstance refuses most of them
    return shapes and not protocols


def _parts(hint: Any) -> list[Any]:
    return [hint] + [part for inner in get_args(hint) for part in _parts(inner)]
