"""The simple gradient."""

from __future__ import annotations

from dataclasses import dataclass

from moreaugrad.methods.base import Call, Method
from moreaugrad.results import Explanation


@dataclass(frozen=True, eq=False)
class Gradient(Method):
    """The simple gradient of the class score, grad f_c(x), signed (Captum's `Saliency` without the absolute value).

    Use it as the cheapest map; it is noisy, and moves much with the input.

    Args:
        forward_func: a module in evaluation mode, or any callable that returns scores of shape (N, classes).
        **further: `score`, `precision`, `compile` and `hessian_step`, as in `Method`.

    Example:
        >>> mg.Gradient(net).attribute(x, target=3).shape
        torch.Size([2, 3, 16, 16])
    """

    @property
    def once(self) -> bool:
        return True

    @property
    def differentiable(self) -> bool:
        return True

    def compute(self, call: Call) -> Explanation:
        _, grad = call.score.value_and_grad(call.x)
        call.watch(1, 1, {})
        return Explanation(map=grad, gradients=call.each(1))
