"""A prior from outside the package, as a user would write one."""

from dataclasses import dataclass

import torch

import moreaugrad as mg


@mg.register("prior", "elastic_net")
@dataclass(frozen=True)
class ElasticNet:
    """|delta|_1 + ridge/2 |delta|^2: keeps single entries, and shrinks the large ones."""

    ridge: float = 0.1
    convex = True

    def value(self, delta):
        return (delta.abs() + self.ridge / 2 * delta.square()).flatten(1).sum(1)

    def prox(self, delta, amount):
        bound = amount.view(-1, *[1] * (delta.ndim - 1))
        return (delta - delta.clamp(-bound, bound)) / (1 + bound * self.ridge)

    def units(self, delta):
        return delta.abs().flatten(1)

    def active(self, delta):
        return delta != 0

    def hessian_product(self, delta, q):
        return torch.where(delta != 0, self.ridge * q, 0.0)

    def stiffness(self, delta):
        return self.ridge * (delta != 0).to(delta)
