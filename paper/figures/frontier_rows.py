"""One block of images of the frontier: attack points, and every statistic of the gradients at each of them.

All statistics of one setting come from the same gradients, so judging one of them judges all.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import product
from typing import Any

import torch
from torch import Tensor

import moreaugrad as mg
from moreaugrad.envelope.priors import find_level
from moreaugrad.model.statistics import REPORTED
from paper.data.datasets import Sample
from paper.data.records import Line

STATISTICS, SPARSE, SPARSIFIED = "statistics", "sparse_moreau", "sparsified_smoothgrad"  # what a setting judges
RELAXED = "relaxed"  # the published form of Sparsified SmoothGrad, and its own slope
DENSE = 1.0
SLOPES = ("mean", "square", "log_square", RELAXED)  # that lead attacks
JUDGE, ATTACKER = 0, 1  # seeds: an attack does not know the noise of the judge
IDENTITY = ("image", "key", "method", "noise", "rho", "statistic", "share", "epsilon")
MOVED = tuple(f"moved_{slope}" for slope in SLOPES)
COLUMNS = (*IDENTITY, "insertion", "deletion", "other", *MOVED)


@dataclass(frozen=True, slots=True)
class Setting:
    """How the gradients are taken: the noise relative to the image's range, rho, and which maps are made of them."""

    noise: float
    rho: float
    method: str = STATISTICS

    def kinds(self, shares: tuple[float, ...]) -> Iterator[tuple[str, float]]:
        """The statistics, and the shares of entries that they are thresholded to."""
        if self.method == SPARSE:  # the prior acts in the solve, so each share is a solve of its own
            return iter([("mean", 0.1)])
        return product(REPORTED if self.method == STATISTICS else (RELAXED,), shares)


@dataclass(frozen=True)
class Terms:
    """What is measured and at what cost; the same for all methods."""

    counts: Mapping[str, int]  # images of each data set that are attacked
    clean: Mapping[str, int]  # further ones, whose maps with a tenth of the entries are judged without an attack
    rhos: Mapping[str, int]  # the first of the attacked ones, at which rho is varied
    grid: tuple[tuple[float, float], ...]  # noise and rho there
    settings: tuple[Setting, ...]
    epsilons: Mapping[str, tuple[float, ...]]
    slopes: tuple[tuple[float, str], ...]  # noise of the attacker's gradients, and whose slope it follows
    budget: int  # gradients of a judged map
    attack_budget: int  # of a map inside an attack
    steps: int
    points: int  # of the curves of insertion and deletion
    block: Mapping[str, int]  # images that are measured together, at least two
    shares: tuple[float, ...] = (DENSE, 0.1, 0.05)
    restarts: int = 1
    sizes: Mapping[str, int] | None = None  # side of the network's input, where that is not its own
    precision: Mapping[str, str] | None = None
    rows: int = 64  # that reach the network at once for insertion and deletion

    def with_rhos(self, name: str) -> Terms:
        """The terms of a grid of noise and rho on one data set, for the middle size of the attack."""
        sizes = self.epsilons[name]
        return replace(
            self,
            settings=tuple(Setting(*each) for each in self.grid),
            epsilons={**self.epsilons, name: sizes[len(sizes) // 2 :][:1]},
            shares=(0.1,),
        )

    def without_attacks(self) -> Terms:
        """The terms of the further images: an attack of size 0, and the maps that the goal speaks of."""
        settings = tuple(each for each in self.settings if each.rho == 0 or each.method != STATISTICS)
        nothing: Mapping[str, tuple[float, ...]] = dict.fromkeys(self.epsilons, (0.0,))
        return replace(self, settings=settings, epsilons=nothing, slopes=(), shares=(0.1,))


def identify(found: Sample, some: slice, terms: Terms) -> list[Line]:
    """The rows of a block, as far as they are known before anything is measured."""
    return [
        {"image": image, "key": found.keys[image], "method": each.method, "noise": each.noise, "rho": each.rho}
        | {"statistic": statistic, "share": share, "epsilon": epsilon}
        for each in terms.settings
        for statistic, share in each.kinds(terms.shares)
        for epsilon in terms.epsilons[found.name]
        for image in range(some.start, some.stop)
    ]


class Block:
    """Images that are measured together, with the points that attacks have found for them."""

    def __init__(self, found: Sample, some: slice, terms: Terms, hessian_step: float) -> None:
        self.found, self.some, self.terms, self.step = found, some, terms, hessian_step
        self.x = found.x[some]
        self.model = mg.prepare(found.classifier, precision=(terms.precision or {}).get(found.name))
        with torch.no_grad():
            self.target = found.classifier(self.x).argmax(1)
        self.points: dict[tuple[float, str, float], Tensor] = {}

    def measure(self) -> list[Line]:
        """Every row of the block, in the order of `identify`."""
        self._attack()
        rows: list[Line] = []
        for each in self.terms.settings:
            rows += self._judge(each)
        return [known | row for known, row in zip(identify(self.found, self.some, self.terms), rows, strict=True)]

    def _attack(self) -> None:
        terms = self.terms
        for (noise, slope), epsilon in product(terms.slopes, terms.epsilons[self.found.name]):
            options: dict[str, Any] = {"noise_level": noise, "samples": terms.attack_budget, "seed": ATTACKER}
            options["hessian_step"] = self.step
            if slope == RELAXED:
                method: Any = mg.SparsifiedSmoothGrad(self.model, **options)
            else:
                method = mg.SmoothGrad(self.model, statistic=slope, **options)
            attack = mg.TopK(method, epsilon, steps=terms.steps, restarts=terms.restarts, surrogate=None, seed=ATTACKER)
            self.points[noise, slope, epsilon] = attack.perturb(self.x, self.target).x

    def _near(self, setting: Setting) -> list[tuple[float, str]]:
        """Whose points a setting is judged at: those of the nearest noise, one for each slope."""
        found = {}
        for slope in dict.fromkeys(slope for _, slope in self.terms.slopes):
            levels = [noise for noise, other in self.terms.slopes if other == slope]
            found[slope] = min(levels, key=lambda noise: abs(noise - setting.noise))
        return [(noise, slope) for slope, noise in found.items()]

    def _judge(self, setting: Setting) -> list[Line]:
        kinds, epsilons = list(setting.kinds(self.terms.shares)), self.terms.epsilons[self.found.name]
        clean = self._maps(setting, self.x)
        moved: dict[tuple[str, float], dict[tuple[str, float], Tensor]] = {}
        for (noise, slope), epsilon in product(self._near(setting), epsilons):  # none without an attack
            there = self._maps(setting, self.points[noise, slope, epsilon])
            moved[slope, epsilon] = {kind: mg.normalised_distance(clean[kind], there[kind]) for kind in kinds}
        rows = []
        for kind in kinds:
            facts = self._faithfulness(clean[kind]) | {"other": self._other(clean[kind])}
            for epsilon in epsilons:
                ways = {f"moved_{slope}": far[kind] for (slope, size), far in moved.items() if size == epsilon}
                columns = {name: each.tolist() for name, each in (facts | ways).items()}
                rows += [{name: column[place] for name, column in columns.items()} for place in range(len(self.x))]
        return rows

    def _maps(self, setting: Setting, x: Tensor) -> dict[tuple[str, float], Tensor]:
        """The maps of every kind at some points, under the judge's noise."""
        options: dict[str, Any] = {"noise_level": setting.noise, "seed": JUDGE}
        budget = self.terms.budget
        if setting.method == SPARSE:
            sparse = mg.SparseMoreauGrad(self.model, setting.rho, sparsity=0.1, budget=budget, **options)
            return {("mean", 0.1): sparse.attribute(x, self.target)}
        if setting.method == SPARSIFIED:
            dense = {RELAXED: mg.SparsifiedSmoothGrad(self.model, samples=budget, **options).attribute(x, self.target)}
        elif setting.rho == 0:
            dense = mg.SmoothGrad(self.model, samples=budget, **options).explain(x, self.target).statistics or {}
        else:
            found = mg.MoreauGrad(self.model, setting.rho, budget=budget, **options).explain(x, self.target)
            dense = (found.statistics or {}) | {"mean": found.map}
        return {(name, share): threshold(dense[name], share) for name, share in setting.kinds(self.terms.shares)}

    def _faithfulness(self, maps: Tensor) -> dict[str, Tensor]:
        pixels = maps.shape[-2] * maps.shape[-1]
        options = {"step": -(-pixels // (self.terms.points - 1)), "seeds": (0,), "internal_batch_size": self.terms.rows}
        of = (maps, self.x, self.found.classifier, self.target)
        return {name: mg.METRICS[name](*of, **options) for name in ("insertion", "deletion")}

    def _other(self, maps: Tensor) -> Tensor:
        """How far the map of each image is from those of the others of its block: the level of chance."""
        turns = range(1, len(maps))
        return torch.stack([mg.normalised_distance(maps, maps.roll(turn, 0)) for turn in turns]).mean(0)


def threshold(dense: Tensor, share: float) -> Tensor:
    """The map, soft-thresholded so that a share of its entries is left."""
    if share == DENSE:
        return dense
    prior = mg.L1()
    return prior.prox(dense, find_level(prior, dense, share))
