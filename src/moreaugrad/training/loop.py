"""Training of networks: the one loop of all recipes. Reads no data and writes no file.

Augmentation, order and noise come from one generator on the device; the caller's random state stays as it is.
"""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn import functional as F

from moreaugrad.data.arrays import Arrays
from moreaugrad.model.prepared import numerics
from moreaugrad.training.augment import Pixels, Resized
from moreaugrad.training.recipes import AnyRecipe, Recipe, Scale, fresh, unchanged
from moreaugrad.types import Watch, ignore_progress

log = logging.getLogger("moreaugrad")

AT_ONCE = 500  # test images per call


class Training:
    """A network on its way. `state` is everything that changes from epoch to epoch."""

    def __init__(self, recipe: AnyRecipe, arrays: Arrays, device: torch.device, compile: bool = False) -> None:
        self.recipe, self.device, self.on_gpu = recipe, device, device.type == "cuda"
        self.x, self.y = _on(device, arrays.x_train, arrays.y_train)
        self.test = _on(device, arrays.x_test, arrays.y_test)
        self.batch = min(recipe.batch, len(self.x))
        self.steps = len(self.x) // self.batch  # what is left over by one epoch may be in the next
        self.identity = recipe.identity() | {"data": arrays.digest(), "device": device.type}
        self.network = fresh(recipe).to(device).to(memory_format=torch.channels_last)
        self.optimiser = recipe.optimiser(self.network)
        self.generator = torch.Generator(device).manual_seed(recipe.seed)
        self.history: list[dict[str, Any]] = []  # a line per epoch
        self.forward = self._compiled() if compile else self.network

    @property
    def finished(self) -> bool:
        return len(self.history) >= self.recipe.epochs

    @property
    def reached(self) -> str:
        return f"epoch {len(self.history)} of {self.recipe.epochs}"

    def told(self, line: dict[str, Any]) -> str:
        accurate = f"loss {line['train_loss']:.4f}, test {100 * line['test_accuracy']:.2f} %"
        if "test_accuracy_noisy" in line:
            accurate += f" ({100 * line['test_accuracy_noisy']:.2f} % under noise)"
        return f"epoch {line['epoch']} of {self.recipe.epochs}: {accurate}, {line['seconds']:.1f} s"

    def advance(self, watch: Watch = ignore_progress) -> dict[str, Any]:
        """Every image once, then the test; the line of the log."""
        began, done = time.perf_counter(), len(self.history)
        total = torch.zeros((), device=self.device)
        order = torch.randperm(len(self.x), generator=self.generator, device=self.device)
        self.network.train()
        with _tuned(self.on_gpu):
            for step in range(self.steps):
                self._set_rate(done + (step + 0.5) / self.steps)
                total += self._step(order[step * self.batch : (step + 1) * self.batch])
                watch(step + 1, self.steps, {})
        loss = float(total) / self.steps
        if not math.isfinite(loss):
            raise RuntimeError(
                f"the loss must stay finite, got {loss} in epoch {done + 1}; restart with a lower --lr "
                f"than {self.recipe.lr:g}"
            )
        line = {"epoch": done + 1, "lr": round(self.recipe.rate(done + 0.5), 6), "train_loss": round(loss, 5)}
        line |= self.tested(self.network)
        line["seconds"] = round(time.perf_counter() - began, 3)
        self.history.append(line)
        return line

    def tested(self, network: nn.Module) -> dict[str, float]:
        """The accuracy on the test images and, where noise is trained for, on one draw of noise for each of them."""
        found = {"test_accuracy": self._accuracy(network)}
        if self.recipe.noise_sigma:
            draw = torch.Generator(self.device).manual_seed(self.recipe.seed + 1 + len(self.history))
            noise = Noise(self.recipe.noise_sigma, draw)
            found["test_accuracy_noisy"] = self._accuracy(network, noise)
        return found

    def state(self) -> dict[str, Any]:
        return {
            "options": self.identity,
            "network": self.network.state_dict(),
            "optimiser": self.optimiser.state_dict(),
            "generator": self.generator.get_state(),
            "history": list(self.history),
        }

    def load(self, state: dict[str, Any]) -> None:
        """Goes on where `state` was taken, which must be of a training with the same options."""
        self.network.load_state_dict(state["network"])
        self.optimiser.load_state_dict(state["optimiser"])
        self.generator.set_state(state["generator"].cpu())
        self.history = list(state["history"])

    def _accuracy(self, network: nn.Module, noise: Noise | None = None) -> float:
        return accuracy(network, *self.test, self.recipe.scale, noise, self.recipe.seen)

    def _step(self, which: Int[Tensor, "n"]) -> Float[Tensor, ""]:
        x = self._input(self.recipe.augmented(self.x[which], self.generator))
        with self._precision():
            logits = self.recipe.temperature * self.forward(x).float()
            loss = F.cross_entropy(logits, self.y[which], label_smoothing=self.recipe.label_smoothing)
        self.optimiser.zero_grad(set_to_none=True)
        loss.backward()
        self.optimiser.step()
        self.recipe.settle(self.network)
        return loss.detach()

    def _input(self, pixels: Pixels) -> Float[Tensor, "n c h w"]:
        x = normalised(pixels, self.recipe.scale)
        return Noise(self.recipe.noise_sigma, self.generator).on(x) if self.recipe.noise_sigma else x

    def _precision(self) -> Any:
        return torch.autocast("cuda", torch.bfloat16) if self.on_gpu else nullcontext()

    def _set_rate(self, done: float) -> None:
        for group in self.optimiser.param_groups:
            group["lr"] = self.recipe.rate(done)

    def _compiled(self) -> Any:
        """The compiled network after one trial, which leaves no trace; the network itself where that fails."""
        before = {name: tensor.clone() for name, tensor in self.network.state_dict().items()}
        quick: Any = torch.compile(self.network, dynamic=False)
        x = normalised(self.recipe.seen(self.x[: self.batch]), self.recipe.scale)
        self.network.train()
        try:
            with self._precision():
                loss = quick(x).float().square().mean()
            loss.backward()
        except Exception as error:  # the compiler's own, the C++ compiler's, a missing one's: all mean the same
            reason = (str(error).strip() or type(error).__name__).splitlines()[0]
            log.warning("the network cannot be compiled (%s: %s); going on without", type(error).__name__, reason)
            quick = self.network
        self.network.load_state_dict(before)
        self.network.zero_grad(set_to_none=True)
        return quick


@dataclass(frozen=True, slots=True)
class Noise:
    """Gaussian noise of one size, drawn anew at each call."""

    sigma: float
    generator: torch.Generator

    def on(self, x: Float[Tensor, "n c h w"]) -> Float[Tensor, "n c h w"]:
        last = x.permute(0, 2, 3, 1)  # the order in memory
        return x + self.sigma * torch.randn(last.shape, generator=self.generator, device=x.device).permute(0, 3, 1, 2)


def accuracy(
    network: nn.Module,
    x: Pixels,
    y: Int[Tensor, "n"],
    scale: Scale = Recipe.scale,
    noise: Noise | None = None,
    seen: Callable[[Pixels], Resized] = unchanged,
) -> float:
    """The share of images that get their label, in float32 throughout; `seen` makes them as large as the input."""
    network.eval()
    right = 0
    with torch.no_grad(), numerics("float32", x.is_cuda):
        for some, labels in _parts(x, y):
            given = normalised(seen(some), scale)
            right += (network(noise.on(given) if noise else given).argmax(1) == labels).sum()
    return int(right) / len(x)


def normalised(pixels: Pixels, scale: Scale = Recipe.scale) -> Float[Tensor, "n c h w"]:
    """As the view of the trained model does it; channels last in memory."""
    mean, std = _on_device(scale, pixels.device)
    return ((pixels.float() / 255 - mean) / std).permute(0, 3, 1, 2)


@cache
def _on_device(scale: Scale, device: torch.device) -> tuple[Tensor, Tensor]:
    """Once per device: sending them at each step would make the host wait for the GPU."""
    mean, std = scale
    return torch.tensor(mean, device=device), torch.tensor(std, device=device)


def _parts(x: Pixels, y: Int[Tensor, "n"]) -> Iterator[tuple[Pixels, Int[Tensor, "m"]]]:
    return zip(x.split(AT_ONCE), y.split(AT_ONCE), strict=True)


def _on(device: torch.device, x: np.ndarray, y: np.ndarray) -> tuple[Tensor, Tensor]:
    return torch.from_numpy(x).to(device), torch.from_numpy(y).to(device).long()


@contextmanager
def _tuned(on_gpu: bool) -> Iterator[None]:
    """Lets cuDNN choose its fastest kernels, which may differ from run to run."""
    before = torch.backends.cudnn.benchmark
    torch.backends.cudnn.benchmark = before or on_gpu
    try:
        yield
    finally:
        torch.backends.cudnn.benchmark = before
