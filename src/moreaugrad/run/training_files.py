"""`train cifar10`: arrays in, the trained weights out, with notes on how they came about."""

from __future__ import annotations

import json
import time
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from moreaugrad import checks
from moreaugrad.data.arrays import read_cifar10
from moreaugrad.disk.files import replacing
from moreaugrad.run.resumable import DONE, NOT_FINISHED, Files, resume, run
from moreaugrad.run.terminal import Terminal
from moreaugrad.run.training import Recipe, Training, accuracy, fresh
from moreaugrad.zoo.checkpoint import fit
from moreaugrad.zoo.resnet import MEAN, STD


@dataclass(frozen=True, slots=True)
class Order:
    """What a command asks for beside the recipe."""

    data: Path
    out: Path
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
    files = Files.at(order.out)
    with terminal.busy(f"reading {order.data}"):
        arrays = read_cifar10(order.data)
    compile = device.type == "cuda" if order.compile is None else order.compile
    with terminal.busy("preparing the network"):
        training = Training(recipe, arrays, device, compile)
    resume(training, files, order.restart, terminal)
    if not run(training, files, terminal, began, order.limit_seconds):
        return NOT_FINISHED
    exact, stored = write(training, files.weights)
    terminal.say(f"test accuracy {100 * exact:.2f} % in float32, {100 * stored:.2f} % as stored -> {files.weights}")
    return DONE


def chosen(options: dict[str, Any], device: torch.device) -> Recipe:
    """The recipe: as asked, the batch by the device, the learning rate by the batch."""
    given = {name: value for name, value in options.items() if value is not None}
    batch = given.setdefault("batch", 512 if device.type == "cuda" else 128)
    given.setdefault("lr", 0.2 * batch / 512)
    return Recipe(**given)


def write(training: Training, path: Path) -> tuple[float, float]:
    """The weights in half precision, with notes on how they came about; the accuracy before and after rounding."""
    from safetensors.torch import save

    state = halved(training.network.state_dict())
    rounded = fresh(training.recipe).to(training.device)
    fit(rounded, state, path)
    exact, stored = accuracy(training.network, *training.test), accuracy(rounded, *training.test)
    with replacing(path) as file:
        file.write(save(state, notes(training, exact, stored)))
    return exact, stored


def halved(state: dict[str, Tensor]) -> dict[str, Tensor]:
    """float16, but float32 where a number is too large for it; without the counters of batch norm."""
    found = {}
    for name, tensor in state.items():
        if tensor.is_floating_point():
            half = tensor.half()
            found[name] = (half if half.isfinite().all() else tensor).cpu().contiguous()
    return found


def notes(training: Training, exact: float, stored: float) -> dict[str, str]:
    """What the file says of itself. A model is built from activation, beta and width."""
    recipe = {name: str(value) for name, value in training.identity.items()}
    return recipe | {
        "format": "pt",
        "dataset": "CIFAR-10",
        "accuracy_float32": f"{exact:.4f}",
        "accuracy_stored": f"{stored:.4f}",
        "test_images": str(len(training.test[0])),
        "mean": json.dumps(MEAN),
        "std": json.dumps(STD),
        "torch": str(torch.__version__),
        "moreaugrad": version("moreaugrad"),
    }
