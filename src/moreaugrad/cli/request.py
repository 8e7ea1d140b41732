"""What a command line asks for, checked as far as that costs no heavy import."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from moreaugrad.methods import QUALITY

OPTIONS = (
    *("rho", "eta", "sparsity", "groups", "noise_level", "samples", "budget", "score", "seed"),
    *("relative_error", "precision", "compile", "layer"),
)


@dataclass(frozen=True, slots=True)
class Request:
    """A model, a class, the options of a method that were given, and a folder for the results."""

    model: str = "efficientnet_lite0"
    weights: str | None = None
    labels: Path | None = None
    device: str = "auto"
    target: str | None = None  # a number or a name
    out: Path = Path("maps")
    options: dict[str, Any] = field(default_factory=dict)
    chosen: frozenset[str] = frozenset()  # options that were meant for some method in particular

    @classmethod
    def of(cls, arguments: Mapping[str, Any]) -> Request:
        """From the arguments of a command."""
        names = ("model", "weights", "labels", "device", "target", "out")
        meant = {"layer": arguments.get("layer"), "network": arguments.get("mask_network")}
        chosen = {name for name, value in meant.items() if value is not None}
        chosen |= {_set(text)[0] for text in arguments.get("others") or ()}
        given = {name: arguments[name] for name in names if name in arguments}
        return cls(**given, options=_options(arguments), chosen=frozenset(chosen))


def _options(arguments: Mapping[str, Any]) -> dict[str, Any]:
    found = {name: arguments[name] for name in OPTIONS if arguments.get(name) is not None}
    if arguments.get("mask_network") is not None:
        found["network"] = str(arguments["mask_network"])
    for text in arguments.get("others") or ():
        name, value = _set(text)
        if name in found:
            raise ValueError(f"--set must not repeat an option, got {text!r} and {name}={found[name]}")
        found[name] = value
    if str(found.get("groups", "")).isdecimal():
        found["groups"] = int(found["groups"])
    quality = arguments.get("quality")
    if quality is not None:
        if "budget" in found:
            raise ValueError(f"--quality and --budget exclude each other, got {quality!r} and {found['budget']}")
        if quality not in QUALITY:
            raise ValueError(f"--quality must be one of {list(QUALITY)}, got {quality!r}")
        found["budget"] = QUALITY[quality]
    return found


def _set(text: str) -> tuple[str, Any]:
    """NAME=VALUE; a value that is JSON (a number, true, null, a list) is taken as that, any other as a word."""
    name, equals, value = text.partition("=")
    if not equals or not name.strip():
        raise ValueError(f"--set must be NAME=VALUE, got {text!r}")
    try:
        return name.strip().replace("-", "_"), json.loads(value)
    except json.JSONDecodeError:
        return name.strip().replace("-", "_"), value
