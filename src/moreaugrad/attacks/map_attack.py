"""The base of the attacks on maps: a descent on a number of the map that keeps the model's own prediction.

The method is attacked on fixed noise. Where the network has kinks, the gradient comes from a softplus copy of it; the
network itself decides what was reached.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass, field, is_dataclass, replace
from typing import Any, ClassVar

import torch
from jaxtyping import Float
from torch import Tensor, nn

from moreaugrad import validate
from moreaugrad.attacks.base import Attack, AttackedModel, Maps
from moreaugrad.attacks.descent import Ball, NormalizedSteps, Objective, ShrinkingSteps, SignSteps, StepRule, descend
from moreaugrad.attacks.result import AttackResult
from moreaugrad.batch import spread, total
from moreaugrad.model.smoothing import draw_seed
from moreaugrad.model.surgery import freeze, has_kinks, with_softplus
from moreaugrad.types import Counts, Flags, Images, PerImage, Target, Watch

log = logging.getLogger("moreaugrad")

WITHOUT_MAP_GRADIENT = ("noise", "pgd", "structured")  # attacks that never differentiate a map


@dataclass(frozen=True, eq=False)
class MapAttack(Attack):
    """Base of the attacks on a map: makes a number of the map small while the prediction stays.

    A new one is a frozen dataclass (`eq=False`) that defines `objective(maps, reference) -> (N)`, differentiable in
    the maps. It may override `reference(clean, model, ball)`, what is computed once from the clean map;
    `step_rule(model)`, where a search starts and how it steps; and `loss(x, maps, reference, model)`, where the
    objective also depends on the output. `images_only = True` refuses inputs that are no images.

    Args:
        attacked: a method whose map can be differentiated, such as `mg.Gradient(model)`.
        steps: gradient steps of each start; one costs a map and its derivative.
        restarts: number of starts; the best point of all counts.
        rule: "gradient" (default for l2): along the gradient, by shrinking steps from random points of the sphere,
            the stronger one; "sign" (the only one for linf): along its sign from the input, as published.
        step_size: length of a step, in the units of the input; default epsilon/100 (l2) or epsilon/4 (linf) for
            "sign", and epsilon/(i + 1) for "gradient", which with a given length starts at the input.
        surrogate: what is differentiated: "softplus" for a softplus copy of a network with kinks, a smooth network of
            your own, or None for the model itself.
        beta: sharpness of the softplus copy.
        slope: a name in `STATISTICS`: the search follows the slope of that statistic of the same gradients, and the
            map itself decides what was reached. "square" or "log_square" goes on where the map is flat, as votes are:
            they take it by themselves. None follows the map's own slope.
        **options: those of `Attack`.

    Example:
        >>> from dataclasses import dataclass
        >>> @dataclass(frozen=True, eq=False)
        ... class Mean(mg.MapAttack):
        ...     def objective(self, maps, reference):
        ...         return maps.abs().flatten(1).mean(1) - reference.abs().flatten(1).mean(1)
        >>> bool((Mean(mg.Gradient(net), 0.5, steps=2).perturb(x).objective <= 0).all())
        True
    """

    images_only: ClassVar[bool] = False

    steps: int = field(default=20, kw_only=True)
    restarts: int = field(default=1, kw_only=True)
    rule: str | None = field(default=None, kw_only=True)
    step_size: float | None = field(default=None, kw_only=True)
    surrogate: nn.Module | str | None = field(default="softplus", kw_only=True)
    beta: float = field(default=30.0, kw_only=True)
    slope: str | None = field(default=None, kw_only=True)

    def __post_init__(self) -> None:
        super().__post_init__()
        check_method(self.attacked)
        check_differentiable(choose_leader(self.attacked, self.slope))
        self.check_options(positive="beta step_size", counts="steps restarts")
        if self.rule not in (None, "sign", "gradient"):
            raise ValueError(f"rule must be one of ['sign', 'gradient'] or None, got {self.rule!r}")
        if self.rule == "gradient" and self.norm == "linf":
            raise ValueError("rule='gradient' goes with norm='l2', got norm='linf'; use rule='sign'")
        if self.surrogate is not None and not callable(self.surrogate) and self.surrogate != "softplus":
            raise ValueError(f"surrogate must be 'softplus', a network or None, got {self.surrogate!r}")

    def reference(self, clean: Maps, model: AttackedModel, ball: Ball) -> Any:
        """What is fixed at the clean map, such as its largest entries."""
        return clean

    def objective(self, maps: Maps, reference: Any) -> PerImage:
        """The number that is made small: a differentiable function of the map."""
        raise NotImplementedError(f"{type(self).__name__} must define objective(maps, reference), as every map attack")

    def loss(self, x: Images, maps: Maps, reference: Any, model: AttackedModel) -> PerImage:
        """The objective at x; attacks that also depend on the model's output add to it here."""
        return self.objective(maps, reference)

    def step_rule(self, model: AttackedModel) -> StepRule:
        if self.rule == "sign" or (self.rule is None and self.norm == "linf"):
            return SignSteps(self.step_size or self.epsilon / (100 if self.norm == "l2" else 4))
        return NormalizedSteps(self.step_size) if self.step_size else ShrinkingSteps()

    def check_inputs(self, x: Images) -> None:
        if self.images_only and x.ndim != 4:
            raise ValueError(f"this attack needs images (N, C, H, W), got inputs of shape {tuple(x.shape)}; use 'topk'")

    def make_model(self, x: Images, target: Tensor, logits: Tensor) -> AttackedModel:
        method = fix_seed(self.attacked)
        leader = choose_leader(method, self.slope)
        surrogate, exact = make_surrogate(leader, self.surrogate, self.beta)
        return AttackedModel(self.network, target, logits.argmax(1), method, surrogate, exact and leader is method)

    def run(self, ball: Ball, model: AttackedModel, watch: Watch) -> AttackResult:
        clean = model.method.explain(ball.x, target=model.target)
        reference = self.reference(clean.map, model, ball)

        def value_and_grad(at: Images) -> tuple[PerImage, Images]:
            with torch.enable_grad():
                leaf = at.detach().requires_grad_()
                value = self.loss(leaf, model.map_with_graph(leaf), reference, model)
                (grad,) = torch.autograd.grad(value.sum(), leaf)
            return value.detach(), grad

        def value(at: Images) -> PerImage:
            return self.loss(at, model.map(at), reference, model)

        objective = Objective(value, value_and_grad, model.keeps_class, exact=model.exact)
        found = descend(ball, objective, self.step_rule(model), self.steps, self.restarts, self.seed, watch)
        warn_if_flat(found.flat)
        spent = self.count_gradients(model, clean.gradients, found.values + 1, found.gradients)
        return self.make_result(ball, model, found.x, _is_lower(found.trace), found.objective, found.trace, spent)

    def count_gradients(self, model: AttackedModel, per_map: Counts, maps: int, slopes: int) -> Counts:
        """Sample gradients of so many maps, and maps with their derivative."""
        spent: Counts = per_map * maps + slopes * (per_map + model.surrogate.slope_cost(per_map))
        return spent

    def transfer(self, inputs: Tensor, points: Sequence[Tensor], target: Target = None) -> AttackResult:
        """The best of given points, such as those found against the maps of other methods.

        Each point is projected into the ball first. Costs one map for each point, and no derivative of a map.

        Args:
            inputs: the clean batch (N, ...).
            points: batches of the shape of `inputs`, at least one.
            target: class whose map is attacked, or one per image; default the predicted class.

        Returns:
            The best valid point of each image, as `perturb` returns it.
        """
        x = validate.one_input(inputs)
        if isinstance(points, Tensor) or not len(points):
            raise ValueError("points must be a list of at least one batch of images, got none, or one tensor")
        for each in points:
            if not isinstance(each, Tensor) or each.shape != x.shape:
                shape = str(tuple(each.shape)) if isinstance(each, Tensor) else type(each).__name__
                raise ValueError(f"points must be batches of the inputs' shape {tuple(x.shape)}, got {shape}")
        return self._attack(inputs, target, lambda ball, model: self._choose_best(ball, model, points))

    def _choose_best(self, ball: Ball, model: AttackedModel, points: Sequence[Tensor]) -> AttackResult:
        clean = model.method.explain(ball.x, target=model.target)
        reference = self.reference(clean.map, model, ball)
        best, trace = ball.x, [self.loss(ball.x, clean.map, reference, model)]
        for point in points:
            at = ball.project(point.detach().to(ball.x))
            value = self.loss(at, model.map(at), reference, model)
            better = (value < trace[-1]) & model.keeps_class(at)
            best = torch.where(spread(better, best), at, best)
            trace.append(torch.where(better, value, trace[-1]))
        spent = clean.gradients * (1 + len(points))
        return self.make_result(ball, model, best, _is_lower(trace), trace[-1], torch.stack(trace), spent)


def choose_leader(method: Any, slope: str | None) -> Any:
    """The method whose slope the search follows: its own, or that of another statistic of its gradients."""
    if slope is not None:
        return method.with_statistic(slope)
    # votes are flat almost everywhere; the slope of their mean comes from first derivatives alone, and is mostly noise
    flat = getattr(method, "counts_votes", False)
    return method.with_statistic("square") if flat else method


def check_method(method: Any) -> None:
    if isinstance(method, nn.Module) or not hasattr(method, "attribute"):
        raise TypeError(
            f"this attack needs a method, such as METHODS['gradient'](model), got {type(method).__name__}; "
            f"a model alone is attacked by {', '.join(WITHOUT_MAP_GRADIENT)}"
        )
    if getattr(method, "several", None) is not None:
        raise ValueError("an attack needs one map per image, got a list of eta or sparsity; give one value")


def check_differentiable(method: Any) -> None:
    if not getattr(method, "differentiable", False):
        raise ValueError(
            f"the map of {method.get_name()} cannot be differentiated, so this attack cannot be led by it; "
            f"use {', '.join(WITHOUT_MAP_GRADIENT)}, which need no slope of the map, or attack another method "
            "and judge this one on the result"
        )


def fix_seed(method: Any) -> Any:
    """The method with a seed that stays: an attack must see the same noise at every step."""
    seed = getattr(method, "seed", 0)
    return method if isinstance(seed, int) else replace(method, seed=draw_seed(seed))


def make_surrogate(method: Any, surrogate: Any, beta: float) -> tuple[Any, bool]:
    """The method on the network that is differentiated, and whether that network computes the same."""
    network = method.forward_func
    if isinstance(surrogate, str):
        surrogate = None
        if method.second_order and isinstance(network, nn.Module) and has_kinks(network):
            log.info("the network has kinks, so the attack takes its slope from a softplus copy (beta %g)", beta)
            try:
                surrogate = with_softplus(network, beta)
            except ValueError as error:
                advice = "or give surrogate=a smooth network, or surrogate=None for a method that reads a layer"
                raise ValueError(f"{error}; {advice}") from error
    exact = surrogate is None or surrogate is network
    return with_network(method, without_weight_gradients(network if exact else surrogate)), exact


def without_weight_gradients(network: Any) -> Any:
    """A copy on the same memory whose weights are not differentiated; the network itself if it cannot be copied."""
    if not isinstance(network, nn.Module) or not any(each.requires_grad for each in network.parameters()):
        return network
    try:
        return freeze(network)
    except Exception as error:  # whatever a model's own way of copying raises
        log.debug("the network cannot be copied (%s), so its weights are differentiated too", error)
        return network


def with_network(method: Any, network: Any) -> Any:
    """The same method for another network."""
    if network is method.forward_func:
        return method
    if not is_dataclass(method):
        raise TypeError(
            f"a softplus copy needs a method whose network can be exchanged, got {type(method).__name__}; "
            "give surrogate=None, or a method of METHODS"
        )
    exchanged: Any = replace(method, forward_func=network)  # type: ignore[type-var]
    return exchanged


def warn_if_flat(flat: bool) -> None:
    """An attack that never moved because there was no gradient has shown nothing."""
    if flat:
        log.warning(
            "the slope of the attack is zero everywhere: only random points were tried. A network with kinks needs "
            "surrogate='softplus' or a smooth network of your own; maps of a linear network cannot be moved"
        )


def magnitude(maps: Images, per_pixel: bool = True) -> Float[Tensor, "n *places"]:
    """|map|, summed over the channels of images where pixels are meant."""
    size = maps.abs()
    return size.sum(1, keepdim=True) if per_pixel and size.ndim == 4 else size


def shares(size: Images) -> Images:
    """Scaled to sum 1; a map of zeros stays one."""
    return size / spread(total(size).clamp_min(torch.finfo(size.dtype).tiny), size)


def mse(a: Tensor, b: Tensor) -> PerImage:
    """The mean squared difference of each row."""
    return total((a - b).square()) / a[0].numel()


def _is_lower(trace: Sequence[PerImage] | Tensor) -> Flags:
    """Whether the last objective is below the first, by more than rounding."""
    return trace[-1] < trace[0] - 8 * torch.finfo(trace[0].dtype).eps * trace[0].abs()
