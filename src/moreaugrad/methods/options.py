"""Flat options, as people type them or store them, and the method that they make."""

from __future__ import annotations

import platform
from collections.abc import Mapping
from dataclasses import MISSING, fields, is_dataclass, replace
from importlib.metadata import version
from typing import Any

from moreaugrad.envelope.priors import PRIORS
from moreaugrad.methods import DEFAULT_PRESET, METHODS, PRESETS, PUBLISHED
from moreaugrad.methods.base import Method, NoisyMethod, describe, option_fields
from moreaugrad.model.smoothing import Smoothing
from moreaugrad.registry import unknown
from moreaugrad.results import Option

NOISE = ("noise_level", "sigma", "samples")  # the parts of a smoothing


def make_method(name: str, model: Any, options: Mapping[str, Any]) -> Method:
    """Make a method from its name and flat options: those of its class, and the parts of its smoothing.

    With a prior by name also those of the prior. An unknown option raises, unless it is None.
    """
    kind, known = METHODS[name].load(), option_names(name)
    given = {key: value for key, value in options.items() if value is not None or key in set(known) - set(NOISE)}
    if isinstance(given.get("prior"), str) and "prior" in known:
        own = prior_options(PRIORS[given["prior"]].load())
        mine = {key: given.pop(key) for key in list(given) if key in own and key not in known}
        given["prior"] = PRIORS[given["prior"]](**mine) if mine else given["prior"]
    for key, value in given.items():
        if key == "prior" and key not in known:
            raise ValueError(f"prior must be left out: {name} has none, got {value!r}; the method moreau takes one")
        if key == "preset" and key not in known:
            having = ", ".join(each for each, entry in METHODS.items() if key in entry.flags)
            raise ValueError(f"preset must be left out: {name} has no presets, got {value!r}; {having} have")
        if key not in known:
            raise unknown(f"an option of {name}", key, known)
    if "layer" in given and "layers" in known:  # people type `layer` for one or several
        layers = given.pop("layer")
        given["layers"] = layers.split(",") if isinstance(layers, str) else layers
    if not issubclass(kind, NoisyMethod) and (noise := {key: given.pop(key) for key in NOISE if key in given}):
        given["smoothing"] = _make_smoothing(kind, noise)
    made: Method = kind(model, **given)
    return made


def with_default_preset(name: str, options: Mapping[str, Any]) -> dict[str, Any]:
    """Flat options with the preset that front ends take where none is named, for a method that has presets.

    Where a solver is asked for, or no noise, the default one may not apply: then it is the published one.
    """
    if "preset" in options or not hasattr(METHODS[name].load(), "presets"):
        return dict(options)
    missing = {key: value for key, value in PRESETS[DEFAULT_PRESET].items() if key not in options}
    unsolved = missing.get("rho") == 0 and options.get("solver") is not None
    still = 0 in (options.get("noise_level"), options.get("sigma")) or options.get("smoothing", 0) is None
    unfit = unsolved or (still and missing.get("statistic", "mean") != "mean")
    return {**options, "preset": PUBLISHED if unfit else DEFAULT_PRESET}


def takes_option(name: str, option: str, options: Mapping[str, Any]) -> bool:
    """Whether an option that several methods share is meant for this one.

    A weight or sparsity needs a prior, and a method that sets its own prior takes no other.
    """
    own_prior = "sparse" in METHODS[name].flags
    if option == "prior" and own_prior:
        return False
    needs_prior = option in ("eta", "sparsity") and "prior" in option_names(name)
    return option in option_names(name) and (own_prior or not needs_prior or "prior" in options)


def option_names(name: str) -> list[str]:
    """The flat options that a method takes."""
    found = [each.name for each in option_fields(METHODS[name].load()) if each.init]
    return found + ["layer"] * ("layers" in found) + list(NOISE) * ("smoothing" in found)


def prior_options(prior: Any) -> list[str]:
    """The options of a prior, or of its class: the fields that its text shows."""
    return [each.name for each in fields(prior) if each.init and each.repr] if is_dataclass(prior) else []


def describe_options(method: Method) -> dict[str, Any]:
    """The options of a method as numbers and words; `make_method` makes the same method from them."""
    found = dict(method.options())
    if "smoothing" in found:
        del found["smoothing"]
        noise = method.noise
        found |= {"noise_level": 0} if noise is None else {key: getattr(noise, key) for key in NOISE}
    if "preset" in found:
        found["preset"] = method.preset  # the record has also what differs from it
    prior: Any = getattr(method, "prior", None)
    for name in PRIORS if "prior" in found else ():
        if PRIORS[name].load() is type(prior):
            found["prior"] = name
            own = {key: getattr(prior, key) for key in prior_options(prior)}
            found |= {key: value if isinstance(value, Option) else describe(value) for key, value in own.items()}
    defaults = {each.name: each.default for each in option_fields(type(method))}
    return {key: value for key, value in found.items() if value is not None or defaults.get(key) is not None}


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


def _make_smoothing(kind: Any, noise: dict[str, Any]) -> Smoothing | None:
    """For a mask under noise: its own smoothing with the given parts in place; a noise level of 0 means none."""
    if 0 in (noise.get("noise_level"), noise.get("sigma")):
        return None
    default = next(each.default_factory for each in option_fields(kind) if each.name == "smoothing")
    absolute = {"noise_level": None} if "sigma" in noise and "noise_level" not in noise else {}
    return replace(Smoothing() if default is MISSING else default(), **absolute | noise)
