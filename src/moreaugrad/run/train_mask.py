"""Training of a mask network with files: images in; checkpoints to go on from, a log and the network out."""

from __future__ import annotations

import json
import time
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from moreaugrad.data.arrays import read_cifar10
from moreaugrad.data.collect import collect
from moreaugrad.data.read import read
from moreaugrad.disk.files import replacing
from moreaugrad.run.mask_recipe import Recipe
from moreaugrad.run.mask_training import MaskTraining
from moreaugrad.run.pipeline import best_device
from moreaugrad.run.terminal import Terminal
from moreaugrad.run.training_files import DONE, EVERY, NOT_FINISHED, Files, read_checkpoint
from moreaugrad.zoo import load_model
from moreaugrad.zoo.classifier import Classifier

SMALL = 64  # pixels up to which the loss of the paper, tuned for such images, is the default
HELD_OUT = 10  # every tenth image of a folder is not trained on


@dataclass(frozen=True, slots=True)
class Order:
    """What a command asks for beside the recipe."""

    data: Path
    model: str
    out: Path
    weights: str | None = None
    device: str = "auto"
    restart: bool = False  # from the beginning, even where there is a checkpoint
    limit_seconds: float | None = None  # stop at the line of the log by which they have passed


def train_mask_network(options: dict[str, Any], order: Order, terminal: Terminal) -> int:
    """Trains, or goes on training; the exit code. Options that are None are chosen by the image size and device."""
    began = time.monotonic()
    terminal.hear_warnings()
    device = best_device(order.device)
    files = Files.at(order.out)
    model = load_model(order.model, order.weights, device=device)
    recipe = chosen(options, model)
    with terminal.busy(f"reading {order.data}"):
        train, held_out = pictures(order.data, model)
    view = model.mean, model.std
    training = MaskTraining(
        recipe, model, torch.from_numpy(train).to(device), torch.from_numpy(held_out).to(device), view
    )
    resume(training, files, order.restart, terminal)
    if not run(training, files, terminal, began, order.limit_seconds):
        terminal.say(
            f"stopped at step {training.done} of the {training.phase}; the same command goes on from {files.checkpoint}"
        )
        return NOT_FINISHED
    judged = training.judge()
    write(training, files.weights, order.model, judged)
    terminal.say(f"held out: {json.dumps(judged)} -> {files.weights}")
    return DONE


def chosen(options: dict[str, Any], model: Classifier) -> Recipe:
    given = {name: value for name, value in options.items() if value is not None}
    small = max(model.size) <= SMALL
    given.setdefault("loss", "paper" if small else "code")
    given.setdefault("batch", 256 if small else 64)
    return Recipe(**given)


def pictures(data: Path, model: Classifier) -> tuple[NDArray[np.uint8], NDArray[np.uint8]]:
    """Images to train on and images held out, as the classifier sees them: 8 bits, channels last."""
    if data.suffix == ".npz" or (data / "cifar-10-batches-py").is_dir():
        arrays = read_cifar10(data)
        if model.size != arrays.x_train.shape[1:3]:
            raise ValueError(
                f"the arrays of --data must have the size that the model sees, {model.size}, got "
                f"{arrays.x_train.shape[1:3]}; give a folder of images, which are cropped to it"
            )
        return arrays.x_train, arrays.x_test
    files = collect([data])
    seen = np.empty((len(files), *model.size, len(model.mean)), np.uint8)
    for place, path in enumerate(files):
        seen[place] = _seen(path, model)
    held_out = np.arange(len(seen)) % HELD_OUT == HELD_OUT - 1
    if not held_out.any():
        raise ValueError(f"--data must hold at least {HELD_OUT} images, got {len(seen)} in {str(data)!r}")
    return seen[~held_out], seen[held_out]


def _seen(path: Path, model: Classifier) -> NDArray[np.uint8]:
    picture = model.crop(read(path).pixels)
    return np.array(picture.convert("L") if len(model.mean) == 1 else picture).reshape(*model.size, -1)


def resume(training: MaskTraining, files: Files, restart: bool, terminal: Terminal) -> None:
    """Loads the checkpoint, where there is one, and makes the log agree with it."""
    if restart:  # now: a run that is cut short must not leave the old one to be taken up
        files.checkpoint.unlink(missing_ok=True)
    if files.checkpoint.is_file() and not restart:
        training.load(read_checkpoint(files.checkpoint, training.identity, training.device))
        terminal.say(f"going on at step {training.done} of the {training.phase}: {files.checkpoint}")
    with replacing(files.log) as file:
        file.write("".join(json.dumps(line) + "\n" for line in training.history).encode())


def run(training: MaskTraining, files: Files, terminal: Terminal, began: float, limit: float | None) -> bool:
    """Line by line of the log; whether the last one is done."""
    saved = time.monotonic()
    while not training.finished:
        with terminal.bar(f"{training.phase}") as watch:
            line = training.advance(watch)
        told = json.dumps(line)
        with files.log.open("a", encoding="utf-8") as file:
            file.write(told + "\n")
        terminal.say(told)
        stop = training.finished or (limit is not None and time.monotonic() - began >= limit)
        if stop or time.monotonic() - saved >= EVERY:
            with replacing(files.checkpoint) as handle:
                torch.save(training.state(), handle)
            saved = time.monotonic()
        if stop:
            break
    return training.finished


def write(training: MaskTraining, path: Path, model: str, judged: dict[str, float]) -> None:
    """The network in half precision, with notes on how it came about and how it did on images held out."""
    from safetensors.torch import save

    recipe = {name: str(value) for name, value in training.identity.items() if name != "classifier"}
    notes = recipe | {"model": model, "torch": torch.__version__, "moreaugrad": version("moreaugrad")}
    notes |= {f"held_out_{name}": str(value) for name, value in judged.items()} | training.network.notes()
    tensors: dict[str, Tensor] = training.network.tensors()
    with replacing(path) as file:
        file.write(save(tensors, notes))
