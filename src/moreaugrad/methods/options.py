"""Flat options, as people type them or store them, and the method that they make."""

from __future__ import annotations

import platform
from collections.abc import Mapping
from dataclasses import MISSING, fields, replace
from importlib.metadata import version
from typing import Any

from moreaugrad.envelope.priors import PRIORS
from moreaugrad.methods import METHODS
from moreaugrad.methods.base import Method
from moreaugrad.model.smoothing import Smoothing
from moreaugrad.registry import unknown

NOISE = ("noise_level", "sigma", "samples")  # options of the smoothing


def make_method(name: str, model: Any, options: Mapping[str, Any]) -> Method:
    """Make a method from its name and flat options.

    The options are those of the method's class, and `noise_level`, `sigma` and `samples` for its smoothing. An option
    that is None counts as not given, unless the default of the method is something else.

    Args:
        name: a key of `METHODS`.
        model: a module in evaluation mode, or any callable that returns scores.
        options: option -> value.

    Returns:
        The method, ready for `attribute` and `explain`.

    Raises:
        UnknownNameError: for an unknown method or option; it names the nearest one.

    Example:
        >>> from moreaugrad.methods.options import make_method
        >>> make_method("moreau", net, {"rho": 0.5, "sigma": 0.2}).smoothing.sigma
        0.2
    """
    kind = METHODS[name].load()
    known = option_names(name)
    if "layer" in options and "layers" in known:  # people type `layer` for one or several
        options = {"layers" if key == "layer" else key: value for key, value in options.items()}
        options["layers"] = options["layers"].split(",") if isinstance(options["layers"], str) else options["layers"]
    given = {key: value for key, value in options.items() if value is not None or _none_is_a_choice(kind, key)}
    for key, value in given.items():
        if key == "prior" and key not in known:
            raise ValueError(f"prior must be left out: {name} has none, got {value!r}; the method moreau takes one")
        if key not in known:
            raise unknown(f"an option of {name}", key, known)
    noise = {key: given.pop(key) for key in NOISE if key in given}
    if noise:
        if "smoothing" in given:
            raise ValueError(f"smoothing and {', '.join(noise)} exclude each other, got both; give one")
        given["smoothing"] = _make_smoothing(kind, noise)
    made: Method = kind(model, **given)
    return made


def option_names(name: str) -> list[str]:
    """The flat options that a method takes."""
    hidden = ("forward_func", "prepared")
    found = [each.name for each in fields(METHODS[name].load()) if each.init and each.name not in hidden]
    found += ["layer"] if "layers" in found else []
    return found + list(NOISE) if "smoothing" in found else found


def describe_options(method: Method) -> dict[str, Any]:
    """The options of a method as numbers and words; `make_method` makes the same method from them."""
    found = dict(method.options())
    if "smoothing" in found:
        del found["smoothing"]
        noise = method.noise
        found |= {"noise_level": 0} if noise is None else {key: getattr(noise, key) for key in NOISE}
    for name in PRIORS if "prior" in found else ():
        if PRIORS[name].load() is type(getattr(method, "prior", None)):
            found["prior"] = name
    return {key: value for key, value in found.items() if value is not None or _none_is_a_choice(type(method), key)}


def plain(value: Any) -> Any:
    """A value as JSON can hold it; objects become their repr."""
    if isinstance(value, Mapping):
        return {str(key): plain(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [plain(each) for each in value]
    return value if value is None or isinstance(value, str | int | float) else repr(value)


def versions() -> dict[str, str]:
    """The versions that a stored result names."""
    return {"python": platform.python_version()} | {name: version(name) for name in ("moreaugrad", "torch")}


def _none_is_a_choice(kind: Any, key: str) -> bool:
    """Whether None differs from leaving the option out."""
    if key == "smoothing":
        return True
    return any(each.name == key and each.default is not None and each.default is not MISSING for each in fields(kind))


def _make_smoothing(kind: Any, noise: dict[str, Any]) -> Smoothing | None:
    """The method's own smoothing with the given options in place; a noise level of 0 means none."""
    if 0 in (noise.get("noise_level"), noise.get("sigma")):
        if "samples" in noise:
            raise ValueError(f"samples must be left out where there is no noise, got samples={noise['samples']}")
        return None
    default = next(each.default_factory for each in fields(kind) if each.name == "smoothing")
    absolute = {"noise_level": None} if "sigma" in noise and "noise_level" not in noise else {}
    made: Smoothing = replace(Smoothing() if default is MISSING else default(), **absolute | noise)
    return made
