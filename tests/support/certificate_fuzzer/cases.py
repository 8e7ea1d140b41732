"""A case of the search for violations: a score of known curvature, a map of it, an input and a ball around it.

Cases are built backwards, from the dual gradient at the minimiser, so that the map at the input is known exactly.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import torch
from torch import Tensor

import moreaugrad as mg
from moreaugrad.certificates import theory as cert

PRIORS = ("none", "l1", "group")
Choice = TypeVar("Choice")


@dataclass(frozen=True, eq=False)
class Threshold:
    """The prior as this search knows it, independent of the package: units (labels of the entries), and their weight.

    A unit of the dual gradient G keeps the share 1 - eta/|G_S|; `heights` are below zero where it is dropped.
    """

    labels: Tensor  # the unit of each entry of a flattened map; of no prior and of L1 each entry is one
    eta: float  # 0: no prior

    def norms(self, maps: Tensor) -> Tensor:
        """The size of each unit, rows by units; its derivative at zero is zero."""
        flat = maps.flatten(1)
        sums = flat.new_zeros(len(flat), int(self.labels.max()) + 1).index_add(1, self.labels, flat.square())
        return torch.where(sums > 0, sums, 1.0).sqrt() * (sums > 0)

    def heights(self, dual: Tensor) -> Tensor:
        """|G_i| (1 - eta/|G_S|) of each entry: |map|, and below zero how far a dropped entry is from being kept."""
        if self.eta == 0:
            return dual.flatten(1).abs()
        sizes = self.norms(dual).clamp_min(torch.finfo(dual.dtype).tiny)
        return dual.flatten(1).abs() * (1 - self.eta / sizes)[:, self.labels]

    def __call__(self, dual: Tensor) -> Tensor:
        """The map that belongs to a dual gradient."""
        flat = dual.flatten(1)
        return (flat.sign() * self.heights(dual).clamp_min(0)).view_as(dual)


@dataclass(frozen=True, eq=False)
class Case:
    """Curvatures of the score lie in [-lam, beta]; its map is attacked within epsilon of x."""

    family: str
    kind: str
    prior: str
    method: Any
    threshold: Threshold
    x: Tensor  # a batch of one
    lam: float
    beta: float
    epsilon: float
    k: int  # of the top units that are compared
    units: str = "entries"  # what is ranked; or groups, pixels
    target: int = 0
    map: Tensor | None = None  # the exact map at x, where the case was built around it
    noise: Tensor | None = None  # frozen, over which the score is averaged

    @property
    def rho(self) -> float:
        return float(self.method.rho)

    @property
    def lipschitz(self) -> float:
        return constant(self.rho, self.lam, self.beta, self.prior)

    def score(self, at: Tensor) -> Tensor:
        """What is explained."""
        network = self.method.forward_func
        if self.noise is None:
            return network(at)[:, self.target]
        return torch.stack([network(at + each)[:, self.target] for each in self.noise]).mean(0)


def constant(rho: float, lam: float, beta: float, prior: str) -> float:
    """The sharp constant of the map."""
    return (cert.lip_vanilla if prior == "none" else cert.lip_prox)(rho, lam, beta)


def method_of(score: Any, rho: float, prior: str, threshold: Threshold, **options: Any) -> Any:
    """The package's map of that score, solved as far as float64 goes."""
    options = {"rho": rho, "smoothing": None, "budget": 1_500, **options}
    if prior == "none":
        return mg.MoreauGrad(score, **options)
    if prior == "l1":
        return mg.SparseMoreauGrad(score, eta=threshold.eta, **options)
    return mg.GroupSparseMoreauGrad(score, eta=threshold.eta, groups=threshold.labels, **options)


def units(prior: str, size: int, draw: torch.Generator) -> Tensor:
    """Labels of the entries: groups have two or three, in no order."""
    if prior != "group":
        return torch.arange(size)
    return torch.randperm(size, generator=draw) % max(1, round(size / uniform(2, 3, draw)))


def dividing(dual: Tensor, labels: Tensor, draw: torch.Generator) -> float:
    """An eta that keeps some units of this dual gradient and drops others, at times by a hair."""
    sizes = Threshold(labels, 0.0).norms(dual)[0].sort().values
    if len(sizes) == 1:
        return float(sizes[0]) / 2
    place = int(torch.randint(len(sizes) - 1, (), generator=draw))
    share = pick((0.02, 0.5, 0.5, 0.98), draw)
    return float(sizes[place] + share * (sizes[place + 1] - sizes[place]))


def ranking(prior: str, found: Tensor, threshold: Threshold, draw: torch.Generator) -> dict[str, Any]:
    """What to rank, entries or groups, and how many to compare: none that is zero, and not all."""
    ranked = pick(("entries", "groups"), draw) if prior == "group" else "entries"
    sizes = threshold.norms(found)[0] if ranked == "groups" else found[0].abs()
    most = max(1, min(int((sizes > 0).sum()), len(sizes) - 1))
    return {"units": ranked, "k": int(torch.randint(1, most + 1, (), generator=draw))}


def make_case(
    names: tuple[str, str, str],
    score: Any,
    at: Tensor,
    dual: Tensor,
    threshold: Threshold,
    curvatures: tuple[float, float, float],
    epsilon: float,
    draw: torch.Generator,
) -> Case:
    """The case (family, kind, prior) whose minimiser x + delta is `at`; curvatures: rho, lam, beta."""
    (rho, lam, beta), found = curvatures, threshold(dual)
    ranked = ranking(names[2], found, threshold, draw)
    method, x = method_of(score, rho, names[2], threshold), at + rho * found
    return Case(*names, method, threshold, x, lam, beta, epsilon, map=found, **ranked)


def uniform(low: float, high: float, draw: torch.Generator) -> float:
    return low + (high - low) * float(torch.rand((), generator=draw))


def pick(options: Sequence[Choice], draw: torch.Generator) -> Choice:
    return options[int(torch.randint(len(options), (), generator=draw))]


def normal(*shape: int, draw: torch.Generator) -> Tensor:
    return torch.randn(*shape, generator=draw, dtype=torch.float64)
