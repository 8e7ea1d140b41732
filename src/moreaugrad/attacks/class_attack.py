"""The base of the attacks on the class: which class is wanted, whether it is reached, and how far off it is."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor

from moreaugrad import validate
from moreaugrad.attacks.base import Attack, AttackedModel, read_classes
from moreaugrad.model.score import ClassScore, make_score
from moreaugrad.types import Flags, Images, PerImage


@dataclass(frozen=True, eq=False)
class AttackedClassifier(AttackedModel):
    """A model that is to leave the class `target`, or to predict `goal`."""

    goal: Int[Tensor, "n"] | None = None

    @property
    def pushed(self) -> Int[Tensor, "n"]:
        """The class whose score is pushed: up where it is a goal, else down."""
        return self.target if self.goal is None else self.goal

    @property
    def sign(self) -> int:
        """1 where the score of the pushed class goes down, -1 where it goes up."""
        return 1 if self.goal is None else -1

    def take(self, which: Int[Tensor, "k"]) -> AttackedClassifier:
        """The same for some of the images."""
        goal = None if self.goal is None else self.goal[which]
        return replace(self, target=self.target[which], predicted=self.predicted[which], goal=goal)

    def is_fooled(self, predicted: Int[Tensor, "n"]) -> Flags:
        """Whether the model predicts what the attack wants."""
        return (predicted == self.pushed) == (self.goal is not None)

    def margin_score(self, x: Images) -> ClassScore:
        """The pushed class's logit less the largest other one, with its gradient."""

        def forward(rows: Images, classes: Int[Tensor, "r"]) -> PerImage:
            return margins(validate.output(self.network(rows), len(rows)).to(rows.dtype), classes)

        return make_score(forward, x, arguments=(self.pushed,))


@dataclass(frozen=True, eq=False)
class ClassAttack(Attack):
    """Base of the attacks that change what the model predicts: away from the attacked class, or to `goal`.

    A subclass defines `run` as every `Attack` does. The `model` it gets also knows `goal`; `model.is_fooled(classes)`
    says where predictions are what the attack wants.

    Args:
        goal: class that the model shall predict, or one per image; default any other than the attacked one.
        **options: those of `Attack`; of a method, its model is attacked.

    Example:
        >>> attack = mg.Pgd(net, epsilon=8 / 255, goal=3, steps=2)
        >>> isinstance(attack, mg.ClassAttack), attack.perturb(x).success.shape
        (True, torch.Size([2]))
    """

    goal: Any = field(default=None, kw_only=True)

    def make_model(self, x: Images, target: Tensor, logits: Tensor) -> AttackedClassifier:
        try:
            goal = None if self.goal is None else read_classes(self.goal, logits)
        except (TypeError, ValueError) as error:
            raise type(error)(str(error).replace("target", "goal")) from None
        return AttackedClassifier(self.network, target, logits.argmax(1), goal=goal)


def margins(logits: Float[Tensor, "n k"], classes: Int[Tensor, "n"]) -> PerImage:
    """Z_t - max over j != t of Z_j: positive where t is predicted."""
    own = torch.nn.functional.one_hot(classes, logits.shape[1]).bool()
    mine: PerImage = logits.gather(1, classes[:, None]).squeeze(1)
    return mine - logits.masked_fill(own, -torch.inf).amax(1)
