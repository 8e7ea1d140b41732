"""What a figure depends on is stored in OUT/<figure>.json; figures whose inputs have not changed are skipped."""

from __future__ import annotations

import json
import platform
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cached_property
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks.record import hardware
from moreaugrad.files import replacing
from paper.data import records
from paper.data.datasets import Sample
from paper.report import tiles
from paper.settings import Settings

if TYPE_CHECKING:
    from matplotlib.figure import Figure

PACKAGES = ("moreaugrad", "torch", "torchvision", "timm", "numpy", "matplotlib")


@dataclass(frozen=True)
class FigureCache:
    """The files of one figure, by its options and the images with their networks."""

    figure: str
    settings: Settings
    options: Mapping[str, Any]  # its own numbers: weights, budgets, ...
    samples: Sequence[Sample]

    def path(self, ending: str) -> Path:
        """OUT/<figure>.jpg, .csv or .json."""
        return self.settings.out / f"{self.figure}.{ending}"

    @cached_property
    def inputs(self) -> dict[str, Any]:
        """All that the result depends on, as JSON gives it back."""
        images = {each.name: {"keys": each.keys, "model": each.trained, "digest": each.digest} for each in self.samples}
        found: dict[str, Any] = json.loads(json.dumps({"quick": self.settings.quick, **self.options, "images": images}))
        return found

    def is_current(self) -> bool:
        """Whether the same figure was made before, whole."""
        if self.settings.restart or not all(self.path(ending).is_file() for ending in ("jpg", "csv", "json")):
            return False
        try:
            before = json.loads(self.path("json").read_text(encoding="utf-8"))["settings"]
        except (ValueError, KeyError, TypeError):
            return False
        if before == self.inputs:
            print(f"{self.figure}: there already with the same settings; --restart redoes it")
        return bool(before == self.inputs)

    def store(self, lines: Sequence[Mapping[str, Any]], picture: Figure) -> None:
        """Write picture, table and description; the description last, so that only a whole figure has one."""
        self.settings.out.mkdir(parents=True, exist_ok=True)
        self.path("json").unlink(missing_ok=True)
        tiles.save(picture, self.path("jpg"))
        records.write(self.path("csv"), lines, dict.fromkeys(name for line in lines for name in line))
        content = describe_run(self.figure, self.settings) | {"settings": self.inputs}
        with replacing(self.path("json")) as file:
            file.write((json.dumps(content, indent=1, ensure_ascii=False) + "\n").encode())


def describe_run(figure: str, settings: Settings) -> dict[str, Any]:
    """The command of this run, when and on what it was made; folders by their names only."""
    words = [f"--figure {figure} --data {settings.data.name}", "--quick" if settings.quick else ""]
    words += [f"--model {name}={model}" for name, model in settings.models.items()]
    words += [f"--weights {name}={file.name}" for name, file in settings.weights.items()]
    words += [f"--datasets {','.join(settings.datasets)}"]
    return {
        "command": " ".join(["python -m paper", *filter(None, words)]),
        "date": datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
        "device": hardware(str(settings.place)),
        "versions": {"python": platform.python_version(), **{name: version(name) for name in PACKAGES}},
    }
