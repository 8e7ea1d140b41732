"""Projected gradient descent on the class: the standard attack on a model."""

from __future__ import annotations

import logging
from dataclasses import dataclass, field

import torch

from moreaugrad.attacks.base import AttackedModel, ClassAttack, predict_logits
from moreaugrad.attacks.descent import Ball, NormalizedSteps, Objective, SignSteps, descend
from moreaugrad.attacks.result import AttackResult
from moreaugrad.model.score import make_score
from moreaugrad.types import Flags, Images, PerImage, Watch

log = logging.getLogger("moreaugrad")


@dataclass(frozen=True, eq=False)
class Pgd(ClassAttack):
    """`x <- project(x + a sign(grad CE))`, for l2 `x <- project(x + a grad CE / |grad CE|)` (Madry et al., 2018).

    The standard attack on a prediction. Of all points that are misclassified (that reach the goal) it returns the one
    where the cross-entropy of the attacked class is largest (of the goal smallest); the objective is minus the former,
    or the latter.

    Args:
        norm: "linf" or "l2".
        steps: gradient steps of each start.
        step_size: a, in the units of the input; default epsilon/4.
        restarts: number of starts; the best point of all counts.
        random_start: whether to start at a uniform point of the ball; else the first start is the input.
        **options: those of `ClassAttack`.

    Example:
        >>> found = mg.Pgd(net, epsilon=8 / 255, steps=5, box=(0.0, 1.0)).perturb(x)
        >>> bool((found.linf <= 8.01 / 255).all())
        True
    """

    norm: str = field(default="linf", kw_only=True)
    steps: int = field(default=20, kw_only=True)
    step_size: float | None = field(default=None, kw_only=True)
    restarts: int = field(default=1, kw_only=True)
    random_start: bool = field(default=True, kw_only=True)

    def __post_init__(self) -> None:
        super().__post_init__()
        self.check_options(positive="step_size", counts="steps restarts", flags="random_start")

    def run(self, ball: Ball, model: AttackedModel, watch: Watch) -> AttackResult:
        score = make_score(self.network, ball.x, model.pushed, kind="logprob")

        def value(at: Images) -> PerImage:
            logits = predict_logits(self.network, at).to(at.dtype)
            found: PerImage = logits.log_softmax(1).gather(1, model.pushed[:, None]).squeeze(1)
            return model.sign * found

        def value_and_grad(at: Images) -> tuple[PerImage, Images]:
            found, grad = score.value_and_grad(at)
            return model.sign * found, model.sign * grad

        def is_fooled(at: Images) -> Flags:
            return model.is_fooled(model.predict(at))

        steps = SignSteps if self.norm == "linf" else NormalizedSteps
        rule = steps(self.step_size or self.epsilon / 4, self.random_start)
        objective = Objective(value, value_and_grad, is_fooled, start_is_valid=model.is_fooled(model.predicted))
        found = descend(ball, objective, rule, self.steps, self.restarts, self.seed, watch)
        if found.flat:
            log.warning(
                "the slope of the cross-entropy is zero everywhere: nothing was attacked. A network that is too sure "
                "of its class for float32 may be attacked in float64"
            )
        spent = torch.full_like(model.target, found.gradients)
        return self.make_result(ball, model, found.x, is_fooled(found.x), found.objective, found.trace, spent)
