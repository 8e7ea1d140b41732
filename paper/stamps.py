"""What a figure depends on, in OUT/<figure>.json beside it: one that is there with the same is not made again."""

from __future__ import annotations

import json
import os
import platform
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cached_property
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from paper import records, tiles
from paper.datasets import Sample
from paper.settings import Settings

if TYPE_CHECKING:
    from matplotlib.figure import Figure

PACKAGES = ("moreaugrad", "torch", "torchvision", "timm", "numpy", "matplotlib")


@dataclass(frozen=True)
class Stamp:
    """A figure's name, what it was told, and the images with their networks."""

    figure: str
    settings: Settings
    told: Mapping[str, Any]  # its own numbers: weights, budgets, ...
    samples: Sequence[Sample]

    @property
    def picture(self) -> Path:
        return self.settings.out / f"{self.figure}.jpg"

    @property
    def table(self) -> Path:
        return self.settings.out / f"{self.figure}.csv"

    @property
    def note(self) -> Path:
        return self.settings.out / f"{self.figure}.json"

    @cached_property
    def depends(self) -> dict[str, Any]:
        """All that another result would come from; as JSON gives it back."""
        images = {each.name: {"keys": each.keys, "model": each.trained, "digest": each.digest} for each in self.samples}
        found: dict[str, Any] = json.loads(json.dumps({"quick": self.settings.quick, **self.told, "images": images}))
        return found

    def there(self) -> bool:
        """Whether the same figure was made before, whole."""
        if self.settings.restart or not (self.picture.is_file() and self.table.is_file() and self.note.is_file()):
            return False
        try:
            before = json.loads(self.note.read_text(encoding="utf-8"))["settings"]
        except (ValueError, KeyError, TypeError):
            return False
        if before == self.depends:
            print(f"{self.figure}: there already with the same settings; --restart makes it anew")
        return bool(before == self.depends)

    def store(self, lines: Sequence[Mapping[str, Any]], picture: Figure) -> None:
        """Picture, table and note; the note last, so that only a whole figure has one."""
        self.settings.out.mkdir(parents=True, exist_ok=True)
        self.note.unlink(missing_ok=True)
        tiles.write(picture, self.picture)
        records.write(self.table, lines, _columns(lines))
        told = facts(self.figure, self.settings) | {"settings": self.depends}
        with records.replacing(self.note) as draft:
            draft.write_text(json.dumps(told, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


def facts(figure: str, settings: Settings) -> dict[str, Any]:
    """Of this run: its command, when and on what it was made."""
    return {
        "command": _command(figure, settings),
        "date": datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
        "device": hardware(settings.place),
        "versions": {"python": platform.python_version(), **{name: version(name) for name in PACKAGES}},
    }


def _command(figure: str, told: Settings) -> str:
    """What to type to get the same; folders by their names only."""
    words = [f"--figure {figure} --data {told.data.name}", "--quick" if told.quick else ""]
    words += [f"--model {name}={model}" for name, model in told.models.items()]
    words += [f"--weights {name}={file.name}" for name, file in told.weights.items()]
    words += [f"--datasets {','.join(told.datasets)}"]
    return " ".join(["python -m paper", *filter(None, words)])


def hardware(place: torch.device) -> str:
    """The chip that does the work."""
    if place.type == "cuda":
        return torch.cuda.get_device_name(place)
    told, chip = Path("/proc/cpuinfo"), platform.processor() or platform.machine()
    if told.is_file():
        names = [line.partition(":")[2].strip() for line in told.read_text().splitlines() if "model name" in line]
        chip = next(iter(names), chip)
    return f"{chip}, {os.cpu_count()} cores"


def _columns(lines: Iterable[Mapping[str, Any]]) -> list[str]:
    """All that any line has, in the order in which they come up."""
    return list(dict.fromkeys(name for line in lines for name in line))
