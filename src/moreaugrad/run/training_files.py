"""`train cifar10`: arrays in, the trained weights out, with notes on how they came about."""

from __future__ import annotations

import json
import time
from dataclasses import dataclass, fields
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch

from moreaugrad import checks
from moreaugrad.data.arrays import read_cifar10
from moreaugrad.disk.files import replacing
from moreaugrad.run.resumable import DONE, NOT_FINISHED, Files, resume, run
from moreaugrad.run.terminal import Terminal
from moreaugrad.run.training import Training
from moreaugrad.run.training_recipes import RECIPES, LipschitzRecipe, Recipe
from moreaugrad.zoo.checkpoint import fit
from moreaugrad.zoo.lipschitz import read_widths


@dataclass(frozen=True, slots=True)
class Order:
    """What a command asks for beside the recipe."""

    data: Path
    out: Path | None = None  # None: named by the network
    device: str = "auto"
    compile: bool | None = None  # None: on a GPU
    restart: bool = False  # from the beginning, even where there is a checkpoint
    limit_seconds: float | None = None  # stop after the epoch in which they have passed


def train_cifar10(options: dict[str, Any], order: Order, terminal: Terminal) -> int:
    """Trains, or goes on training; the exit code. Options that are None are chosen by the device."""
    began = time.monotonic()
    terminal.hear_warnings()
    place = "cuda" if torch.cuda.is_available() else "cpu"
    device = checks.device(place if order.device == "auto" else order.device)
    recipe = chosen(options, device)
    files = Files.at(order.out or Path(f"{recipe.network}_cifar10.safetensors"))
    with terminal.busy(f"reading {order.data}"):
        arrays = read_cifar10(order.data)
    compile = device.type == "cuda" if order.compile is None else order.compile
    with terminal.busy("preparing the network"):
        training = Training(recipe, arrays, device, compile)
    resume(training, files, order.restart, terminal)
    if not run(training, files, terminal, began, order.limit_seconds):
        return NOT_FINISHED
    exact, stored = (100 * line["test_accuracy"] for line in write(training, files.weights).values())
    terminal.say(f"test accuracy {exact:.2f} % in float32, {stored:.2f} % as stored -> {files.weights}")
    return DONE


def chosen(options: dict[str, Any], device: torch.device) -> Recipe | LipschitzRecipe:
    """The recipe: as asked, the batch by the device, the learning rate by the batch."""
    given = {name: value for name, value in options.items() if value is not None}
    network = given.pop("network", Recipe.network)
    checks.one_of("network", network, RECIPES)
    kind = RECIPES[network]
    known = {field.name for field in fields(kind)}
    for name in given:
        if name not in known:
            owners = [other for other, each in RECIPES.items() if name in {field.name for field in fields(each)}]
            raise ValueError(f"--{name} must be left out for --network {network}, got one; it belongs to {owners[0]}")
    if "widths" in given:
        given["widths"] = read_widths(given["widths"])
    batch = given.setdefault("batch", 512 if device.type == "cuda" else 128)
    given.setdefault("lr", kind.usual_rate(batch))
    return kind(**given)


def write(training: Training, path: Path) -> dict[str, dict[str, float]]:
    """The weights in half precision, with notes on how they came about; the accuracy before and after rounding."""
    from safetensors.torch import save

    state = training.recipe.state(training.network)
    rounded = training.recipe.build().to(training.device)
    fit(rounded, state, path)
    found = {"float32": training.tested(training.network), "stored": training.tested(rounded)}
    with replacing(path) as file:
        file.write(save(state, notes(training, found)))
    return found


def notes(training: Training, found: dict[str, dict[str, float]]) -> dict[str, str]:
    """What the file says of itself. A model is built from the options of its network."""
    recipe = {name: _plain(value) for name, value in training.identity.items()}
    for kind, line in found.items():
        recipe |= {f"{name.removeprefix('test_')}_{kind}": f"{value:.4f}" for name, value in line.items()}
    mean, std = training.recipe.scale
    return recipe | {
        "format": "pt",
        "dataset": "CIFAR-10",
        "test_images": str(len(training.test[0])),
        "mean": json.dumps(mean),
        "std": json.dumps(std),
        "torch": str(torch.__version__),
        "moreaugrad": version("moreaugrad"),
    }


def _plain(value: object) -> str:
    return ",".join(map(str, value)) if isinstance(value, tuple) else str(value)
