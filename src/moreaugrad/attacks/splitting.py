"""Two splittings (ADMM) of small penalised problems: f is known by its gradient, all else by its prox.

Each copy of z carries one part of the objective, and a scaled dual that pulls it back to z. Knows no model.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from moreaugrad.envelope.priors import Group
from moreaugrad.types import Images


@dataclass(frozen=True, slots=True)
class State:
    """Where a splitting stands."""

    z: Images  # where the gradient is taken
    duals: tuple[Images, ...]
    copies: tuple[Images, ...]  # of z; all are equal at the solution, and the last is the sparse one


class Splitting(Protocol):
    """A problem with its way of solving it."""

    def start(self, z: Images) -> State: ...

    def step(self, at: State, grad: Images, k: int) -> State:
        """The next state, from the gradient of f at z; k counts from 0."""
        ...


@dataclass(frozen=True, eq=False)
class GroupSparse:
    """min over z of f(z) + gamma |z|^2 + tau sum_g |z_g|_2, low <= z <= high: three copies, delta, w and y.

    `official` counts delta twice, as the published code does, which comes to twice the gamma.
    """

    group: Group
    low: Tensor
    high: Tensor
    gamma: float
    tau: float
    rho: float  # how strongly copies are tied to z
    alpha: float  # z moves by about 1 / (alpha sqrt(k + 1) + 3 rho) of the gradient
    official: bool = False

    def start(self, z: Images) -> State:
        return State(z, (torch.zeros_like(z),) * 3, (z,) * 3)

    def step(self, at: State, grad: Images, k: int) -> State:
        (u, s, v), z, rho = at.duals, at.z, self.rho
        delta = rho / (rho + 2 * self.gamma) * (z - u)
        w = (z - s).clamp(self.low, self.high)
        y = self.group.prox(z - v, z.new_full((len(z),), self.tau / rho))
        twice, eta = 2 if self.official else 1, self.alpha * math.sqrt(k + 1)
        z = (eta * z + rho * (twice * (delta + u) + (w + s) + (y + v)) - grad) / (eta + (twice + 2) * rho)
        return State(z, (u + delta - z, s + w - z, v + y - z), (delta, w, y))


@dataclass(frozen=True, eq=False)
class Within:
    """min over z of f(z) + gamma |z|^2, low <= z <= high, z zero outside `support`: one copy."""

    support: Images  # ones and zeros
    low: Tensor
    high: Tensor
    gamma: float
    rho: float
    alpha: float

    def start(self, z: Images) -> State:
        return State(z, (torch.zeros_like(z),), (z,))

    def step(self, at: State, grad: Images, k: int) -> State:
        (u,), z, rho = at.duals, at.z, self.rho
        delta = (rho / (rho + 2 * self.gamma) * (z - u)).clamp(self.low, self.high) * self.support
        z = (self.alpha * z + rho * (delta + u) - grad * self.support) / (self.alpha + rho)
        return State(z, (u + delta - z,), (delta,))
