"""`train-mask`: images in, the trained mask network out, with notes on how it came about."""

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

from moreaugrad.api import best_device
from moreaugrad.cli.terminal import Terminal
from moreaugrad.data.arrays import read_cifar10
from moreaugrad.data.images import find_images, read_image
from moreaugrad.files import replacing
from moreaugrad.models import load_model
from moreaugrad.models.classifier import Classifier
from moreaugrad.training.checkpoints import DONE, NOT_FINISHED, Files, resume, run
from moreaugrad.training.mask_loop import MaskTraining
from moreaugrad.training.mask_recipe import Recipe

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
    files = find_images([data])
    seen = np.empty((len(files), *model.size, len(model.mean)), np.uint8)
    for place, path in enumerate(files):
        seen[place] = _seen(path, model)
    held_out = np.arange(len(seen)) % HELD_OUT == HELD_OUT - 1
    if not held_out.any():
        raise ValueError(f"--data must hold at least {HELD_OUT} images, got {len(seen)} in {str(data)!r}")
    return seen[~held_out], seen[held_out]


def _seen(path: Path, model: Classifier) -> NDArray[np.uint8]:
    picture = model.crop(read_image(path))
    return np.array(picture.convert("L") if len(model.mean) == 1 else picture).reshape(*model.size, -1)


def write(training: MaskTraining, path: Path, model: str, judged: dict[str, float]) -> None:
    """The network in half precision, with notes on how it came about and how it did on images held out."""
    from safetensors.torch import save

    recipe = {name: str(value) for name, value in training.identity.items() if name != "classifier"}
    notes = recipe | {"model": model, "torch": torch.__version__, "moreaugrad": version("moreaugrad")}
    notes |= {f"held_out_{name}": str(value) for name, value in judged.items()} | training.network.notes()
    tensors: dict[str, Tensor] = training.network.tensors()
    with replacing(path) as file:
        file.write(save(tensors, notes))
