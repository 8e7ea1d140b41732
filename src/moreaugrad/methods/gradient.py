"""The simple gradient."""

from __future__ import annotations

from dataclasses import dataclass

from moreaugrad.methods.base import Method
from moreaugrad.methods.call import Call
from moreaugrad.types import Outcome


@dataclass(frozen=True, eq=False)
class Gradient(Method):
    """grad f_c(x), signed: how the class score answers to a small change of each entry."""

    @property
    def once(self) -> bool:
        return True

    @property
    def differentiable(self) -> bool:
        return True

    def compute(self, call: Call) -> Outcome:
        _, grad = call.score.value_and_grad(call.x)
        call.watch(1, 1, {})
        return Outcome(grad, gradients=call.each(1))
