"""How to get the same map outside the page: a command line, and five lines of Python."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from moreaugrad.methods.options import option_names

PHOTO = "photo.jpg"


@dataclass(frozen=True)
class Recipe:
    """All that a map depends on.

    Args:
        model: its name, or package.module:factory.
        loaded: what it was loaded with, as `load_model` takes it; files by their names alone.
        device: where it runs.
        method, target, options: what was asked for, options as the page has them.
        gradients: what the quality stands for.
    """

    model: str
    loaded: Mapping[str, Any]
    device: str
    method: str
    target: int | None
    options: Mapping[str, Any]
    gradients: int | None

    @property
    def command(self) -> str:
        """The command that explains a photo as the page did."""
        words = ["moreaugrad", "explain", PHOTO, "--model", self.model]
        words += [word for name, value in self.loaded.items() for word in (f"--{name}", _write_numbers(value))]
        words += ["--method", self.method]
        words += [] if self.target is None else ["--target", str(self.target)]
        for name, value in self.options.items():
            words += [f"--{name.replace('_', '-')}", str(value)]
        return shlex.join([*words, "--device", self.device])

    @property
    def python(self) -> str:
        """The lines of Python that do the same."""
        given: dict[str, Any] = {} if self.target is None else {"target": self.target}
        given |= {name: value for name, value in self.options.items() if name != "quality"}
        if (quality := self.options.get("quality")) is not None:
            given |= {"budget": quality} if "budget" in option_names(self.method) else {"samples": self.gradients}
        loaded = {**self.loaded, "device": self.device}
        return "\n".join(
            [
                "import moreaugrad as mg",
                "",
                f"model = mg.load_model({self.model!r}{_write_named(loaded)})",
                f"found = mg.explain(model, {PHOTO!r}, {self.method!r}{_write_named(given)})",
                "print(found)",
                'found.save("map.npz")',
            ]
        )


def _write_named(options: Mapping[str, Any]) -> str:
    return "".join(f", {name}={value!r}" for name, value in options.items())


def _write_numbers(value: Any) -> str:
    return ",".join(map(str, value)) if isinstance(value, list | tuple) else str(value)
