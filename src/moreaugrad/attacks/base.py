"""What all attacks share: the options of ball and box, the checks, and the result. One objective per other file.

`perturb` is final. An attack on a map keeps the model's own prediction, sees fixed noise, takes its slope from a
softplus copy where the network has kinks, and is judged on the network itself. Nothing of the caller's is changed.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from moreaugrad import validate
from moreaugrad.attacks import checks as rules
from moreaugrad.attacks.descent import Aim, Found, LengthSteps, Rule, ShrinkingSteps, SignSteps, descend
from moreaugrad.attacks.result import Attacked
from moreaugrad.attacks.space import NORMS, Space, distance, pixels
from moreaugrad.attacks.victim import Maps, Victim, outputs, settled, smoothed
from moreaugrad.batch import spread
from moreaugrad.types import Counts, Flags, Images, PerImage, Target, Watch, ignore_progress

log = logging.getLogger("moreaugrad")

RULES = ("sign", "gradient")


@dataclass(frozen=True, eq=False)
class Attack:
    """Finds x' within `epsilon` of x and in the box. `attacked` is a method, or the model where no map is meant."""

    norms: ClassVar[tuple[str, ...]] = NORMS  # those that the attack can be told

    attacked: Any
    epsilon: float
    norm: str = field(default="l2", kw_only=True)  # or linf
    box: Any = field(default="model", kw_only=True)  # (low, high), None, or what the model knows of its pictures
    seed: int = field(default=0, kw_only=True)
    unbounded: ClassVar[bool] = False  # whether epsilon may be infinite, so that only the box is left

    def __post_init__(self) -> None:
        rules.epsilon(self.epsilon, self.unbounded)
        validate.one_of("norm", self.norm, dict.fromkeys(self.norms))
        validate.at_least("seed", self.seed, 0)
        rules.box_form(self.box)

    @property
    def model(self) -> Any:
        """The network that is attacked."""
        return getattr(self.attacked, "forward_func", self.attacked)

    def perturb(self, inputs: Tensor, target: Target = None, *, callback: Watch | None = None) -> Attacked:
        """Attacked inputs, one for each; without a target the map of the predicted class is attacked."""
        return self._attack(inputs, target, lambda space, victim: self.run(space, victim, callback or ignore_progress))

    def _attack(self, inputs: Tensor, target: Target, run: Callable[[Space, Victim], Attacked]) -> Attacked:
        x = rules.images(inputs)
        validate.evaluating(self.model)
        with torch.inference_mode(False), torch.no_grad(), torch.random.fork_rng([x.device] if x.is_cuda else []):
            x = x.detach().clone(memory_format=torch.contiguous_format)
            space = self._space(x)
            clean = outputs(self.model, x)
            victim = self._victim(x, self._classes(target, clean), clean)
            return run(space, victim)

    def run(self, space: Space, victim: Victim, watch: Watch) -> Attacked:
        """What the attack itself does."""
        raise AssertionError("an attack must define run")

    def _classes(self, given: Target, clean: Tensor) -> Tensor:
        """The class of each image, by what the model says of the clean ones."""
        return rules.classes(given, clean)

    def _victim(self, x: Images, target: Tensor, clean: Tensor) -> Victim:
        return Victim(self.model, target, clean.argmax(1))

    def _bounds(self) -> tuple[Any, Any] | None:
        if isinstance(self.box, str):
            known = getattr(self.model, "box", None)
            return known if isinstance(known, tuple) else None
        return self.box  # type: ignore[no-any-return]

    def _space(self, x: Images) -> Space:
        bounds = self._bounds()
        if bounds is None:
            return Space(x, float(self.epsilon), self.norm)
        low, high = (torch.as_tensor(end, device=x.device).to(x.dtype) for end in bounds)
        rules.inside(x, low, high)
        # rounding may put a white pixel a hair outside; the box then gives way to the image
        return Space(x, float(self.epsilon), self.norm, torch.minimum(low, x), torch.maximum(high, x))

    def _result(
        self,
        space: Space,
        victim: Victim,
        at: Images,
        success: Flags,
        objective: PerImage,
        trace: Tensor,
        gradients: Counts,
    ) -> Attacked:
        delta = at - space.x
        known = getattr(self.model, "box", None)  # what a pixel is only the model can tell; else the box must do
        small = pixels(delta, known if isinstance(known, tuple) else self._bounds())
        lengths = {kind: distance(delta, kind) for kind in NORMS}
        if small is not None:
            lengths |= {f"pixels_{kind}": distance(small, kind) for kind in NORMS}
        return Attacked(at, success, victim.kept(at), objective, trace, gradients, victim.target, **lengths)


@dataclass(frozen=True, eq=False)
class MapAttack(Attack):
    """Makes a number of the map small while the prediction stays. A subclass writes `objective`.

    `rule` "gradient": steps along the gradient, shrinking, from random points of the sphere (the stronger one);
    "sign": steps along its sign from the input, as the published attack (the only one for linf).
    """

    steps: int = field(default=20, kw_only=True)
    restarts: int = field(default=1, kw_only=True)
    rule: str | None = field(default=None, kw_only=True)  # None: gradient for l2, sign for linf
    step_size: float | None = field(default=None, kw_only=True)  # of the sign rule; None: epsilon/100, linf epsilon/4
    surrogate: nn.Module | str | None = field(default="softplus", kw_only=True)  # lends its slope; None: the model
    beta: float = field(default=30.0, kw_only=True)  # sharpness of the softplus copy

    def __post_init__(self) -> None:
        Attack.__post_init__(self)
        rules.attackable(self.attacked)
        validate.at_least("steps", self.steps, 1)
        validate.at_least("restarts", self.restarts, 1)
        validate.positive("beta", self.beta)
        rules.rule(self.rule, self.norm, RULES)
        rules.surrogate(self.surrogate)
        if self.step_size is not None:
            validate.positive("step_size", self.step_size)

    def reference(self, clean: Images, victim: Victim, space: Space) -> Any:
        """What is fixed at the clean map, such as its largest entries."""
        return clean

    def objective(self, maps: Images, fixed: Any) -> PerImage:
        """The number that is made small: a differentiable function of the map."""
        raise AssertionError("a map attack must define objective")

    def _victim(self, x: Images, target: Tensor, clean: Tensor) -> Victim:
        method = settled(self.attacked)
        return Victim(self.model, target, clean.argmax(1), method, *smoothed(method, self.surrogate, self.beta))

    def _moves(self, victim: Victim) -> Rule:
        if self.rule == "sign" or (self.rule is None and self.norm == "linf"):
            return SignSteps(self.step_size or self.epsilon / (100 if self.norm == "l2" else 4))
        return LengthSteps(self.step_size) if self.step_size else ShrinkingSteps()

    def transfer(self, inputs: Tensor, points: Sequence[Tensor], target: Target = None) -> Attacked:
        """The best of points that are there already, such as those found against other maps; each is projected first.

        One map for each point, and no slope.
        """
        rules.points(points, rules.images(inputs))
        return self._attack(inputs, target, lambda space, victim: self._best_of(space, victim, points))

    def _best_of(self, space: Space, victim: Victim, points: Sequence[Tensor]) -> Attacked:
        clean = victim.method.explain(space.x, victim.target)
        fixed = self.reference(clean.map, victim, space)
        best, trace = space.x, [self.loss(space.x, clean.map, fixed, victim)]
        for point in points:
            at = space.project(point.detach().to(space.x))
            value = self.loss(at, victim.map(at), fixed, victim)
            better = (value < trace[-1]) & victim.kept(at)
            best = torch.where(spread(better, best), at, best)
            trace.append(torch.where(better, value, trace[-1]))
        spent = clean.gradients * (1 + len(points))
        return self._result(space, victim, best, _lower(trace), trace[-1], torch.stack(trace), spent)

    def run(self, space: Space, victim: Victim, watch: Watch) -> Attacked:
        clean = victim.method.explain(space.x, victim.target)
        fixed = self.reference(clean.map, victim, space)

        def slope(at: Images) -> tuple[PerImage, Images]:
            with torch.enable_grad():
                leaf = at.detach().requires_grad_()
                value = self.loss(leaf, victim.map_with_graph(leaf), fixed, victim)
                (grad,) = torch.autograd.grad(value.sum(), leaf)
            return value.detach(), grad

        def value(at: Images) -> PerImage:
            return self.loss(at, victim.map(at), fixed, victim)

        aim = Aim(value, slope, victim.kept, same=victim.same)
        found = descend(space, aim, self._moves(victim), self.steps, self.restarts, self.seed, watch)
        self._mention_flat(found)
        spent = self._spent(found, victim, clean.gradients)
        return self._result(space, victim, found.x, _lower(found.trace), found.objective, found.trace, spent)

    def loss(self, x: Images, maps: Maps, fixed: Any, victim: Victim) -> PerImage:
        """The objective at x; attacks that also watch the model's output add to it here."""
        return self.objective(maps, fixed)

    def _spent(self, found: Found, victim: Victim, one: Counts) -> Counts:
        """`one` map costs so many sample-gradients."""
        spent: Counts = one * (found.looks + 1) + found.slopes * (one + victim.smooth.slope_cost(one))
        return spent

    def _mention_flat(self, found: Found) -> None:
        """An attack that never moved because there was no slope has shown nothing."""
        if found.flat:
            log.warning(
                "the slope of the attack is zero everywhere: only random points were tried. A network with kinks needs "
                "surrogate='softplus' or a smooth network of your own; maps of a linear network cannot be moved"
            )


def _lower(trace: Sequence[PerImage] | Tensor) -> Flags:
    """Whether the last objective is below the first, by more than rounding."""
    return trace[-1] < trace[0] - 8 * torch.finfo(trace[0].dtype).eps * trace[0].abs()
