"""The base of the attacks on the class: away from it, or to another one."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

from torch import Tensor

from moreaugrad.attacks.base import Attack, AttackedModel, read_classes
from moreaugrad.types import Images


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
