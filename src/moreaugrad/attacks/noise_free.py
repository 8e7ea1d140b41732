"""MoreauGrad as the published attack sees it: the gradient at the solution, without the noise."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any

import torch
from torch import Tensor

from moreaugrad.methods.gradient import Gradient
from moreaugrad.methods.moreau import MoreauGrad
from moreaugrad.results import Explanation
from moreaugrad.types import Counts, Images, Target


@dataclass(frozen=True, eq=False)
class NoiseFree:
    """grad f(x + delta*) on the entries that the prior keeps; delta*, solved under noise, counts as a constant.

    What `explain` returns stays the method's own map, of which an attack takes what it fixes at the clean image.
    """

    method: MoreauGrad

    def explain(self, x: Images, target: Target) -> Explanation:
        return self.method.explain(x, target=target)

    def attribute(self, x: Images, target: Target, create_graph: bool = False) -> Tensor:
        found: Any = self.method.explain(x.detach(), target=target)
        shared = {each.name: getattr(self.method, each.name) for each in fields(Gradient) if each.init}
        grad = Gradient(**shared).attribute(x + found.delta, target=target, create_graph=create_graph)
        return torch.where(found.delta != 0, grad, 0.0)

    def slope_cost(self, gradients: Counts) -> Counts:
        """The gradient and its derivative, beside the solution."""
        return torch.full_like(gradients, 4)


def check_noise_free(method: object) -> None:
    """Refuses a method without a displacement to take the gradient at."""
    if not isinstance(method, MoreauGrad) or method.takes_statistic:
        came = type(method).__name__
        if isinstance(method, MoreauGrad):
            came += f" with statistic={method.statistic!r} and rho={method.rho}"
        raise ValueError(
            "noise_free=True takes the gradient at the solution of MoreauGrad, so the attacked method must be one of "
            f"its family with statistic='mean' and rho > 0, got {came}; leave noise_free out"
        )
