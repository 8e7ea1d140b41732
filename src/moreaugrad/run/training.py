"""Training of the ResNet-18 for small images: the recipe and its loop. Reads no data and writes no file.

Augmentation, order and noise come from one generator on the device; the caller's random state stays as it is.
"""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import asdict, dataclass
from functools import cache
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Int, UInt8
from torch import Tensor, nn
from torch.nn import functional as F

from moreaugrad import checks
from moreaugrad.contracts import Watch, unwatched
from moreaugrad.core.engine import numerics
from moreaugrad.data.arrays import CLASSES, Arrays
from moreaugrad.data.augment import crop_and_flip
from moreaugrad.zoo.resnet import ACTIVATIONS, MEAN, STD, ResNet18

log = logging.getLogger("moreaugrad")

Pixels = UInt8[Tensor, "n h w c"]
AT_ONCE = 500  # test images per call


@dataclass(frozen=True, slots=True)
class Recipe:
    """How a network is trained: SGD with Nesterov momentum, a linear warm-up, then half a cosine down to 0."""

    activation: str = "softplus"
    beta: float = 1.0  # steepness of softplus
    noise_sigma: float = 0.0  # Gaussian noise on the normalised input
    epochs: int = 200
    warm_up: int = 5  # epochs, at most half of all
    batch: int = 512
    lr: float = 0.2  # the highest
    momentum: float = 0.9
    weight_decay: float = 5e-4  # of convolutions and the linear layer; norms and biases have none
    seed: int = 0  # of the first weights, the order and the augmentation
    width: int = 64  # channels of the first stage

    def __post_init__(self) -> None:
        checks.one_of("activation", self.activation, ACTIVATIONS)
        for name in ("beta", "lr"):
            checks.positive(name, getattr(self, name))
        for name in ("noise_sigma", "weight_decay", "momentum"):
            checks.not_negative(name, getattr(self, name))
        for name in ("epochs", "batch", "width"):
            checks.at_least(name, getattr(self, name), 1)
        for name in ("seed", "warm_up"):
            checks.at_least(name, getattr(self, name), 0)

    def rate(self, done: float) -> float:
        """The learning rate after so many epochs."""
        rise = min(self.warm_up, self.epochs / 2)
        if done < rise:
            return self.lr * done / rise
        return self.lr * (1 + math.cos(math.pi * (done - rise) / (self.epochs - rise))) / 2


class Training:
    """A network on its way. `state` is everything that changes from epoch to epoch."""

    def __init__(self, recipe: Recipe, arrays: Arrays, device: torch.device, compile: bool = False) -> None:
        self.recipe, self.device, self.on_gpu = recipe, device, device.type == "cuda"
        self.x, self.y = _on(device, arrays.x_train, arrays.y_train)
        self.test = _on(device, arrays.x_test, arrays.y_test)
        self.batch = min(recipe.batch, len(self.x))
        self.steps = len(self.x) // self.batch  # what is left over by one epoch may be in the next
        self.identity = asdict(recipe) | {"data": arrays.digest(), "device": device.type}
        self.network = fresh(recipe).to(device).to(memory_format=torch.channels_last)
        self.optimiser = self._optimiser()
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
        return f"epoch {line['epoch']} of {self.recipe.epochs}: {accurate}, {line['seconds']:.1f} s"

    def advance(self, watch: Watch = unwatched) -> dict[str, Any]:
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
        line["test_accuracy"] = accuracy(self.network, *self.test)
        line["seconds"] = round(time.perf_counter() - began, 3)
        self.history.append(line)
        return line

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

    def _step(self, which: Int[Tensor, "n"]) -> Float[Tensor, ""]:
        x = self._input(crop_and_flip(self.x[which], self.generator))
        with self._precision():
            loss = F.cross_entropy(self.forward(x), self.y[which])
        self.optimiser.zero_grad(set_to_none=True)
        loss.backward()
        self.optimiser.step()
        return loss.detach()

    def _input(self, pixels: Pixels) -> Float[Tensor, "n c h w"]:
        x = normalised(pixels)
        if not self.recipe.noise_sigma:
            return x
        noise = torch.randn(pixels.shape, generator=self.generator, device=self.device)
        return x + self.recipe.noise_sigma * noise.permute(0, 3, 1, 2)

    def _precision(self) -> Any:
        return torch.autocast("cuda", torch.bfloat16) if self.on_gpu else nullcontext()

    def _set_rate(self, done: float) -> None:
        for group in self.optimiser.param_groups:
            group["lr"] = self.recipe.rate(done)

    def _optimiser(self) -> torch.optim.SGD:
        every = list(self.network.parameters())
        groups = [
            {"params": [each for each in every if each.ndim > 1], "weight_decay": self.recipe.weight_decay},
            {"params": [each for each in every if each.ndim <= 1], "weight_decay": 0.0},
        ]
        momentum = self.recipe.momentum
        return torch.optim.SGD(groups, self.recipe.lr, momentum=momentum, nesterov=momentum > 0)

    def _compiled(self) -> Any:
        """The compiled network after one trial, which leaves no trace; the network itself where that fails."""
        before = {name: tensor.clone() for name, tensor in self.network.state_dict().items()}
        quick: Any = torch.compile(self.network, dynamic=False)
        self.network.train()
        try:
            with self._precision():
                loss = quick(normalised(self.x[: self.batch])).float().square().mean()
            loss.backward()
        except Exception as error:  # the compiler's own, the C++ compiler's, a missing one's: all mean the same
            reason = (str(error).strip() or type(error).__name__).splitlines()[0]
            log.warning("the network cannot be compiled (%s: %s); going on without", type(error).__name__, reason)
            quick = self.network
        self.network.load_state_dict(before)
        self.network.zero_grad(set_to_none=True)
        return quick


def fresh(recipe: Recipe) -> ResNet18:
    """The network with the first weights of the recipe's seed."""
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(recipe.seed)
        return ResNet18(CLASSES, recipe.activation, recipe.beta, recipe.width)


def accuracy(network: nn.Module, x: Pixels, y: Int[Tensor, "n"]) -> float:
    """The share of images that get their label, in float32 throughout."""
    network.eval()
    with torch.no_grad(), numerics("float32", x.is_cuda):
        right = sum((network(normalised(some)).argmax(1) == labels).sum() for some, labels in _parts(x, y))
    return int(right) / len(x)


def normalised(pixels: Pixels) -> Float[Tensor, "n c h w"]:
    """As the view of the trained model does it; channels last in memory."""
    mean, std = _scale(pixels.device)
    return ((pixels.float() / 255 - mean) / std).permute(0, 3, 1, 2)


@cache
def _scale(device: torch.device) -> tuple[Tensor, Tensor]:
    """Once per device: sending them at each step would make the host wait for the GPU."""
    return torch.tensor(MEAN, device=device), torch.tensor(STD, device=device)


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
