"""Recipes: which network is trained, and how. Reads no data, writes no file and takes no step."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from moreaugrad import checks
from moreaugrad.data.arrays import CLASSES
from moreaugrad.zoo import lipschitz, orthogonal, resnet
from moreaugrad.zoo.lipschitz import LipschitzNetwork
from moreaugrad.zoo.resnet import ACTIVATIONS, ResNet18
from moreaugrad.zoo.view import Values

State = dict[str, Tensor]
Scale = tuple[Values, Values]  # mean and standard deviation of each channel: what the view of the model subtracts


@dataclass(frozen=True, slots=True)
class Schedule:
    """A linear warm-up, then half a cosine down to 0."""

    noise_sigma: float = 0.0  # Gaussian noise on the network's input, in its unit
    epochs: int = 200
    warm_up: int = 5  # epochs, at most half of all
    batch: int = 512
    lr: float = 0.2  # the highest
    momentum: float = 0.9
    seed: int = 0  # of the first weights, the order and the augmentation

    def __post_init__(self) -> None:
        checks.positive("lr", self.lr)
        for name in ("noise_sigma", "momentum"):
            checks.not_negative(name, getattr(self, name))
        for name in ("epochs", "batch"):
            checks.at_least(name, getattr(self, name), 1)
        for name in ("seed", "warm_up"):
            checks.at_least(name, getattr(self, name), 0)

    def rate(self, done: float) -> float:
        """The learning rate after so many epochs."""
        rise = min(self.warm_up, self.epochs / 2)
        if done < rise:
            return self.lr * done / rise
        return self.lr * (1 + math.cos(math.pi * (done - rise) / (self.epochs - rise))) / 2


@dataclass(frozen=True, slots=True)
class Recipe(Schedule):
    """ResNet-18 for small images: SGD with Nesterov momentum."""

    network: ClassVar[str] = "resnet18"
    scale: ClassVar[Scale] = (resnet.MEAN, resnet.STD)
    temperature: ClassVar[float] = 1.0

    activation: str = "softplus"
    beta: float = 1.0  # steepness of softplus
    width: int = 64  # channels of the first stage
    weight_decay: float = 5e-4  # of convolutions and the linear layer; norms and biases have none

    def __post_init__(self) -> None:
        checks.one_of("activation", self.activation, ACTIVATIONS)
        checks.positive("beta", self.beta)
        checks.not_negative("weight_decay", self.weight_decay)
        checks.at_least("width", self.width, 1)
        Schedule.__post_init__(self)

    def build(self) -> nn.Module:
        return ResNet18(CLASSES, self.activation, self.beta, self.width)

    @staticmethod
    def usual_rate(batch: int) -> float:
        return 0.2 * batch / 512

    def optimiser(self, network: nn.Module) -> Optimizer:
        every = list(network.parameters())
        groups = [
            {"params": [each for each in every if each.ndim > 1], "weight_decay": self.weight_decay},
            {"params": [each for each in every if each.ndim <= 1], "weight_decay": 0.0},
        ]
        return torch.optim.SGD(groups, self.lr, momentum=self.momentum, nesterov=self.momentum > 0)

    def settle(self, network: nn.Module) -> None:
        """After each step: nothing."""

    def state(self, network: nn.Module) -> State:
        """As it is stored: float16, but float32 where a number is too large; without the counters of batch norm."""
        return halved(network.state_dict())


@dataclass(frozen=True, slots=True)
class LipschitzRecipe(Schedule):
    """The network of Lipschitz constant 1: Adam on the cross-entropy of temperature * logits, and back to orthonormal
    matrices after each step."""

    network: ClassVar[str] = "lipschitz"
    scale: ClassVar[Scale] = (lipschitz.MEAN, lipschitz.STD)

    lr: float = 0.01
    widths: tuple[int, ...] = lipschitz.WIDTHS  # channels of the stages
    depth: int = lipschitz.DEPTH  # orthogonal maps per stage
    tau: float = lipschitz.TAU  # roundness of the activation
    temperature: float = 0.5  # the higher, the less margins count
    patch: int = lipschitz.PATCH  # pixels along the first patches

    def __post_init__(self) -> None:
        lipschitz.check_widths(self.widths, self.patch)
        checks.at_least("depth", self.depth, 0)
        for name in ("tau", "temperature"):
            checks.positive(name, getattr(self, name))
        Schedule.__post_init__(self)

    def build(self) -> nn.Module:
        return LipschitzNetwork(CLASSES, self.widths, self.depth, self.tau, self.patch)

    @staticmethod
    def usual_rate(batch: int) -> float:
        return LipschitzRecipe().lr  # Adam's steps have the same length for every batch

    def optimiser(self, network: nn.Module) -> Optimizer:
        on_gpu = next(network.parameters()).is_cuda
        return torch.optim.Adam(network.parameters(), self.lr, (self.momentum, 0.99), fused=on_gpu)

    def settle(self, network: nn.Module) -> None:
        """After each step."""
        orthogonal.project(network)

    def state(self, network: nn.Module) -> State:
        """As it is stored: plain weights in float16, none with a norm above 1."""
        return orthogonal.folded(network)


RECIPES: dict[str, type[Recipe] | type[LipschitzRecipe]] = {each.network: each for each in (Recipe, LipschitzRecipe)}


def fresh(recipe: Recipe | LipschitzRecipe) -> nn.Module:
    """The network with the first weights of the recipe's seed."""
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(recipe.seed)
        return recipe.build()


def halved(state: State) -> State:
    """float16, but float32 where a number is too large for it; floating-point tensors only."""
    found = {}
    for name, tensor in state.items():
        if tensor.is_floating_point():
            half = tensor.half()
            found[name] = (half if half.isfinite().all() else tensor).cpu().contiguous()
    return found
