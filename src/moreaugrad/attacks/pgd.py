"""Projected gradient descent on the class: the standard attack on a model, led by the cross-entropy."""

from __future__ import annotations

import logging
from dataclasses import dataclass, field

import torch

from moreaugrad import validate
from moreaugrad.attacks.base import Attack
from moreaugrad.attacks.descent import Aim, LengthSteps, Rule, SignSteps, descend
from moreaugrad.attacks.goal import ClassAttack, Misled, said
from moreaugrad.attacks.result import Attacked
from moreaugrad.attacks.space import Space
from moreaugrad.attacks.victim import Victim
from moreaugrad.types import Flags, Images, PerImage, Watch

log = logging.getLogger("moreaugrad")


@dataclass(frozen=True, eq=False)
class Pgd(ClassAttack):
    """x <- project(x + a sign(grad CE)), for l2 x <- project(x + a grad CE / |grad CE|); with a goal CE goes down.

    Among all points that are misclassified (that reach the goal), the one where the cross-entropy of the attacked
    class is largest (of the goal smallest). The objective is minus the former, or the latter.
    """

    norm: str = field(default="linf", kw_only=True)
    steps: int = field(default=20, kw_only=True)
    step_size: float | None = field(default=None, kw_only=True)  # a; None: epsilon / 4
    restarts: int = field(default=1, kw_only=True)
    random_start: bool = field(default=True, kw_only=True)  # uniform in the ball; else the first start is the input

    def __post_init__(self) -> None:
        Attack.__post_init__(self)
        validate.at_least("steps", self.steps, 1)
        validate.at_least("restarts", self.restarts, 1)
        validate.flag("random_start", self.random_start)
        if self.step_size is not None:
            validate.positive("step_size", self.step_size)

    def _moves(self) -> Rule:
        length = self.step_size or self.epsilon / 4
        return (SignSteps if self.norm == "linf" else LengthSteps)(length, bool(self.random_start))

    def run(self, space: Space, victim: Victim, watch: Watch) -> Attacked:
        assert isinstance(victim, Misled)
        score, sign = victim.log_probability(space.x), 1 if victim.goal is None else -1

        def value(at: Images) -> PerImage:
            found: PerImage = said(victim, at).log_softmax(1).gather(1, victim.named[:, None]).squeeze(1)
            return sign * found

        def slope(at: Images) -> tuple[PerImage, Images]:
            found, grad = score.value_and_grad(at)
            return sign * found, sign * grad

        def valid(at: Images) -> Flags:
            return victim.reached(victim.predict(at))

        aim = Aim(value, slope, valid, begun=victim.reached(victim.clean))
        found = descend(space, aim, self._moves(), self.steps, self.restarts, self.seed, watch)
        if found.flat:
            log.warning(
                "the slope of the cross-entropy is zero everywhere: nothing was attacked. A network that is too sure "
                "of its class for float32 may be attacked in float64"
            )
        spent = torch.full_like(victim.target, found.slopes)
        return self._result(space, victim, found.x, valid(found.x), found.objective, found.trace, spent)
