"""`moreaugrad train`: pictures in, the trained weights out, with notes on how they came about."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import torch

from moreaugrad import validate
from moreaugrad.api import best_device
from moreaugrad.cli.terminal import Terminal
from moreaugrad.data.arrays import Arrays, read_cifar10
from moreaugrad.data.tiny_imagenet import read_tiny_imagenet, read_wnids
from moreaugrad.files import replacing
from moreaugrad.models.checkpoint import load_state
from moreaugrad.models.lipschitz import read_widths
from moreaugrad.training.checkpoints import DONE, NOT_FINISHED, Files, resume, run
from moreaugrad.training.loop import Training
from moreaugrad.training.recipes import RECIPES, AnyRecipe, FineTuning, LipschitzRecipe, Recipe, fresh

MOST_CLASSES = 256  # labels are bytes


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
    device = best_device(order.device)
    recipe = chosen(options, device)
    out = order.out or Path(f"{recipe.network}_cifar10.safetensors")
    return trained(recipe, lambda: read_cifar10(order.data), replace(order, out=out), device, terminal)


def train_tiny_imagenet(options: dict[str, Any], order: Order, terminal: Terminal) -> int:
    """The same, fine-tuning on the classes that the folder has."""
    device = best_device(order.device)
    given = {name: value for name, value in options.items() if value is not None}
    batch = given.setdefault("batch", 256 if device.type == "cuda" else 64)
    recipe = FineTuning(**{"lr": FineTuning.usual_rate(batch)} | given)
    known = dict(zip(read_wnids(order.data), read_tiny_imagenet(order.data, "val").classes, strict=True))
    recipe = replace(recipe, wnids=tuple(known), names=tuple(known.values()))
    out = order.out or Path(f"{recipe.network}_tiny_imagenet.safetensors")
    return trained(recipe, lambda: tiny_arrays(order.data), replace(order, out=out), device, terminal)


def trained(
    recipe: AnyRecipe, read: Callable[[], Arrays], order: Order, device: torch.device, terminal: Terminal
) -> int:
    """From the recipe to the file of weights, or to --limit-seconds."""
    began = time.monotonic()
    terminal.hear_warnings()
    files = Files.at(order.out or Path(recipe.network))
    with terminal.busy(f"reading {order.data}"):
        arrays = read()
    compile = device.type == "cuda" if order.compile is None else order.compile
    with terminal.busy("preparing the network"):
        training = Training(recipe, arrays, device, compile)
    resume(training, files, order.restart, terminal)
    if not run(training, files, terminal, began, order.limit_seconds):
        return NOT_FINISHED
    exact, stored = (100 * line["test_accuracy"] for line in write(training, files.weights).values())
    terminal.say(f"test accuracy {exact:.2f} % in float32, {stored:.2f} % as stored -> {files.weights}")
    return DONE


def tiny_arrays(folder: Path) -> Arrays:
    """Both splits of Tiny-ImageNet; the validation images are those that it is tested on."""
    train, val = (read_tiny_imagenet(folder, split) for split in ("train", "val"))
    if len(train.classes) > MOST_CLASSES:
        raise ValueError(
            f"--data must have at most {MOST_CLASSES} classes, got {len(train.classes)} in {str(folder)!r}"
        )
    y_train, y_val = (half.labels.astype(np.uint8) for half in (train, val))
    return Arrays(train.pixels(), y_train, val.pixels(), y_val)


def chosen(options: dict[str, Any], device: torch.device) -> Recipe | LipschitzRecipe:
    """The recipe: as asked, the batch by the device, the learning rate by the batch."""
    given = {name: value for name, value in options.items() if value is not None}
    network = given.pop("network", Recipe.network)
    validate.one_of("network", network, RECIPES)
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
    rounded = fresh(training.recipe).to(training.device)
    load_state(rounded, state, path)
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
    return (
        recipe
        | training.recipe.notes()
        | {
            "format": "pt",
            "dataset": training.recipe.dataset,
            "test_images": str(len(training.test[0])),
            "mean": json.dumps(mean),
            "std": json.dumps(std),
            "torch": str(torch.__version__),
            "moreaugrad": version("moreaugrad"),
        }
    )


def _plain(value: object) -> str:
    return ",".join(map(str, value)) if isinstance(value, tuple) else str(value)
