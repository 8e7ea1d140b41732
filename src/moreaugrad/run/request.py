"""What a command line asks for, checked as far as that costs no heavy import."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from moreaugrad.methods import QUALITY

OPTIONS = (
    *("rho", "eta", "sparsity", "groups", "noise_level", "samples", "budget", "score", "seed"),
    *("relative_error", "precision", "compile"),
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

    @classmethod
    def of(cls, arguments: Mapping[str, Any]) -> Request:
        """From the arguments of a command."""
        names = ("model", "weights", "labels", "device", "target", "out")
        return cls(**{name: arguments[name] for name in names}, options=_options(arguments))


def _options(arguments: Mapping[str, Any]) -> dict[str, Any]:
    found = {name: arguments[name] for name in OPTIONS if arguments[name] is not None}
    if str(found.get("groups", "")).isdecimal():
        found["groups"] = int(found["groups"])
    quality = arguments["quality"]
    if quality is not None:
        if "budget" in found:
            raise ValueError(f"--quality and --budget exclude each other, got {quality!r} and {found['budget']}")
        if quality not in QUALITY:
            raise ValueError(f"--quality must be one of {list(QUALITY)}, got {quality!r}")
        found["budget"] = QUALITY[quality]
    return found
