"""The options of a run: where data and results lie, which networks, how much work. Reads and computes nothing."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import torch

from moreaugrad import validate

MODELS = {  # default network of each data set
    "cifar10": "resnet18_softplus_cifar10",
    "tiny_imagenet": "efficientnet_lite0_tiny_imagenet",
    "imagenet": "efficientnet_lite0",
}
DATASETS = tuple(MODELS)


@dataclass(frozen=True)
class Settings:
    """One run. `models` and `weights` go by data set and hold only what differs from `MODELS`."""

    data: Path  # folder with the data sets
    out: Path
    quick: bool = False  # few images and small budgets
    device: str = "auto"  # a GPU where there is one
    minutes: float | None = None  # stop a study after so many minutes
    models: Mapping[str, str] = field(default_factory=dict)
    weights: Mapping[str, Path] = field(default_factory=dict)
    datasets: tuple[str, ...] = DATASETS
    restart: bool = False  # redo what is there already
    shard: int | None = None  # studies: only the shard of this number, from 1
    redraw: bool = False  # studies: only tables and pictures, from the rows that are there

    def __post_init__(self) -> None:
        for name in (*self.datasets, *self.models, *self.weights):
            one_of("a data set", name, DATASETS)
        if not self.datasets:
            raise ValueError(f"--datasets must name at least one of {list(DATASETS)}, got none")
        if self.shard is not None and self.shard < 1:
            raise ValueError(f"--shard must be a number from 1, got {self.shard}")
        if self.minutes is not None and not self.minutes > 0:
            raise ValueError(f"--minutes must be a positive number, got {self.minutes}")

    @property
    def place(self) -> torch.device:
        """Where the work is done."""
        if self.device == "auto":
            return torch.device("cuda" if torch.cuda.is_available() else "cpu")
        try:
            found = torch.device(self.device)
            torch.empty(1, device=found)
        except (RuntimeError, AssertionError) as error:
            reason = str(error).splitlines()[0].rstrip(".")
            raise ValueError(f"--device must be auto, cpu or a GPU that works, got {self.device!r}: {reason}") from None
        return found

    @property
    def largest(self) -> str:
        """The requested data set with the largest images: photos, where there are any."""
        return max(self.datasets, key=DATASETS.index)

    def model(self, dataset: str) -> str:
        """The name of the network for a data set."""
        return self.models.get(dataset, MODELS[dataset])


def one_of(what: str, name: str, known: Sequence[str]) -> str:
    """The name itself, if it is known; else an error that names the nearest."""
    validate.one_of(what, name, dict.fromkeys(known))
    return name


def by_dataset(option: str, words: Iterable[str]) -> dict[str, str]:
    """Parse DATASET=VALUE, several times; a value alone is meant for ImageNet."""
    found: dict[str, str] = {}
    for word in words:
        name, equals, value = word.rpartition("=")
        name = one_of(f"{option} DATASET=VALUE: the data set", name, DATASETS) if equals else "imagenet"
        if not value:
            raise ValueError(f"{option} must be DATASET=VALUE, got {word!r} without a value")
        if name in found:
            raise ValueError(f"{option} must name each data set once, got {name} twice: {found[name]!r} and {value!r}")
        found[name] = value
    return found
