"""What all attacks share: the one checked call, the model under attack, and the ball and box around each input."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, ClassVar

import torch
from jaxtyping import Float, Int
from torch import Tensor

from moreaugrad import limits, validate
from moreaugrad.attacks.descent import NORMS, Ball, distance
from moreaugrad.attacks.result import AttackResult
from moreaugrad.model.prepared import Prepared
from moreaugrad.model.score import make_score
from moreaugrad.types import Counts, Flags, Images, PerImage, Target, Watch, ignore_progress

Maps = Float[Tensor, "n *map"]  # of the shape of the images, or with one channel


@dataclass(frozen=True, eq=False)
class AttackedModel:
    """The network under attack, the classes of the clean inputs, and the method whose map is attacked, if any."""

    network: Any
    target: Int[Tensor, "n"]  # whose map is attacked
    predicted: Int[Tensor, "n"]  # for the clean inputs
    method: Any = None
    surrogate: Any = None  # the method on the network that is differentiated
    exact: bool = True  # whether that network computes what the attacked one does
    goal: Int[Tensor, "n"] | None = None  # class that it shall predict, where the class is attacked

    @property
    def pushed(self) -> Int[Tensor, "n"]:
        """The class whose score an attack on the class pushes: up where it is a goal, else down."""
        return self.target if self.goal is None else self.goal

    @property
    def sign(self) -> int:
        """1 where that score goes down, -1 where it goes up."""
        return 1 if self.goal is None else -1

    def is_fooled(self, predicted: Int[Tensor, "n"]) -> Flags:
        """Whether the model predicts what an attack on the class wants."""
        return (predicted == self.pushed) == (self.goal is not None)

    def predict(self, x: Images) -> Int[Tensor, "n"]:
        return predict_logits(self.network, x).argmax(1)

    def keeps_class(self, x: Images) -> Flags:
        return self.predict(x) == self.predicted

    def map(self, x: Images) -> Maps:
        """The map of each image, on the network itself, without a graph."""
        found: Maps = self.method.attribute(x.detach(), target=self.target).detach()
        return found

    def map_with_graph(self, x: Images) -> Maps:
        """The map of the surrogate, which can be differentiated by x."""
        found: Maps = self.surrogate.attribute(x, target=self.target, create_graph=True)
        return found


def predict_logits(network: Any, x: Images) -> Float[Tensor, "n k"]:
    """The class scores of each image, without a gradient; refuses what is no classifier."""
    found = make_score(network, x).outputs(x.detach(), check_target=False)
    if found.ndim != 2 or found.shape[1] < 2:
        raise ValueError(
            f"an attack needs a classifier, one score per image and class (N, K) with K >= 2, "
            f"got an output of shape {tuple(found.shape)}"
        )
    if not bool(torch.isfinite(found).all()):
        raise ValueError(
            "the model must give finite scores, got NaN or infinity; look at its weights, its inputs and its precision"
        )
    return found


@dataclass(frozen=True, eq=False)
class Attack:
    """Base of all attacks: finds x' with |x' - x| <= epsilon inside the box of valid images, by `perturb`.

    A new attack is a frozen dataclass (`eq=False`) that defines `run(ball, model, watch) -> AttackResult`: search in
    `ball` (its `x` are the clean inputs, `project` brings any point back), ask `model` for predictions, call
    `watch(step, total, info)` now and then, end with
    `return self.make_result(ball, model, points, success, objective, trace, gradients_spent)`.
    It may override `check_inputs(x)`, `choose_classes(target, logits)` and `make_model(x, target, logits)`, and set
    the class attributes `norms` and `unbounded` (whether epsilon may be infinite). `register("attack", name)` gives it
    a name. Attacks on maps are shorter to write as subclasses of `MapAttack`.

    Args:
        attacked: the method whose map is attacked, or the model, in evaluation mode, where no map is meant.
        epsilon: size of the ball around each input, in the units of the input.
        norm: "l2" or "linf", the norm of the ball.
        box: (low, high), numbers or tensors that broadcast over the inputs, such as (C, 1, 1); None for no box;
            "model" (default) for the box that the model knows of its images, if any.
        seed: of the random points, at least 0.

    Example:
        >>> found = mg.RandomNoise(net, epsilon=0.5, box=(0.0, 1.0)).perturb(x)
        >>> isinstance(found, mg.AttackResult), float(found.x.max()) <= 1
        (True, True)
    """

    norms: ClassVar[tuple[str, ...]] = NORMS
    unbounded: ClassVar[bool] = False

    attacked: Any
    epsilon: float
    norm: str = field(default="l2", kw_only=True)
    box: tuple[Any, Any] | str | None = field(default="model", kw_only=True)
    seed: int = field(default=0, kw_only=True)

    def __post_init__(self) -> None:
        limits.take_plain_numbers(self)
        check_epsilon(self.epsilon, self.unbounded)
        if hasattr(self.attacked, "forward_func"):
            validate.plain_score(self.attacked, type(self).__name__)
        validate.one_of("norm", self.norm, dict.fromkeys(self.norms))
        validate.at_least("seed", self.seed, 0)
        _check_box(self.box)

    def check_options(self, positive: str = "", not_negative: str = "", counts: str = "", flags: str = "") -> None:
        """Refuses options, named by words, of another type or sign; None passes where it is the default."""

        def check_flag(name: str, given: object) -> None:
            if not isinstance(given, bool):
                raise TypeError(f"{name} must be True or False, got {given!r}")

        checks: list[Callable[[str, Any], None]]
        checks = [validate.positive, validate.not_negative, partial(validate.at_least, least=1), check_flag]
        for names, check in zip((positive, not_negative, counts, flags), checks, strict=True):
            for name in names.split():
                given = getattr(self, name)
                if given is not None or getattr(type(self), name, "") is not None:  # the class holds the default
                    check(name, given)

    @property
    def network(self) -> Any:
        network = getattr(self.attacked, "forward_func", self.attacked)
        return network.forward if isinstance(network, Prepared) else network

    def perturb(self, inputs: Tensor, target: Target = None, *, callback: Watch | None = None) -> AttackResult:
        """Attacks each input. The model, the inputs and the global random state are left as they were.

        Args:
            inputs: floating-point batch (N, ...), as the model takes it, inside the box.
            target: class whose map is attacked, or that is attacked itself: a number, or one per image (N); default
                the predicted class.
            callback: called as `callback(step, total, info)` while the attack runs.

        Returns:
            The attacked inputs with what was reached, one entry per image.

        Raises:
            ValueError: if the inputs leave the box, a class does not exist, or the model is in training mode.
        """
        return self._attack(inputs, target, lambda ball, model: self.run(ball, model, callback or ignore_progress))

    def _attack(
        self, inputs: Tensor, target: Target, run: Callable[[Ball, AttackedModel], AttackResult]
    ) -> AttackResult:
        x = validate.one_input(inputs)
        validate.evaluating(self.network)
        with torch.inference_mode(False), torch.no_grad(), torch.random.fork_rng([x.device] if x.is_cuda else []):
            x = x.detach().clone(memory_format=torch.contiguous_format)
            self.check_inputs(x)
            ball = self._make_ball(x)
            logits = predict_logits(self.network, x)
            return run(ball, self.make_model(x, self.choose_classes(target, logits), logits))

    def run(self, ball: Ball, model: AttackedModel, watch: Watch) -> AttackResult:
        """The search itself; every attack defines it."""
        raise NotImplementedError(f"{type(self).__name__} must define run(ball, model, watch), as every attack")

    def check_inputs(self, x: Images) -> None:
        """Refuses inputs that the attack cannot take, before the model is called."""

    def choose_classes(self, target: Target, logits: Tensor) -> Int[Tensor, "n"]:
        """The attacked class of each image, given the logits of the clean inputs."""
        return read_classes(target, logits)

    def make_model(self, x: Images, target: Tensor, logits: Tensor) -> AttackedModel:
        return AttackedModel(self.network, target, logits.argmax(1))

    def make_result(
        self, ball: Ball, model: AttackedModel, at: Images, success: Flags, value: PerImage, trace: Tensor, cost: Counts
    ) -> AttackResult:
        """The result at the points `at`, with the size of the change and what the model predicts there."""
        delta = at - ball.x
        lengths = {kind: distance(delta, kind) for kind in NORMS}
        box = self._model_box or self.box  # what a pixel is only the model can tell; else the box must do
        if box is not None and not isinstance(box, str):
            low, high = (torch.as_tensor(end, device=delta.device, dtype=delta.dtype) for end in box)
            lengths |= {f"pixels_{kind}": distance(delta * (255 / (high - low)), kind) for kind in NORMS}
        return AttackResult(at, success, model.keeps_class(at), value, trace, cost, model.target, **lengths)

    @property
    def _model_box(self) -> tuple[Any, Any] | None:
        known = getattr(self.network, "box", None)
        return known if isinstance(known, tuple) else None

    def _make_ball(self, x: Images) -> Ball:
        bounds = self._model_box if isinstance(self.box, str) else self.box
        if bounds is None:
            return Ball(x, float(self.epsilon), self.norm)
        low, high = (torch.as_tensor(end, device=x.device).to(x.dtype) for end in bounds)
        _check_in_box(x, low, high)
        # rounding may put a white pixel a hair outside; the box then gives way to the image
        return Ball(x, float(self.epsilon), self.norm, torch.minimum(low, x), torch.maximum(high, x))


@dataclass(frozen=True, eq=False)
class ClassAttack(Attack):
    """Base of the attacks that change what the model predicts: away from the attacked class, or to `goal`.

    A subclass defines `run` as every `Attack` does; `model.is_fooled(classes)` says where predictions are what the
    attack wants.

    Args:
        goal: class that the model shall predict, or one per image; default any other than the attacked one.
        **options: those of `Attack`; of a method, its model is attacked.

    Example:
        >>> attack = mg.Pgd(net, epsilon=8 / 255, goal=3, steps=2)
        >>> isinstance(attack, mg.ClassAttack), attack.perturb(x).success.shape
        (True, torch.Size([2]))
    """

    goal: Any = field(default=None, kw_only=True)

    def make_model(self, x: Images, target: Tensor, logits: Tensor) -> AttackedModel:
        try:
            goal = None if self.goal is None else read_classes(self.goal, logits)
        except (TypeError, ValueError) as error:
            raise type(error)(str(error).replace("target", "goal")) from None
        return replace(super().make_model(x, target, logits), goal=goal)


def check_epsilon(epsilon: float, unbounded: bool = False) -> None:
    validate.number("epsilon", epsilon)
    if not 0 < epsilon < float("inf") and not (unbounded and epsilon == float("inf")):
        raise ValueError(
            "epsilon must be a positive finite number, the size of the change in the units of the input, "
            f"got {epsilon!r}"
        )


def read_classes(given: Any, logits: Tensor) -> Int[Tensor, "n"]:
    """One class per image; the predicted ones where none is given."""
    if given is None:
        return logits.argmax(1)
    wanted = validate.target(given, len(logits))
    if isinstance(wanted, tuple) or (isinstance(wanted, list) and isinstance(wanted[0], tuple)):
        raise ValueError(f"target must be a class, or one class per image, got {given!r} for {len(logits)} images")
    found = torch.as_tensor(wanted, device=logits.device)
    if found.is_floating_point() or found.ndim > 1 or (found.numel() not in (1, len(logits))):
        raise ValueError(f"target must be a class, or one class per image, got {given!r} for {len(logits)} images")
    found = found.long().reshape(-1).expand(len(logits)).contiguous()
    if bool(((found < 0) | (found >= logits.shape[1])).any()):
        raise ValueError(f"target must lie in 0..{logits.shape[1] - 1}, the classes of the model, got {given!r}")
    return found


def _check_box(given: Any) -> None:
    if given is None or (isinstance(given, str) and given == "model"):
        return
    if not isinstance(given, tuple | list) or len(given) != 2:
        raise ValueError(
            f"box must be (low, high), None for no box, or 'model' for what the model knows of its pictures, "
            f"got {given!r}"
        )
    try:
        low, high = (torch.as_tensor(end, dtype=torch.float64, device="cpu") for end in given)
        ordered = bool((low < high).all())
    except (TypeError, ValueError, RuntimeError):
        raise TypeError(f"box must hold two numbers, or two tensors of one shape, got {given!r}") from None
    if not ordered:
        raise ValueError(f"box must have low below high, got {given!r}")


def _check_in_box(x: Tensor, low: Tensor, high: Tensor) -> None:
    """An image outside the box could not be left where it is."""
    for end in (low, high):
        if end.ndim > x.ndim or any(a not in (1, b) for a, b in zip(end.shape[::-1], x.shape[::-1], strict=False)):
            raise ValueError(
                f"box must have ends that broadcast over the inputs {tuple(x.shape)}, got {tuple(end.shape)}; "
                "give numbers, or one value per channel as (C, 1, 1)"
            )
    slack = 1e-5 * (high - low)
    out = ((x < low - slack) | (x > high + slack)).flatten(1).any(1)
    if bool(out.any()):
        raise ValueError(
            f"every image must lie in the box, got {int(out.sum())} of {len(x)} outside: values from "
            f"{float(x.min()):.4g} to {float(x.max()):.4g}, box from {float(low.min()):.4g} to "
            f"{float(high.max()):.4g}. Give inputs as the model takes them, another box=(low, high), or box=None"
        )
