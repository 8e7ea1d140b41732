"""Tiny networks to explain, made once in a process: sound ones, and models that break one rule each."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
import torch
import torch._dynamo  # torch loads it with its first optimiser, and sets warning filters and a variable then
from PIL import Image
from torch import Tensor, nn

from moreaugrad.methods.mask_network.encoder import find_classifier
from moreaugrad.training.mask_networks import MaskRecipe, initial_mask_network

CLASSES = 3
CHANNELS, SIDE = 2, 8


class Pictures(nn.Module):
    """A classifier of pictures (N, 2, side, side) of any side from 1."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Conv2d(CHANNELS, 4, 3, padding=1)
        self.norm = nn.BatchNorm2d(4)
        self.act = nn.ReLU()
        self.second = nn.Conv2d(4, 4, 3, padding=1)
        self.act2 = nn.ReLU()
        self.pool = nn.AdaptiveAvgPool2d(1)
        self.head = nn.Linear(4, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        features = self.act2(self.second(self.act(self.norm(self.first(x)))))
        found: Tensor = self.head(self.pool(features).flatten(1))
        return found


class Rows(nn.Module):
    """A classifier of inputs of any shape: smooth functions of fixed sums over each row."""

    def forward(self, x: Tensor) -> Tensor:
        flat = x.flatten(1)
        places = torch.arange(flat.shape[1], dtype=torch.float64)
        weights = torch.stack([(places * (1 + number) + 1).sin() for number in range(CLASSES)], 1).to(flat.dtype)
        return (flat @ weights).tanh() + flat.square().mean(1, keepdim=True) * weights[:1]


class Photos(nn.Module):
    """A classifier of photos that knows its preprocessing and the names of its classes."""

    labels = ("cat", "dog", "bird")

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Conv2d(3, 4, 3, padding=1)
        self.head = nn.Linear(4, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        found: Tensor = self.head(self.first(x).relu().mean((2, 3)))
        return found

    def preprocess(self, picture: Image.Image) -> Tensor:
        pixels = np.asarray(picture.convert("RGB").resize((SIDE, SIDE)), dtype=np.float32) / 255
        return torch.tensor((pixels - 0.5) / 0.25).permute(2, 0, 1)


class Odd(nn.Module):
    """A network whose output something is done with; the rule that it breaks is its name."""

    def __init__(self, rule: str, change: Callable[[nn.Module, Tensor], Any]) -> None:
        super().__init__()
        self.net, self.rule, self.change = pictures(), rule, change
        self.eval()

    def forward(self, x: Tensor) -> Any:
        return self.change(self.net, x)


class ModelFailedError(RuntimeError):
    """Raised by a model that fails on purpose."""


def _fail(net: nn.Module, x: Tensor) -> Tensor:
    raise ModelFailedError("this model always fails")


def _fail_above(net: nn.Module, x: Tensor) -> Tensor:
    """Without a gradient it works, so that a call is under way when it fails."""
    if torch.is_grad_enabled():
        raise ModelFailedError("this model fails where a gradient is asked for")
    found: Tensor = net(x)
    return found


def _write(net: nn.Module, x: Tensor) -> Tensor:
    with torch.no_grad():
        x.mul_(2)
    found: Tensor = net(x)
    return found


_BROKEN: dict[str, Callable[[nn.Module, Tensor], Any]] = {
    "no axis": lambda net, x: net(x).sum(),
    "one number per row": lambda net, x: net(x)[:, 0],
    "one class": lambda net, x: net(x)[:, :1],
    "no classes": lambda net, x: net(x)[:, :0],
    "a picture": lambda net, x: net(x)[:, :, None, None].expand(-1, -1, 2, 2),
    "fewer rows": lambda net, x: net(x)[:1],
    "no rows": lambda net, x: net(x)[:0],
    "more rows": lambda net, x: torch.cat([net(x), net(x)]),
    "NaN": lambda net, x: net(x) * torch.nan,
    "infinity": lambda net, x: net(x) / 0,
    "huge": lambda net, x: net(x) * 1e38,
    "tiny": lambda net, x: net(x) * 1e-38,
    "NaN gradient": lambda net, x: net(x) + (x * 0).sqrt().flatten(1).sum(1, keepdim=True),
    "integers": lambda net, x: (100 * net(x)).long(),
    "complex": lambda net, x: net(x).to(torch.complex64),
    "double": lambda net, x: net(x).double(),
    "half": lambda net, x: net(x).half(),
    "None": lambda net, x: None,
    "a dict": lambda net, x: {"out": net(x)},
    "a dict of logits": lambda net, x: {"logits": net(x)},
    "a tuple": lambda net, x: (net(x), x),
    "a list": lambda net, x: [net(x)],
    "an array": lambda net, x: net(x).detach().numpy(),
    "a word": lambda net, x: "cat",
    "a number": lambda net, x: 1.0,
    "fails": _fail,
    "fails later": _fail_above,
    "its input": lambda net, x: x,
    "flat input": lambda net, x: x.flatten(1),
    "writes": _write,
    "argmax": lambda net, x: net(x).argmax(1),
    "detached": lambda net, x: net(x).detach(),
    "without the input": lambda net, x: net(x.detach()),
    "constant": lambda net, x: torch.ones(len(x), CLASSES),
    "constant with a graph": lambda net, x: net(x) * 0,
    "constant parameter": lambda net, x: torch.ones(len(x), CLASSES) * next(net.parameters()).sum(),
    "meta": lambda net, x: net(x).to("meta"),
    "sparse": lambda net, x: net(x).to_sparse(),
    "step": lambda net, x: net(x).sign(),
}
BROKEN = list(_BROKEN)


@cache
def pictures() -> nn.Module:
    """A sound classifier of pictures."""
    return _seeded(Pictures)


@cache
def rows() -> nn.Module:
    return Rows().eval()


@cache
def photos() -> nn.Module:
    return _seeded(Photos)


@cache
def double() -> nn.Module:
    return _seeded(Pictures).double()


@cache
def linear() -> nn.Module:
    """A sound classifier of rows of six numbers."""
    return _seeded(lambda: nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, CLASSES)))


@cache
def broken(rule: str) -> nn.Module:
    return Odd(rule, _BROKEN[rule])


@cache
def training() -> nn.Module:
    """A network somebody forgot to put into evaluation mode."""
    return _seeded(Pictures).train()


@cache
def masking() -> nn.Module:
    """A mask network for the classifier of pictures, untrained."""
    blank = torch.zeros(2, CHANNELS, SIDE, SIDE)
    made, _ = initial_mask_network(MaskRecipe(width=8), find_classifier(pictures()), blank)
    return made.eval()


def _seeded(make: Callable[[], nn.Module]) -> nn.Module:
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return make().eval()
