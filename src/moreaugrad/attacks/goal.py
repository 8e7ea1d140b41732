"""What attacks on the class share: which class is wanted, when that is reached, and how far off it is.

Holds no steps, and no map.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor

from moreaugrad import validate
from moreaugrad.attacks import checks as rules
from moreaugrad.attacks.base import Attack
from moreaugrad.attacks.victim import Victim, outputs
from moreaugrad.model.prepared import Engine
from moreaugrad.model.score import ClassScore, safe_rows
from moreaugrad.types import Flags, Images, PerImage


@dataclass(frozen=True, eq=False)
class Misled(Victim):
    """A model that is to leave the class `target`, or to name `goal`."""

    goal: Int[Tensor, "n"] | None = None

    @property
    def named(self) -> Int[Tensor, "n"]:
        """The class whose score is pushed: up where it is a goal, else down."""
        return self.target if self.goal is None else self.goal

    def take(self, which: Int[Tensor, "k"]) -> Misled:
        """The same for some of the images."""
        goal = None if self.goal is None else self.goal[which]
        return replace(self, target=self.target[which], clean=self.clean[which], goal=goal)

    def reached(self, predicted: Int[Tensor, "n"]) -> Flags:
        """Whether the model says what the attack wants."""
        return (predicted == self.named) == (self.goal is not None)

    def log_probability(self, x: Images) -> ClassScore:
        """log p of the named class, with its gradient."""
        return ClassScore(_engine(self.model, x), self.named, len(x), kind="logprob")

    def lead(self, x: Images) -> ClassScore:
        """The named class's logit less the largest other one, with its gradient."""

        def forward(rows: Images, classes: Int[Tensor, "r"]) -> PerImage:
            return leads(validate.output(self.model(rows), len(rows)).to(rows.dtype), classes)

        return ClassScore(_engine(forward, x), None, len(x), (self.named,))


@dataclass(frozen=True, eq=False)
class ClassAttack(Attack):
    """Changes what the model says: away from the class that is attacked, or to `goal`.

    `attacked` is a model, or a method, whose model is then meant.
    """

    goal: Any = field(default=None, kw_only=True)  # a class, or one per image; None: any other than the attacked one

    def _victim(self, x: Images, target: Tensor, clean: Tensor) -> Misled:
        goal = None if self.goal is None else rules.goals(self.goal, clean)
        return Misled(self.model, target, clean.argmax(1), goal=goal)


def leads(logits: Float[Tensor, "n k"], classes: Int[Tensor, "n"]) -> PerImage:
    """Z_t - max over j != t of Z_j: positive where t is predicted."""
    own = torch.nn.functional.one_hot(classes, logits.shape[1]).bool()
    mine: PerImage = logits.gather(1, classes[:, None]).squeeze(1)
    return mine - logits.masked_fill(own, -torch.inf).amax(1)


def said(victim: Victim, x: Images) -> Float[Tensor, "n k"]:
    """The logits in the precision of the images, without a gradient."""
    return outputs(victim.model, x).to(x.dtype)


def _engine(forward: Any, x: Images) -> Engine:
    engine = Engine(forward)
    engine.rows = safe_rows(x)
    return engine
