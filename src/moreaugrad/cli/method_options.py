"""Flat options, as people type them, -> a method. Knows which options a method takes; computes nothing."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import MISSING, fields, replace
from typing import Any

from moreaugrad.methods import METHODS
from moreaugrad.methods.base import Method
from moreaugrad.model.smoothing import Smoothing
from moreaugrad.registry import unknown

NOISE = ("noise_level", "sigma", "samples")  # options of the smoothing


def make_method(name: str, model: Any, options: Mapping[str, Any]) -> Method:
    """METHODS[name] with its smoothing put together. None was not given, unless it means something to the method."""
    kind = METHODS[name].load()
    known = taken(name)
    if "layer" in options and "layers" in known:  # one or several, as people type them
        options = {"layers" if key == "layer" else key: value for key, value in options.items()}
        options["layers"] = options["layers"].split(",") if isinstance(options["layers"], str) else options["layers"]
    given = {key: value for key, value in options.items() if value is not None or _tells(kind, key)}
    for key in given:
        if key not in known:
            raise unknown(f"an option of {name}", key, known)
    noise = {key: given.pop(key) for key in NOISE if key in given}
    if noise:
        if "smoothing" in given:
            raise ValueError(f"smoothing and {', '.join(noise)} exclude each other, got both; give one")
        given["smoothing"] = _smoothing(kind, noise)
    made: Method = kind(model, **given)
    return made


def taken(name: str) -> list[str]:
    """The options of a method."""
    found = [each.name for each in fields(METHODS[name].load()) if each.name != "forward_func"]
    found += ["layer"] if "layers" in found else []
    return found + list(NOISE) if "smoothing" in found else found


def told(method: Method) -> dict[str, Any]:
    """The options of a method as numbers and words: what to type to get the same again."""
    found = dict(method.options())
    if "smoothing" in found:
        del found["smoothing"]
        noise = method.noise
        found |= {"noise_level": 0} if noise is None else {key: getattr(noise, key) for key in NOISE}
    return {key: value for key, value in found.items() if value is not None or _tells(type(method), key)}


def _tells(kind: Any, key: str) -> bool:
    """Whether None is another choice than leaving the option out."""
    if key == "smoothing":
        return True
    return any(each.name == key and each.default is not None and each.default is not MISSING for each in fields(kind))


def _smoothing(kind: Any, noise: dict[str, Any]) -> Smoothing | None:
    """The method's own smoothing with what was given in place; a noise level of 0 is none."""
    if 0 in (noise.get("noise_level"), noise.get("sigma")):
        if "samples" in noise:
            raise ValueError(f"samples must be left out where there is no noise, got samples={noise['samples']}")
        return None
    default = next(each.default_factory for each in fields(kind) if each.name == "smoothing")
    absolute = {"noise_level": None} if "sigma" in noise and "noise_level" not in noise else {}
    made: Smoothing = replace(Smoothing() if default is MISSING else default(), **absolute | noise)
    return made
