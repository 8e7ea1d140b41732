"""Manipulation of explanations: makes the map look like any other while the output stays."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, ClassVar

import torch
from jaxtyping import Float
from torch import Tensor

from moreaugrad import validate
from moreaugrad.attacks.base import AttackedModel, Maps, predict_logits
from moreaugrad.attacks.descent import Ball, Objective, StepRule
from moreaugrad.attacks.map_attack import MapAttack, magnitude, mse, shares
from moreaugrad.attacks.result import AttackResult, describe_range, extend_result
from moreaugrad.metrics.similarity import pearson
from moreaugrad.model.prepared import numerics
from moreaugrad.model.score import make_score, pad
from moreaugrad.types import Counts, Images, PerImage, Watch

Planes = Float[Tensor, "n h w"]
PIXELS, CLASSES = 224 * 224, 1000  # of the networks for which the weights are stated


@dataclass(frozen=True, slots=True, repr=False)
class ManipulationResult(AttackResult):
    """An attacked input and how near its map came. Maps are |map| summed over channels and scaled to sum 1, (N, H, W).

    Attributes:
        maps: of `x`, on the model itself.
        clean_maps: of the clean inputs.
        target_maps: what was wanted.
        mse_target: mean squared difference of `maps` to `target_maps`.
        mse_before: of `clean_maps` to `target_maps`.
        pearson_target: Pearson correlation of `maps` and `target_maps`.
        pearson_clean: of `maps` and `clean_maps`.
    """

    maps: Planes = field(kw_only=True)
    clean_maps: Planes = field(kw_only=True)
    target_maps: Planes = field(kw_only=True)
    mse_target: PerImage = field(kw_only=True)
    mse_before: PerImage = field(kw_only=True)
    pearson_target: PerImage = field(kw_only=True)
    pearson_clean: PerImage = field(kw_only=True)

    def _say_more(self) -> str:
        clean, wanted = describe_range(self.pearson_clean), describe_range(self.pearson_target)
        return f"The maps correlate with the clean ones by {clean}, with the wanted ones by {wanted}."


@dataclass(frozen=True, eq=False)
class Manipulation(MapAttack):
    """`w1 MSE(h(x'), h_t) + w2 MSE(softmax(x'), softmax(x))` by Adam; h is |map| summed over channels, of sum 1.

    Shows that a map can be made to look like any other (Dombrowski et al., 2019). The softplus copy of a network with
    kinks grows sharper from betas[0] to betas[1]; the output is that of the network itself. `perturb` returns a
    `ManipulationResult`.

    Args:
        epsilon: size of the change, in the units of the input; default (or None) no bound but the box.
        target_map: h_t, (H, W), (N, H, W) or (N, C, H, W); its absolute values count.
        target_image: instead, an image or one per input, whose own map for its predicted class is h_t.
        weights: w1 and w2, stated for 224 x 224 pixels and 1000 classes and scaled to those at hand.
        betas: sharpness of the softplus copy in the first and the last step.
        steps: Adam steps.
        step_size: Adam's learning rate, in the units of the input.
        **options: those of `MapAttack`, without `restarts`, `rule` and `beta`; the inputs must be images (N, C, H, W).

    Example:
        >>> attack = mg.Manipulation(mg.Gradient(net), target_map=torch.eye(16), steps=3)
        >>> found = attack.perturb(x)
        >>> bool((found.objective <= found.trace[0]).all()), found.maps.shape
        (True, torch.Size([2, 16, 16]))
    """

    unbounded: ClassVar[bool] = True
    images_only: ClassVar[bool] = True

    epsilon: float = math.inf
    target_map: Any = field(default=None, kw_only=True)
    target_image: Any = field(default=None, kw_only=True)
    weights: tuple[float, float] = field(default=(1e11, 1e6), kw_only=True)
    betas: tuple[float, float] = field(default=(10.0, 100.0), kw_only=True)
    steps: int = field(default=1500, kw_only=True)
    step_size: float = field(default=1e-3, kw_only=True)
    restarts: int = field(default=1, init=False)
    rule: str | None = field(default=None, init=False)
    beta: float = field(default=10.0, init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "epsilon", math.inf if self.epsilon is None else self.epsilon)
        super().__post_init__()
        for name, check in (("weights", validate.not_negative), ("betas", validate.positive)):
            given = getattr(self, name)
            if not isinstance(given, tuple | list) or len(given) != 2:
                raise ValueError(f"{name} must be two numbers, got {given!r}")
            for each in given:
                check(name, each)
        if (self.target_map is None) == (self.target_image is None):
            raise ValueError(
                "give either target_map, the map that is wanted, or target_image, whose own map is wanted, got "
                + ("none of them" if self.target_map is None else "both")
            )
        self._read_target()

    def _read_target(self) -> Tensor:
        """The target map or image as a tensor of finite numbers."""
        name = "target_image" if self.target_map is None else "target_map"
        try:
            found = torch.as_tensor(getattr(self, name))
        except (TypeError, ValueError, RuntimeError):
            kind = type(getattr(self, name)).__name__
            raise TypeError(f"{name} must be a tensor or an array of numbers, got {kind}") from None
        validate.dense(name, found)
        if found.is_complex() or not bool(found.isfinite().all()):
            raise ValueError(f"{name} must hold finite real numbers, got NaN, infinity or {found.dtype}")
        return found.detach()

    def check_inputs(self, x: Images) -> None:
        super().check_inputs(x)
        given, plane = self._read_target(), tuple(x.shape[-2:])
        rows = len(given) if given.ndim > 2 else 1
        if self.target_map is None:
            if tuple(given.shape) not in (tuple(x.shape), (1, *x.shape[1:]), tuple(x.shape[1:])):
                raise ValueError(
                    f"target_image must have the shape of the inputs, {tuple(x.shape)}, or of one of them, "
                    f"got {tuple(given.shape)}"
                )
        elif given.ndim not in (2, 3, 4) or tuple(given.shape[-2:]) != plane or rows not in (1, len(x)):
            raise ValueError(
                f"target_map must be (H, W), (N, H, W) or (N, C, H, W) with one row or {len(x)} and {plane[0]} x "
                f"{plane[1]} pixels as the images, got shape {tuple(given.shape)}; resize it with "
                "torch.nn.functional.interpolate"
            )
        elif not bool((given != 0).reshape(rows, -1).any(1).all()):
            raise ValueError("target_map must have an entry that is not zero, got a map of zeros: it has no shares")

    def step_rule(self, model: AttackedModel) -> StepRule:
        first, last = self.betas
        softplus = []  # those that the copy has in place of others: the model's own softplus stays as it is
        if self.surrogate == "softplus" and not model.exact:
            copy, network = model.surrogate.forward_func, model.method.forward_func
            names = network.named_modules(remove_duplicate=False)
            pairs = ((copy.get_submodule(name), module) for name, module in names)
            softplus = [new for new, old in pairs if type(new) is not type(old)]

        def sharpen(number: int) -> None:
            for module in softplus:
                module.beta = first * (last / first) ** (number / self.steps)

        return AdamSteps(self.step_size, sharpen)

    def reference(self, clean: Maps, model: AttackedModel, ball: Ball) -> tuple[Planes, Tensor]:
        """The target map, and the probabilities of the clean input."""
        said = predict_logits(self.network, ball.x).to(ball.x.dtype).softmax(1)
        return self._target_planes(model, ball.x), said

    def objective(self, maps: Maps, reference: tuple[Planes, Any]) -> PerImage:
        h = to_plane(maps)
        scale = (h[0].numel() / PIXELS) ** 2  # entries of a map of sum 1 go as 1/pixels
        return self.weights[0] * scale * mse(h, reference[0])

    def loss(self, x: Images, maps: Maps, reference: tuple[Planes, Any], model: AttackedModel) -> PerImage:
        """The output is the network's own, with kinks and all: it needs no second derivative."""
        said = logits_with_graph(model.network, x).to(x.dtype).softmax(1)
        scale = said.shape[1] / CLASSES  # few classes change, whatever their number
        return self.objective(maps, reference) + self.weights[1] * scale * mse(said, reference[1])

    def run(self, ball: Ball, model: AttackedModel, watch: Watch) -> ManipulationResult:
        found = super().run(ball, model, watch)
        clean, after = to_plane(model.map(ball.x)), to_plane(model.map(found.x))
        target = self._target_planes(model, ball.x)
        figures = {"mse_target": mse(after, target), "mse_before": mse(clean, target)}
        figures |= {"pearson_target": pearson(after, target), "pearson_clean": pearson(after, clean)}
        return extend_result(found, ManipulationResult, maps=after, clean_maps=clean, target_maps=target, **figures)

    def _target_planes(self, model: AttackedModel, x: Images) -> Planes:
        given = self._read_target().to(x.device, x.dtype)
        if self.target_map is not None:
            maps = given.reshape(-1, given.shape[1] if given.ndim == 4 else 1, *given.shape[-2:])
        else:
            given = given.reshape(-1, *x.shape[1:])
            maps = model.method.attribute(given, target=predict_logits(self.network, given).argmax(1)).detach()
        if not bool(maps.flatten(1).any(1).all()):
            raise ValueError("the map of target_image must not be zero everywhere, got one that is; take another image")
        found = to_plane(maps)
        return found.expand(len(x), *found.shape[1:])

    def count_gradients(self, model: AttackedModel, per_map: Counts, maps: int, slopes: int) -> Counts:
        """Besides: a gradient of the output at each step, and the maps of the result."""
        more = 2 if self.target_image is None else 4
        return super().count_gradients(model, per_map, maps + more, slopes) + slopes


class AdamSteps:
    """x <- project(Adam's step). Holds Adam's running means, so that it serves one search only."""

    def __init__(self, length: float, before: Callable[[int], None]) -> None:
        self.length, self.before = length, before  # the latter is called with the number of the step that comes next

    def start(self, ball: Ball, objective: Objective, seed: int, restart: int) -> Images:
        self.point = ball.x.clone()
        self.adam = torch.optim.Adam([self.point], self.length)
        self.before(0)
        return ball.x

    def step(self, ball: Ball, objective: Objective, at: Images, grad: Images, number: int) -> Images:
        self.point.copy_(at)
        self.point.grad = grad
        self.adam.step()
        self.before(number + 1)
        return ball.project(self.point)


def logits_with_graph(network: Any, x: Images) -> Float[Tensor, "n k"]:
    """Logits that can be differentiated by x, in chunks of one shape."""
    score, found = make_score(network, x), []
    size = score.engine.rows
    for start in range(0, len(x), size):
        some = slice(start, start + size)
        rows, owners = pad(x[some], score.owners(x)[some], size)
        with numerics("float32", x.is_cuda):
            found.append(score.run(rows, owners, plain=True)[: len(x) - start])
    return torch.cat(found)


def to_plane(maps: Images) -> Planes:
    """h: |map| summed over channels, of sum 1; zero for a map of zeros."""
    return shares(magnitude(maps)).squeeze(1)
