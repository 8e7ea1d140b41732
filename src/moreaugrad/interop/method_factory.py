"""A method for each new model, from whatever names one: shared by what meets its models only later."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

from moreaugrad.methods import METHODS
from moreaugrad.methods.options import make_method, option_names
from moreaugrad.registry import Entry, unknown

MakeMethod: TypeAlias = str | Entry | Callable[..., Any]  # a name in METHODS, or what makes a method of a model


def check_method(method: MakeMethod, options: dict[str, Any]) -> None:
    """Refuses a name or an option that is unknown, before there is a model."""
    if not isinstance(method, str):
        if not callable(method):
            raise TypeError(f"method must be a name in METHODS or a class of methods, got {method!r}")
        return
    _ = METHODS[method]
    known = option_names(method)
    for key in options:
        if key not in known:
            raise unknown(f"an option of {method}", key, known)


def make_any_method(method: MakeMethod, model: Any, options: dict[str, Any]) -> Any:
    """The method of a model; any object with Captum's `attribute` will do."""
    found = make_method(method, model, options) if isinstance(method, str) else method(model, **options)
    if not callable(getattr(found, "attribute", None)):
        raise TypeError(
            f"method must make an object with attribute(x, target=...) of a model, got {type(found).__name__}; "
            "make a class of a function by mg.from_function"
        )
    return found
