"""Manipulation of explanations: the map is made to look like any other, while the output stays.

Owns the Adam steps and the schedule of the softplus copy; judged on the network itself like every attack on maps.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field, fields
from typing import Any, ClassVar

import torch
from jaxtyping import Float
from torch import Tensor

from moreaugrad.attacks import checks_directed as directed
from moreaugrad.attacks.base import MapAttack
from moreaugrad.attacks.descent import Aim, Found, Rule
from moreaugrad.attacks.result import Attacked
from moreaugrad.attacks.space import Space
from moreaugrad.attacks.topk import salience, shares
from moreaugrad.attacks.victim import Maps, Victim, logits, outputs
from moreaugrad.batch import total
from moreaugrad.metrics.similarity import pearson
from moreaugrad.types import Counts, Images, PerImage, Watch
from moreaugrad.validate import positive

Planes = Float[Tensor, "n h w"]

PIXELS, CLASSES = 224 * 224, 1000  # of the networks for which the weights are stated


@dataclass(frozen=True, slots=True)
class Manipulated(Attacked):
    """An attacked input, and how near its map came. Maps are |map| summed over channels and scaled to sum 1."""

    maps: Planes = field(kw_only=True)  # of x, on the model itself
    clean_maps: Planes = field(kw_only=True)
    target_maps: Planes = field(kw_only=True)  # what was wanted
    mse_target: PerImage = field(kw_only=True)  # mean squared difference to the target map
    mse_clean: PerImage = field(kw_only=True)  # to the map of the clean input
    mse_before: PerImage = field(kw_only=True)  # of the clean input's map to the target map
    pearson_target: PerImage = field(kw_only=True)
    pearson_clean: PerImage = field(kw_only=True)
    pearson_before: PerImage = field(kw_only=True)


@dataclass(frozen=True, eq=False)
class Manipulation(MapAttack):
    """w1 MSE(h(x'), h_t) + w2 MSE(softmax(x'), softmax(x)) by Adam; h is |map| summed over channels, of sum 1.

    h_t is `target_map`, or the map of `target_image` for the class that the model sees there. The softplus copy of
    a network with kinks grows from betas[0] to betas[1] in sharpness. Without an epsilon only the box is a bound.
    """

    unbounded: ClassVar[bool] = True

    epsilon: float = math.inf  # None is the same
    target_map: Any = field(default=None, kw_only=True)  # (H, W), (N, H, W) or (N, C, H, W); its sizes count
    target_image: Any = field(default=None, kw_only=True)  # one, or one per image, as the model takes them
    weights: tuple[float, float] = field(default=(1e11, 1e6), kw_only=True)  # stated for 224 x 224 and 1000 classes
    betas: tuple[float, float] = field(default=(10.0, 100.0), kw_only=True)
    steps: int = field(default=1500, kw_only=True)
    step_size: float = field(default=1e-3, kw_only=True)  # Adam's learning rate
    restarts: int = field(default=1, init=False)
    rule: str | None = field(default=None, init=False)
    beta: float = field(default=10.0, init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "epsilon", math.inf if self.epsilon is None else self.epsilon)
        MapAttack.__post_init__(self)
        positive("step_size", self.step_size)
        directed.one_target(self.target_map, self.target_image)
        directed.pair("weights", self.weights, zero=True)
        directed.pair("betas", self.betas, zero=False)
        for name in ("target_map", "target_image"):
            if getattr(self, name) is not None:
                directed.picture(name, getattr(self, name))

    def _space(self, x: Images) -> Space:
        directed.pictures(x)
        if self.target_map is not None:
            directed.map_fits(directed.picture("target_map", self.target_map), x)
        else:
            directed.image_fits(directed.picture("target_image", self.target_image), x)
        return MapAttack._space(self, x)

    def _moves(self, victim: Victim) -> Rule:
        first, last = self.betas
        soft = softened(victim) if self.surrogate == "softplus" and not victim.same else []

        def sharpen(step: int) -> None:
            for module in soft:
                module.beta = first * (last / first) ** (step / self.steps)

        return AdamSteps(self.step_size, sharpen)

    def reference(self, clean: Images, victim: Victim, space: Space) -> tuple[Planes, Tensor]:
        """The target map, and what the model says of the clean input."""
        return self._wanted(victim, space.x), probabilities(outputs(victim.model, space.x), space.x)

    def objective(self, maps: Images, fixed: Any) -> PerImage:
        h = plane(maps)
        scale = (h[0].numel() / PIXELS) ** 2  # entries of a map of sum 1 go as 1/pixels
        return self.weights[0] * scale * mse(h, fixed[0])

    def loss(self, x: Images, maps: Maps, fixed: Any, victim: Victim) -> PerImage:
        """The output is the network's own, with kinks and all: it needs no second derivative."""
        said = probabilities(logits(victim.model, x), x)
        scale = said.shape[1] / CLASSES  # few classes change, whatever their number
        return self.objective(maps, fixed) + self.weights[1] * scale * mse(said, fixed[1])

    def run(self, space: Space, victim: Victim, watch: Watch) -> Manipulated:
        found = MapAttack.run(self, space, victim, watch)
        before, after, wanted = plane(victim.map(space.x)), plane(victim.map(found.x)), self._wanted(victim, space.x)
        return Manipulated(
            **{each.name: getattr(found, each.name) for each in fields(found)},
            maps=after,
            clean_maps=before,
            target_maps=wanted,
            mse_target=mse(after, wanted),
            mse_clean=mse(after, before),
            mse_before=mse(before, wanted),
            pearson_target=pearson(after, wanted),
            pearson_clean=pearson(after, before),
            pearson_before=pearson(before, wanted),
        )

    def _wanted(self, victim: Victim, x: Images) -> Planes:
        """The target map of each image."""
        if self.target_map is not None:
            given = directed.picture("target_map", self.target_map).detach().to(x.device, x.dtype)
            given = given.reshape(-1, given.shape[1] if given.ndim == 4 else 1, *given.shape[-2:])
            return plane(given).expand(len(x), *x.shape[-2:])
        given = directed.picture("target_image", self.target_image).detach().to(x.device, x.dtype)
        given = given.reshape(-1, *x.shape[1:])
        found = plane(victim.method.attribute(given, target=outputs(victim.model, given).argmax(1)).detach())
        directed.target_alive(found)
        return found.expand(len(x), *found.shape[1:])

    def _spent(self, found: Found, victim: Victim, one: Counts) -> Counts:
        """Besides: a gradient of the output at each slope, and the maps of the figures."""
        maps = 2 if self.target_image is None else 4
        return MapAttack._spent(self, found, victim, one) + found.slopes + maps * one


@dataclass(eq=False)
class AdamSteps:
    """x <- project(x - length * mean / (sqrt(square) + 1e-8)), running means of the gradient and of its square.

    Holds them, so that it serves one search only.
    """

    length: float
    before: Callable[[int], None]  # told the number of the step whose slope comes next
    mean: Any = 0.0
    square: Any = 0.0

    def start(self, space: Space, aim: Aim, seed: int, restart: int) -> Images:
        self.mean, self.square = torch.zeros_like(space.x), torch.zeros_like(space.x)
        self.before(0)
        return space.x

    def move(self, space: Space, aim: Aim, at: Images, grad: Images, step: int) -> Images:
        self.mean = 0.9 * self.mean + 0.1 * grad
        self.square = 0.999 * self.square + 0.001 * grad.square()
        mean, square = self.mean / (1 - 0.9 ** (step + 1)), self.square / (1 - 0.999 ** (step + 1))
        self.before(step + 1)
        return space.project(at - self.length * mean / (square.sqrt() + 1e-8))


def softened(victim: Victim) -> list[Any]:
    """The modules of the softplus copy that are others than in the model: the model's own softplus stays as it is."""
    copy, model = victim.smooth.forward_func, victim.method.forward_func
    pairs = ((copy.get_submodule(name), module) for name, module in model.named_modules(remove_duplicate=False))
    return [new for new, old in pairs if type(new) is not type(old)]


def plane(maps: Images) -> Planes:
    """h: |map| summed over channels, of sum 1; zero for a map of zeros."""
    return shares(salience(maps)).squeeze(1)


def probabilities(said: Float[Tensor, "n k"], x: Images) -> Float[Tensor, "n k"]:
    return said.to(x.dtype).softmax(1)


def mse(a: Tensor, b: Tensor) -> PerImage:
    """The mean squared difference of each row."""
    return total((a - b).square()) / a[0].numel()
