"""`moreaugrad train`: the classifiers of the package, from data to a file of weights.

Augmentation, order and noise come from one generator on the device; the caller's random state stays as it is.
"""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn import functional as F

from moreaugrad.data.arrays import Arrays, read_cifar10
from moreaugrad.data.tiny_imagenet import read_tiny_imagenet, read_wnids
from moreaugrad.files import first_line
from moreaugrad.model.devices import best_device
from moreaugrad.model.prepared import numerics
from moreaugrad.models.checkpoint import load_state
from moreaugrad.training.augment import Pixels, normalise
from moreaugrad.training.recipes import AnyRecipe, FineTuningRecipe, choose_recipe, initial_network
from moreaugrad.training.trainer import Reporter, Trainer, TrainingJob, train_to_file, write_weights
from moreaugrad.types import Watch, ignore_progress

log = logging.getLogger("moreaugrad")

TEST_BATCH = 500
MOST_CLASSES = 256  # labels are bytes


def train_cifar10(options: dict[str, Any], job: TrainingJob, reporter: Reporter) -> int:
    """Train or resume; the exit code. Options that are None are chosen by the device."""
    device = best_device(job.device)
    recipe = choose_recipe(options, device.type == "cuda")
    return _train(recipe, lambda: read_cifar10(job.data), f"{recipe.network}_cifar10", job, device, reporter)


def train_tiny_imagenet(options: dict[str, Any], job: TrainingJob, reporter: Reporter) -> int:
    """Fine-tune on the classes that the folder has, or resume; the exit code."""
    device = best_device(job.device)
    known = {"wnids": tuple(read_wnids(job.data)), "names": tuple(read_tiny_imagenet(job.data, "val").classes)}
    recipe = FineTuningRecipe.choose(options | known, device.type == "cuda")
    name = f"{recipe.network}_tiny_imagenet"
    return _train(recipe, lambda: read_tiny_arrays(job.data), name, job, device, reporter)


def read_tiny_arrays(folder: Path) -> Arrays:
    """Both splits of Tiny-ImageNet; the validation images are those that it is tested on."""
    train, val = (read_tiny_imagenet(folder, split) for split in ("train", "val"))
    if len(train.classes) > MOST_CLASSES:
        raise ValueError(
            f"--data must have at most {MOST_CLASSES} classes, got {len(train.classes)} in {str(folder)!r}"
        )
    y_train, y_val = (half.labels.astype(np.uint8) for half in (train, val))
    return Arrays(train.pixels(), y_train, val.pixels(), y_val)


def _train(
    recipe: AnyRecipe, read: Callable[[], Arrays], name: str, job: TrainingJob, device: torch.device, reporter: Reporter
) -> int:
    def make() -> ClassifierTrainer:
        with reporter.busy(f"reading {job.data}"):
            arrays = read()
        compile = device.type == "cuda" if job.compile is None else job.compile
        with reporter.busy("preparing the network"):
            return ClassifierTrainer(recipe, arrays, device, compile)

    return train_to_file(make, _write, job, name, reporter)


def _write(trainer: ClassifierTrainer, path: Path) -> str:
    """Write the weights in half precision; the accuracy before and after rounding."""
    recipe = trainer.recipe
    state = recipe.stored_state(trainer.network)
    rounded = initial_network(recipe).to(trainer.device)
    load_state(rounded, state, path)
    exact, stored = trainer.test(trainer.network), trainer.test(rounded)
    notes = trainer.identity | recipe.notes()
    for kind, line in (("float32", exact), ("stored", stored)):
        notes |= {f"{name.removeprefix('test_')}_{kind}": f"{value:.4f}" for name, value in line.items()}
    mean, std = map(json.dumps, recipe.scale)
    about = {"format": "pt", "dataset": recipe.dataset, "test_images": len(trainer.x_test), "mean": mean, "std": std}
    write_weights(path, state, notes | about)
    exact_share, stored_share = (100 * line["test_accuracy"] for line in (exact, stored))
    return f"test accuracy {exact_share:.2f} % in float32, {stored_share:.2f} % as stored"


class ClassifierTrainer(Trainer):
    """A classifier in training: each line of the log is an epoch."""

    def __init__(self, recipe: AnyRecipe, arrays: Arrays, device: torch.device, compile: bool = False) -> None:
        super().__init__(device, recipe.seed)
        self.recipe = recipe
        self.x, self.x_test = (torch.from_numpy(each).to(device) for each in (arrays.x_train, arrays.x_test))
        self.y, self.y_test = (torch.from_numpy(each).to(device).long() for each in (arrays.y_train, arrays.y_test))
        self.batch = min(recipe.batch, len(self.x))
        self.steps = len(self.x) // self.batch  # what is left over by one epoch may be in the next
        self.identity = recipe.identity() | {"data": arrays.digest(), "device": device.type}
        self.network = initial_network(recipe).to(device).to(memory_format=torch.channels_last)
        self.optimiser = recipe.optimiser(self.network)
        self.forward = self._compile() if compile else self.network

    @property
    def finished(self) -> bool:
        return len(self.history) >= self.recipe.epochs

    @property
    def progress(self) -> str:
        return f"epoch {len(self.history)} of {self.recipe.epochs}"

    def describe(self, line: dict[str, Any]) -> str:
        accurate = f"loss {line['train_loss']:.4f}, test {100 * line['test_accuracy']:.2f} %"
        if "test_accuracy_noisy" in line:
            accurate += f" ({100 * line['test_accuracy_noisy']:.2f} % under noise)"
        return f"epoch {line['epoch']} of {self.recipe.epochs}: {accurate}, {line['seconds']:.1f} s"

    def advance(self, watch: Watch = ignore_progress) -> dict[str, Any]:
        """Train on every image once, then test."""
        began, done = time.perf_counter(), len(self.history)
        total = torch.zeros((), device=self.device)
        order = torch.randperm(len(self.x), generator=self.generator, device=self.device)
        self.network.train()
        with _fastest_kernels(self.on_gpu):
            for step in range(self.steps):
                self._set_rate(self.recipe.rate(done + (step + 0.5) / self.steps))
                total += self._step(order[step * self.batch : (step + 1) * self.batch])
                watch(step + 1, self.steps, {})
        loss = float(total) / self.steps
        line = {"epoch": done + 1, "lr": round(self.recipe.rate(done + 0.5), 6), "train_loss": round(loss, 5)}
        return self._add_line(line | self.test(self.network), loss, began, self.recipe.lr)

    def test(self, network: nn.Module) -> dict[str, float]:
        """The accuracy on the test images and, where noise is trained for, on one draw of noise for each of them."""
        found = {"test_accuracy": accuracy(network, self.x_test, self.y_test, self.recipe)}
        if self.recipe.noise_sigma:
            noise = torch.Generator(self.device).manual_seed(self.recipe.seed + 1 + len(self.history))
            found["test_accuracy_noisy"] = accuracy(network, self.x_test, self.y_test, self.recipe, noise)
        return found

    def _step(self, which: Int[Tensor, "n"]) -> Float[Tensor, ""]:
        recipe = self.recipe
        x = normalise(recipe.augment(self.x[which], self.generator), recipe.scale)
        if recipe.noise_sigma:
            x = add_noise(x, recipe.noise_sigma, self.generator)
        with self._precision():
            logits = recipe.temperature * self.forward(x).float()
            loss = F.cross_entropy(logits, self.y[which], label_smoothing=recipe.label_smoothing)
        self._descend(loss)
        recipe.after_step(self.network)
        return loss.detach()

    def _compile(self) -> nn.Module:
        """The compiled network after one trial, which leaves no trace; the network itself where that fails."""
        before = {name: tensor.clone() for name, tensor in self.network.state_dict().items()}
        quick: Any = torch.compile(self.network, dynamic=False)
        x = normalise(self.recipe.resize(self.x[: self.batch]), self.recipe.scale)
        self.network.train()
        try:
            with self._precision():
                loss = quick(x).float().square().mean()
            loss.backward()
        except Exception as error:  # the compiler's own, the C++ compiler's, a missing one's: all mean the same
            why = f"{type(error).__name__}: {first_line(error)}"
            log.warning("the network cannot be compiled (%s); training without", why)
            quick = self.network
        self.network.load_state_dict(before)
        self.network.zero_grad(set_to_none=True)
        return quick  # type: ignore[no-any-return]


def add_noise(x: Float[Tensor, "n c h w"], sigma: float, generator: torch.Generator) -> Float[Tensor, "n c h w"]:
    last = x.permute(0, 2, 3, 1)  # the order in memory
    return x + sigma * torch.randn(last.shape, generator=generator, device=x.device).permute(0, 3, 1, 2)


def accuracy(
    network: nn.Module, x: Pixels, y: Int[Tensor, "n"], recipe: AnyRecipe, noise: torch.Generator | None = None
) -> float:
    """The share of images that get their label, in float32 throughout; with `noise` each under one draw of it."""
    network.eval()
    right = 0
    with torch.no_grad(), numerics("float32", x.is_cuda):
        for pixels, labels in zip(x.split(TEST_BATCH), y.split(TEST_BATCH), strict=True):
            inputs = normalise(recipe.resize(pixels), recipe.scale)
            inputs = inputs if noise is None else add_noise(inputs, recipe.noise_sigma, noise)
            right += (network(inputs).argmax(1) == labels).sum()
    return int(right) / len(x)


@contextmanager
def _fastest_kernels(on_gpu: bool) -> Iterator[None]:
    """Let cuDNN choose its fastest kernels, which may differ from run to run."""
    before = torch.backends.cudnn.benchmark
    torch.backends.cudnn.benchmark = before or on_gpu
    try:
        yield
    finally:
        torch.backends.cudnn.benchmark = before
