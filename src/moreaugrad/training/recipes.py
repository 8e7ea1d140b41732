"""Recipes: which network is trained, and how. Reads no data, writes no file and takes no step."""

from __future__ import annotations

import json
import math
from dataclasses import asdict, dataclass
from hashlib import sha256
from typing import Any, ClassVar

import torch
from torch import Generator, Tensor, nn
from torch.optim import Optimizer

from moreaugrad import validate
from moreaugrad.data.arrays import CLASSES
from moreaugrad.models import embedded, lipschitz, resnet
from moreaugrad.models.classifier import Values
from moreaugrad.models.lipschitz import LipschitzNetwork
from moreaugrad.models.resnet import ACTIVATIONS, ResNet18
from moreaugrad.training import orthogonal
from moreaugrad.training.augment import Pixels, Resized, crop_and_flip, resized, zoom_and_flip

State = dict[str, Tensor]
Scale = tuple[Values, Values]  # mean and standard deviation of each channel: what the view of the model subtracts


@dataclass(frozen=True, slots=True)
class Schedule:
    """A linear warm-up, then half a cosine down to 0; and what most recipes do with the pixels and the network."""

    network: ClassVar[str]
    dataset: ClassVar[str] = "CIFAR-10"

    noise_sigma: float = 0.0  # Gaussian noise on the network's input, in its unit
    epochs: int = 200
    warm_up: int = 5  # epochs, at most half of all
    batch: int = 512
    lr: float = 0.2  # the highest
    momentum: float = 0.9
    seed: int = 0  # of the first weights, the order and the augmentation

    def __post_init__(self) -> None:
        validate.positive("lr", self.lr)
        for name in ("noise_sigma", "momentum"):
            validate.not_negative(name, getattr(self, name))
        for name in ("epochs", "batch"):
            validate.at_least(name, getattr(self, name), 1)
        for name in ("seed", "warm_up"):
            validate.at_least(name, getattr(self, name), 0)

    def rate(self, done: float) -> float:
        """The learning rate after so many epochs."""
        rise = min(self.warm_up, self.epochs / 2)
        if done < rise:
            return self.lr * done / rise
        return self.lr * (1 + math.cos(math.pi * (done - rise) / (self.epochs - rise))) / 2

    def identity(self) -> dict[str, Any]:
        """What must be the same for a checkpoint to fit."""
        return asdict(self) | {"network": self.network}

    def notes(self) -> dict[str, str]:
        """What the file of the weights says beside that."""
        return {}

    def augmented(self, pixels: Pixels, generator: Generator) -> Resized:
        """Images as they are trained on, at the size of the network's input."""
        return crop_and_flip(pixels, generator)

    def seen(self, pixels: Pixels) -> Resized:
        """Images as the view of the model gives them to the network."""
        return pixels

    def settle(self, network: nn.Module) -> None:
        """After each step: nothing."""

    def state(self, network: nn.Module) -> State:
        """As it is stored: float16, but float32 where a number is too large; without the counters of batch norm."""
        return halved(network.state_dict())


@dataclass(frozen=True, slots=True)
class Recipe(Schedule):
    """ResNet-18 for small images: SGD with Nesterov momentum."""

    network: ClassVar[str] = "resnet18"
    scale: ClassVar[Scale] = (resnet.MEAN, resnet.STD)
    temperature: ClassVar[float] = 1.0
    label_smoothing: ClassVar[float] = 0.0

    activation: str = "softplus"
    beta: float = 1.0  # steepness of softplus
    width: int = 64  # channels of the first stage
    weight_decay: float = 5e-4  # of convolutions and the linear layer; norms and biases have none

    def __post_init__(self) -> None:
        validate.one_of("activation", self.activation, ACTIVATIONS)
        validate.positive("beta", self.beta)
        validate.not_negative("weight_decay", self.weight_decay)
        validate.at_least("width", self.width, 1)
        Schedule.__post_init__(self)

    def build(self) -> nn.Module:
        return ResNet18(CLASSES, self.activation, self.beta, self.width)

    @staticmethod
    def usual_rate(batch: int) -> float:
        return 0.2 * batch / 512

    def optimiser(self, network: nn.Module) -> Optimizer:
        return descent(network, self, self.weight_decay)


@dataclass(frozen=True, slots=True)
class LipschitzRecipe(Schedule):
    """The network of Lipschitz constant 1: Adam on the cross-entropy of temperature * logits, and back to orthonormal
    matrices after each step."""

    network: ClassVar[str] = "lipschitz"
    scale: ClassVar[Scale] = (lipschitz.MEAN, lipschitz.STD)
    label_smoothing: ClassVar[float] = 0.0

    lr: float = 0.01
    widths: tuple[int, ...] = lipschitz.WIDTHS  # channels of the stages
    depth: int = lipschitz.DEPTH  # orthogonal maps per stage
    tau: float = lipschitz.TAU  # roundness of the activation
    temperature: float = 0.5  # the higher, the less margins count
    patch: int = lipschitz.PATCH  # pixels along the first patches

    def __post_init__(self) -> None:
        lipschitz.check_widths(self.widths, self.patch)
        validate.at_least("depth", self.depth, 0)
        for name in ("tau", "temperature"):
            validate.positive(name, getattr(self, name))
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


@dataclass(frozen=True, slots=True)
class FineTuning(Schedule):
    """EfficientNet-Lite0 from its ImageNet weights to the classes of Tiny-ImageNet: SGD with Nesterov momentum."""

    network: ClassVar[str] = "efficientnet_lite0"
    dataset: ClassVar[str] = "Tiny-ImageNet"
    scale: ClassVar[Scale] = (embedded.VIEW.mean, embedded.VIEW.std)
    temperature: ClassVar[float] = 1.0

    epochs: int = 15
    warm_up: int = 1
    batch: int = 256
    lr: float = 0.01
    weight_decay: float = 1e-4  # of convolutions and the linear layer; norms and biases have none
    label_smoothing: float = 0.1  # the share of a label that goes to all classes alike
    size: int = embedded.SIZE  # pixels along the network's input
    wnids: tuple[str, ...] = ()  # of the classes, in their order
    names: tuple[str, ...] = ()  # theirs, for classes that ImageNet does not have

    def __post_init__(self) -> None:
        validate.at_least("size", self.size, embedded.SMALLEST)
        Schedule.__post_init__(self)

    def build(self) -> nn.Module:
        return embedded.with_classes(self.wnids)

    @staticmethod
    def usual_rate(batch: int) -> float:
        return 0.01 * batch / 256

    def optimiser(self, network: nn.Module) -> Optimizer:
        return descent(network, self, self.weight_decay)

    def augmented(self, pixels: Pixels, generator: Generator) -> Resized:
        return zoom_and_flip(pixels, generator, self.size)

    def seen(self, pixels: Pixels) -> Resized:
        return resized(pixels, self.size)

    def identity(self) -> dict[str, Any]:
        found = Schedule.identity(self) | {"classes": len(self.wnids)}
        del found["names"]
        return found | {"wnids": sha256(",".join(self.wnids).encode()).hexdigest()[:16]}

    def notes(self) -> dict[str, str]:
        names = embedded.class_names(self.wnids, self.names)
        return {"wnids": ",".join(self.wnids), "labels": json.dumps(names)}


AnyRecipe = Recipe | LipschitzRecipe | FineTuning
RECIPES: dict[str, type[Recipe] | type[LipschitzRecipe]] = {each.network: each for each in (Recipe, LipschitzRecipe)}


def unchanged(pixels: Pixels) -> Resized:
    return pixels


def descent(network: nn.Module, plan: Schedule, weight_decay: float) -> Optimizer:
    """SGD with Nesterov momentum."""
    every = list(network.parameters())
    groups = [
        {"params": [each for each in every if each.ndim > 1], "weight_decay": weight_decay},
        {"params": [each for each in every if each.ndim <= 1], "weight_decay": 0.0},
    ]
    return torch.optim.SGD(groups, plan.lr, momentum=plan.momentum, nesterov=plan.momentum > 0)


def fresh(recipe: AnyRecipe) -> nn.Module:
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
