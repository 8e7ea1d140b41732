"""Recipes: which network is trained, and how."""

from __future__ import annotations

import json
import math
from dataclasses import asdict, dataclass, fields
from hashlib import sha256
from typing import Any, ClassVar, Self

import torch
from torch import Generator, nn
from torch.optim import Optimizer

from moreaugrad import validate
from moreaugrad.data.arrays import CLASSES
from moreaugrad.models import embedded, lipschitz, resnet
from moreaugrad.models.checkpoint import State
from moreaugrad.threads import initial_weights
from moreaugrad.training import orthogonal
from moreaugrad.training.augment import Pixels, Resized, Scale, crop_and_flip, resize, zoom_and_flip

POSITIVE = ("lr", "beta", "tau", "temperature")
NOT_NEGATIVE = ("noise_sigma", "momentum", "weight_decay")
LEAST = {"epochs": 1, "batch": 1, "seed": 0, "warm_up": 0, "width": 1, "depth": 0, "size": embedded.SMALLEST}


@dataclass(frozen=True)
class Recipe:
    """A linear warm-up, then half a cosine down to 0; and what most recipes do with the pixels and the network."""

    network: ClassVar[str]
    dataset: ClassVar[str] = "CIFAR-10"

    noise_sigma: float = 0.0  # Gaussian noise on the network's input, in its unit
    epochs: int = 200
    warm_up: int = 5  # epochs, at most half of all
    batch: int = 512
    lr: float = 0.2  # the highest
    momentum: float = 0.9
    seed: int = 0  # of the initial weights, the order and the augmentation

    def __post_init__(self) -> None:
        for name, value in asdict(self).items():
            if name in POSITIVE:
                validate.positive(name, value)
            elif name in NOT_NEGATIVE:
                validate.not_negative(name, value)
            elif name in LEAST:
                validate.at_least(name, value, LEAST[name])

    @classmethod
    def choose(cls, options: dict[str, Any], on_gpu: bool) -> Self:
        """The recipe with these options; for those that are None the batch by the device, the rate by the batch."""
        given = {name: value for name, value in options.items() if value is not None}
        batch = given.setdefault("batch", cls.batch if on_gpu else cls.batch // 4)
        return cls(**{"lr": cls.default_rate(batch)} | given)

    def rate(self, epochs: float) -> float:
        """Learning rate after so many epochs."""
        rise = min(self.warm_up, self.epochs / 2)
        if epochs < rise:
            return self.lr * epochs / rise
        return self.lr * (1 + math.cos(math.pi * (epochs - rise) / (self.epochs - rise))) / 2

    def identity(self) -> dict[str, Any]:
        """What must be the same for a checkpoint to fit."""
        return asdict(self) | {"network": self.network}

    def notes(self) -> dict[str, str]:
        """What the metadata of the weights hold besides the identity."""
        return {}

    def augment(self, pixels: Pixels, generator: Generator) -> Resized:
        """Images as they are trained on, at the size of the network's input."""
        return crop_and_flip(pixels, generator)

    def resize(self, pixels: Pixels) -> Resized:
        """Images as the preprocessing of the model gives them to the network."""
        return pixels

    @classmethod
    def default_rate(cls, batch: int) -> float:
        """Highest learning rate for a batch of this size."""
        return cls.lr * batch / cls.batch

    def after_step(self, network: nn.Module) -> None:
        """Constrain the weights."""

    def stored_state(self, network: nn.Module) -> State:
        """float16, but float32 where a number is too large; without the counters of batch norm."""
        return to_half(network.state_dict())


@dataclass(frozen=True)
class SGDRecipe(Recipe):
    """SGD with Nesterov momentum."""

    temperature: ClassVar[float] = 1.0

    weight_decay: float = 5e-4  # of convolutions and the linear layer; norms and biases have none

    def optimiser(self, network: nn.Module) -> Optimizer:
        every = list(network.parameters())
        groups = [
            {"params": [each for each in every if each.ndim > 1], "weight_decay": self.weight_decay},
            {"params": [each for each in every if each.ndim <= 1], "weight_decay": 0.0},
        ]
        return torch.optim.SGD(groups, self.lr, momentum=self.momentum, nesterov=self.momentum > 0)


@dataclass(frozen=True)
class ResNetRecipe(SGDRecipe):
    """ResNet-18 for small images."""

    network: ClassVar[str] = "resnet18"
    scale: ClassVar[Scale] = (resnet.VIEW.mean, resnet.VIEW.std)
    label_smoothing: ClassVar[float] = 0.0

    activation: str = "softplus"
    beta: float = 1.0  # steepness of softplus
    width: int = 64  # channels of the first stage

    def __post_init__(self) -> None:
        super().__post_init__()
        validate.one_of("activation", self.activation, resnet.ACTIVATIONS)

    def build(self) -> nn.Module:
        return resnet.ResNet18(CLASSES, self.activation, self.beta, self.width)


@dataclass(frozen=True)
class LipschitzRecipe(Recipe):
    """The 1-Lipschitz network: Adam on the cross-entropy of temperature * logits, and back to orthonormal matrices
    after each step."""

    network: ClassVar[str] = "lipschitz"
    scale: ClassVar[Scale] = (lipschitz.VIEW.mean, lipschitz.VIEW.std)
    label_smoothing: ClassVar[float] = 0.0

    lr: float = 0.01
    widths: tuple[int, ...] = lipschitz.WIDTHS  # channels of the stages
    depth: int = lipschitz.DEPTH  # orthogonal maps per stage
    tau: float = lipschitz.TAU  # roundness of the activation
    temperature: float = 0.5  # the higher, the less margins count
    patch: int = lipschitz.PATCH  # pixels along the first patches

    def __post_init__(self) -> None:
        super().__post_init__()
        lipschitz.check_widths(self.widths, self.patch)

    def build(self) -> nn.Module:
        return lipschitz.LipschitzNetwork(CLASSES, self.widths, self.depth, self.tau, self.patch)

    @classmethod
    def default_rate(cls, batch: int) -> float:
        return cls.lr  # Adam's steps have the same length for every batch

    def optimiser(self, network: nn.Module) -> Optimizer:
        on_gpu = next(network.parameters()).is_cuda
        return torch.optim.Adam(network.parameters(), self.lr, (self.momentum, 0.99), fused=on_gpu)

    def after_step(self, network: nn.Module) -> None:
        orthogonal.project(network)

    def stored_state(self, network: nn.Module) -> State:
        """Plain weights in float16, none with a norm above 1."""
        return orthogonal.to_half(network)


@dataclass(frozen=True)
class FineTuningRecipe(SGDRecipe):
    """EfficientNet-Lite0 from its ImageNet weights to the classes of Tiny-ImageNet."""

    network: ClassVar[str] = "efficientnet_lite0"
    dataset: ClassVar[str] = "Tiny-ImageNet"
    scale: ClassVar[Scale] = (embedded.VIEW.mean, embedded.VIEW.std)

    epochs: int = 15
    warm_up: int = 1
    batch: int = 256
    lr: float = 0.01
    weight_decay: float = 1e-4
    label_smoothing: float = 0.1  # the share of a label that is spread over all classes
    size: int = embedded.SIZE  # pixels along the network's input
    wnids: tuple[str, ...] = ()  # of the classes, in their order
    names: tuple[str, ...] = ()  # of the classes, for those that ImageNet does not have

    def build(self) -> nn.Module:
        return embedded.with_classes(self.wnids)

    def augment(self, pixels: Pixels, generator: Generator) -> Resized:
        return zoom_and_flip(pixels, generator, self.size)

    def resize(self, pixels: Pixels) -> Resized:
        return resize(pixels, self.size)

    def identity(self) -> dict[str, Any]:
        found = super().identity() | {"classes": len(self.wnids)}
        del found["names"]
        return found | {"wnids": sha256(",".join(self.wnids).encode()).hexdigest()[:16]}

    def notes(self) -> dict[str, str]:
        names = embedded.class_names(self.wnids, self.names)
        return {"wnids": ",".join(self.wnids), "labels": json.dumps(names)}


AnyRecipe = ResNetRecipe | LipschitzRecipe | FineTuningRecipe
RECIPES: dict[str, type[ResNetRecipe | LipschitzRecipe]] = {"resnet18": ResNetRecipe, "lipschitz": LipschitzRecipe}


def choose_recipe(options: dict[str, Any], on_gpu: bool) -> ResNetRecipe | LipschitzRecipe:
    """The recipe for CIFAR-10, by the network."""
    given = {name: value for name, value in options.items() if value is not None}
    network = given.pop("network", ResNetRecipe.network)
    validate.one_of("network", network, RECIPES)
    known = {name: {field.name for field in fields(each)} for name, each in RECIPES.items()}
    for name in given:
        if name not in known[network]:
            owner = next(other for other, names in known.items() if name in names)
            raise ValueError(f"--{name} must be left out for --network {network}, got one; it belongs to {owner}")
    if "widths" in given:
        given["widths"] = lipschitz.read_widths(given["widths"])
    return RECIPES[network].choose(given, on_gpu)


def initial_network(recipe: AnyRecipe) -> nn.Module:
    """The network with the initial weights of the recipe's seed."""
    with initial_weights(recipe.seed):
        return recipe.build()


def to_half(state: State) -> State:
    """float16, but float32 where a number is too large for it; floating-point tensors only."""
    floats = {name: tensor for name, tensor in state.items() if tensor.is_floating_point()}
    return {
        name: (tensor.half() if tensor.half().isfinite().all() else tensor).cpu().contiguous()
        for name, tensor in floats.items()
    }
