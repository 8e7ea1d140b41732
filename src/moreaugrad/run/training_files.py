"""Training with files: checkpoints to go on from, a line of log per epoch, the weights at the end."""

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
from moreaugrad.disk.files import replacing, with_ending
from moreaugrad.run.terminal import Terminal
from moreaugrad.run.training import Recipe, Training, accuracy, fresh
from moreaugrad.zoo.checkpoint import fit
from moreaugrad.zoo.resnet import MEAN, STD

DONE, NOT_FINISHED = 0, 1
EVERY = 20.0  # seconds between checkpoints, at the least


@dataclass(frozen=True, slots=True)
class Files:
    """Where a training leaves what it makes: the weights, and beside them the checkpoint and the log."""

    weights: Path

    @classmethod
    def at(cls, out: Path) -> Files:
        found = with_ending(out, ".safetensors")
        if found.is_dir():
            raise ValueError(f"--out must be a file, got the folder {str(found)!r}; name a file in it")
        found.parent.mkdir(parents=True, exist_ok=True)
        return cls(found)

    @property
    def checkpoint(self) -> Path:
        return self.weights.with_suffix(".checkpoint.pt")

    @property
    def log(self) -> Path:
        return self.weights.with_suffix(".log.jsonl")


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
        done = len(training.history)
        terminal.say(f"stopped after epoch {done} of {recipe.epochs}; the same command goes on from {files.checkpoint}")
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


def resume(training: Training, files: Files, restart: bool, terminal: Terminal) -> None:
    """Loads the checkpoint, where there is one, and makes the log agree with it."""
    if restart:
        files.checkpoint.unlink(missing_ok=True)  # else a restart that is killed early would go on from the old one
    if files.checkpoint.is_file():
        training.load(read_checkpoint(files.checkpoint, training.identity, training.device))
        terminal.say(f"going on after epoch {len(training.history)} of {training.recipe.epochs}: {files.checkpoint}")
    with replacing(files.log) as file:
        file.write("".join(json.dumps(line) + "\n" for line in training.history).encode())


def run(training: Training, files: Files, terminal: Terminal, began: float, limit: float | None = None) -> bool:
    """Epoch by epoch; whether the last one is done."""
    epochs, saved = training.recipe.epochs, time.monotonic()
    while not training.finished:
        with terminal.bar(f"epoch {len(training.history) + 1} of {epochs}") as watch:
            line = training.epoch(watch)
        with files.log.open("a", encoding="utf-8") as file:
            file.write(json.dumps(line) + "\n")
        terminal.say(
            f"epoch {line['epoch']} of {epochs}: loss {line['train_loss']:.4f}, "
            f"test {100 * line['test_accuracy']:.2f} %, {line['seconds']:.1f} s"
        )
        stop = training.finished or (limit is not None and time.monotonic() - began >= limit)
        if stop or time.monotonic() - saved >= EVERY:
            with replacing(files.checkpoint) as handle:
                torch.save(training.state(), handle)
            saved = time.monotonic()
        if stop:
            break
    return training.finished


def read_checkpoint(path: Path, identity: dict[str, Any], device: torch.device) -> dict[str, Any]:
    """The state of a training with these very options."""
    try:
        state: dict[str, Any] = torch.load(path, map_location=device, weights_only=True)
        made = dict(state["options"])
    except Exception as error:
        reason = (str(error).strip() or type(error).__name__).splitlines()[0]
        raise ValueError(
            f"the checkpoint must be one of this command, got {str(path)!r}: {reason}; begin anew with --restart"
        ) from error
    for name in identity | made:
        if made.get(name) != identity.get(name):
            raise ValueError(
                f"the checkpoint must be made with the same options, got {str(path)!r} with {name} "
                f"{made.get(name)!r} instead of {identity.get(name)!r}; take that, begin anew with --restart, "
                "or name another --out"
            )
    return state


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
