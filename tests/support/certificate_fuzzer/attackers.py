"""Attackers of a certificate: each proposes inputs of the ball, several at once. Every one is looked at and judged.

Ascents see everything: the map, its exact derivative, what is certified, and the dual gradient, which decides what
enters a sparse map.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

import moreaugrad as mg
from certificate_fuzzer.cases import Case

STRIDES = (2.0, 1.0, 0.5, 0.25, 0.1, 0.04)  # of an ascent, in radii of the ball
SMALL = 64  # up to so many entries the whole Jacobian of a map is at hand
MARGIN = 1e-4  # by which what an ascent wants must be more than reached, as a share of the map's length


@dataclass(frozen=True, eq=False)
class SolvedMaps:
    """Maps of some inputs, their dual gradients, and how well they were solved."""

    x: Tensor
    maps: Tensor
    dual: Tensor
    residual: Tensor  # |map - threshold(dual)|, by this search's own threshold

    def rows(self, part: Any) -> SolvedMaps:
        return SolvedMaps(self.x[part], self.maps[part], self.dual[part], self.residual[part])


@dataclass(frozen=True, eq=False)
class CertifiedCase:
    """A certificate, the case it is about, and what the attacker may spend."""

    case: Case
    certificate: Any
    draw: torch.Generator
    starts: int = 5  # of each aim of an ascent
    points: int = 100  # at random on the sphere
    steps: int = len(STRIDES)  # of an ascent

    def solve(self, x: Tensor, graph: bool = False) -> SolvedMaps:
        """The method's own maps, all rows at once."""
        method, target = self.certificate.method, self.case.target
        rows = len(x) if self.case.noise is None else len(x) * len(self.case.noise)
        maps = method.attribute(x, target, internal_batch_size=rows, create_graph=graph)
        with torch.enable_grad():
            at = x - self.case.rho * maps
            at = at if at.requires_grad else at.requires_grad_()
            (dual,) = torch.autograd.grad(self.case.score(at).sum(), at, create_graph=graph)
        residual = (maps - self.case.threshold(dual)).detach().flatten(1).norm(dim=1)
        return SolvedMaps(x.detach(), maps, dual, residual)

    def ball(self, directions: Tensor, radius: float | None = None) -> Tensor:
        """Points of the sphere of that radius (that of the certificate)."""
        lengths = directions.flatten(1).norm(dim=1).clamp_min(1e-300)
        radius = self.certificate.epsilon if radius is None else radius
        return self.case.x + directions * (radius / lengths).view(-1, *[1] * (directions.ndim - 1))

    def project(self, x: Tensor) -> Tensor:
        delta = x - self.case.x
        lengths = delta.flatten(1).norm(dim=1).clamp_min(1e-300)
        return self.case.x + delta * (self.certificate.epsilon / lengths).clamp_max(1).view(-1, *[1] * (x.ndim - 1))

    def directions(self, count: int) -> Tensor:
        found = torch.randn(count, *self.case.x.shape[1:], generator=self.draw, dtype=self.case.x.dtype)
        return found.to(self.case.x.device)

    @cached_property
    def home(self) -> SolvedMaps:
        """At x itself."""
        return self.solve(self.case.x)

    @cached_property
    def singular(self) -> Tensor:
        """In which directions the map moves most at x, the strongest first: right singular vectors of its Jacobian."""
        size = self.case.x.numel()
        x = self.case.x.expand(size, *self.case.x.shape[1:]).clone().requires_grad_()
        maps = self.solve(x, graph=True).maps.flatten(1)
        (jacobian,) = torch.autograd.grad(maps.diagonal().sum(), x)
        return torch.linalg.svd(jacobian.flatten(1))[2].view_as(x)


def sample_sphere(certified: CertifiedCase) -> Iterator[SolvedMaps]:
    yield certified.solve(certified.ball(certified.directions(certified.points)))


def follow_singular_vectors(certified: CertifiedCase) -> Iterator[SolvedMaps]:
    """Both ways along the strongest, and along mixtures of two."""
    ways = certified.singular[:6]
    mixed = torch.randn(4, min(2, len(ways)), generator=certified.draw, dtype=ways.dtype)
    yield certified.solve(certified.ball(torch.cat([ways, -ways, mixed @ ways[:2]])))


def topk_attack(certified: CertifiedCase) -> Iterator[SolvedMaps]:
    """The package's own attack; of all inputs that it tried only the one that it returns counts."""
    seed = int(torch.randint(2**31, (), generator=certified.draw))
    method, epsilon = certified.certificate.method, certified.certificate.epsilon
    attack = mg.ATTACKS["topk"](method, epsilon, steps=certified.steps, box=None, seed=seed)
    yield certified.solve(certified.project(attack.perturb(certified.case.x, certified.case.target).x))


# ---- ascents ----

# one number per row, made small; rows of odd number may want one more
Loss = Callable[[CertifiedCase, SolvedMaps, int], Tensor]


def _less(values: Tensor) -> Tensor:
    return values.clamp_min(0).square().sum(1)


def _distance(certified: CertifiedCase, solved: SolvedMaps, more: int) -> Tensor:
    return -(solved.maps - certified.certificate.map).flatten(1).norm(dim=1)


def _direction(certified: CertifiedCase, solved: SolvedMaps, more: int) -> Tensor:
    return torch.cosine_similarity(solved.maps.flatten(1), certified.certificate.map.flatten()[None])


def _overlap(certified: CertifiedCase, solved: SolvedMaps, more: int) -> Tensor:
    """The cheapest swap of as many members as may leave, or of one more than that."""
    found = certified.certificate
    members = found.top(found.map)
    count = min(found.topk.k - found.topk.overlap + more, found.topk.k, int((~members).sum()))
    sizes = ranked(certified, solved)
    lowest = sizes[:, members].sort(1).values[:, :count]
    highest = sizes[:, ~members].sort(1, descending=True).values[:, :count]
    level = (lowest.detach().mean(1, keepdim=True) + highest.detach().mean(1, keepdim=True)) / 2
    margin = MARGIN * found.change.norm
    return _less(lowest - level + margin) + _less(level + margin - highest)


def _vanish(certified: CertifiedCase, solved: SolvedMaps, more: int) -> Tensor:
    """As many of the non-zeros as may, or one more."""
    found, heights, active = certified.certificate, *_support(certified, solved)
    count = min(found.support.active, found.support.active - found.support.survivors + more)
    return _less(heights[:, active].sort(1).values[:, :count] + MARGIN * found.change.norm)


def _enter(certified: CertifiedCase, solved: SolvedMaps, more: int) -> Tensor:
    found, heights, active = certified.certificate, *_support(certified, solved)
    outside = heights[:, ~active].sort(1, descending=True).values[:, : found.support.entrants + more]
    return _less(MARGIN * found.change.norm - outside)


def _support(certified: CertifiedCase, solved: SolvedMaps) -> tuple[Tensor, Tensor]:
    threshold = certified.case.threshold
    return threshold.norms(solved.dual) - threshold.eta, threshold.norms(certified.certificate.map[None])[0] > 0


def ranked(certified: CertifiedCase, solved: SolvedMaps) -> Tensor:
    """What the certificate ranks, with a slope for units that are zero too: below zero by what they lack."""
    threshold, units = certified.case.threshold, certified.certificate.topk.units
    if units == "groups":
        return threshold.norms(solved.dual) - threshold.eta
    if units == "entries":
        return threshold.heights(solved.dual)
    heights = threshold.heights(solved.dual).view_as(solved.maps)
    alive = (solved.maps != 0).any(1)
    sums = solved.maps.square().sum(1)
    return torch.where(alive, torch.where(alive, sums, 1.0).sqrt(), heights.amax(1)).flatten(1)


AIMS: dict[str, Loss] = {"distance": _distance, "direction": _direction, "overlap": _overlap}
SUPPORT: dict[str, Loss] = {"vanish": _vanish, "enter": _enter}


def ascend(certified: CertifiedCase) -> Iterator[tuple[str, SolvedMaps]]:
    """All aims side by side, from random points; one row in two starts along what moves the map most."""
    aims = AIMS if certified.case.prior == "none" else AIMS | SUPPORT
    count, starts = len(aims) * certified.starts, certified.directions(len(aims) * certified.starts)
    if certified.case.x.numel() <= SMALL:
        starts[::2] += certified.singular[0] * starts[::2].flatten(1).norm(dim=1)[:, None]
    x = certified.ball(starts)
    for stride in (*STRIDES[: certified.steps], 0.0):
        last = stride == 0
        leaf = x.clone().requires_grad_(not last)
        solved = certified.solve(leaf, graph=not last)
        parts = [slice(i * certified.starts, (i + 1) * certified.starts) for i in range(len(aims))]
        if not last:
            pairs = zip(aims.values(), parts, strict=True)
            losses = [_rowwise(aim, certified, solved.rows(part)) for aim, part in pairs]
            (slope,) = torch.autograd.grad(torch.cat(losses).sum(), leaf)
            lengths = slope.flatten(1).norm(dim=1).clamp_min(1e-300).view(-1, *[1] * (x.ndim - 1))
            x = certified.project(x - stride * certified.certificate.epsilon * slope / lengths)
        bare = replace(solved, maps=solved.maps.detach(), dual=solved.dual.detach())
        for name, part in zip(aims, parts, strict=True):
            yield name, bare.rows(part)
    assert count == len(x)


def _rowwise(aim: Loss, certified: CertifiedCase, solved: SolvedMaps) -> Tensor:
    """Half of the rows want what is certified to be possible, the others one more."""
    even = torch.arange(len(solved.x), device=solved.x.device) % 2 == 0
    return torch.where(even, aim(certified, solved, 0), aim(certified, solved, 1))


ATTACKERS: dict[str, Callable[[CertifiedCase], Iterator[SolvedMaps]]] = {
    "sphere": sample_sphere,
    "singular": follow_singular_vectors,
    "topk": topk_attack,
}
