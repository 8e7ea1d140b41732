"""How to get the same map outside the page: a command line, and five lines of Python."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from typing import Any

FLAGS = {"noise_level": "--noise-level"}
PHOTO = "photo.jpg"


def write_command(model: str, method: str, target: int | None, options: Mapping[str, Any], device: str) -> str:
    """The command that explains a photo as the page did."""
    words = ["moreaugrad", "explain", PHOTO, "--model", model, "--method", method]
    words += [] if target is None else ["--target", str(target)]
    for name, value in options.items():
        words += [FLAGS.get(name, f"--{name}"), str(value)]
    return shlex.join([*words, "--device", device])


def write_python(model: str, method: str, target: int | None, options: Mapping[str, Any], device: str) -> str:
    """The lines of Python that do the same."""
    given = ({} if target is None else {"target": target}) | dict(options)
    words = "".join(f", {name}={value!r}" for name, value in given.items())
    return "\n".join(
        [
            "import moreaugrad as mg",
            "",
            f"model = mg.load_model({model!r}, device={device!r})",
            f"found = mg.explain(model, {PHOTO!r}, {method!r}{words})",
            "print(found)",
            'found.save("map.npz")',
        ]
    )
