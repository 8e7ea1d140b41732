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
from benchmarks.violation_cases import Case

STRIDES = (2.0, 1.0, 0.5, 0.25, 0.1, 0.04)  # of an ascent, in radii of the ball
SMALL = 64  # up to so many entries the whole Jacobian of a map is at hand
MARGIN = 1e-4  # by which what an ascent wants must be more than reached, as a share of the map's length


@dataclass(frozen=True, eq=False)
class Look:
    """Maps of some inputs, their dual gradients, and how well they were solved."""

    x: Tensor
    maps: Tensor
    dual: Tensor
    residual: Tensor  # |map - threshold(dual)|, by this search's own threshold

    def rows(self, part: Any) -> Look:
        return Look(self.x[part], self.maps[part], self.dual[part], self.residual[part])


@dataclass(frozen=True, eq=False)
class Duel:
    """A certificate, the case it is about, and what the attacker may spend."""

    case: Case
    certificate: Any
    draw: torch.Generator
    starts: int = 5  # of each aim of an ascent
    points: int = 100  # at random on the sphere
    steps: int = len(STRIDES)  # of an ascent

    def look(self, x: Tensor, graph: bool = False) -> Look:
        """The method's own maps, all rows at once."""
        method, target = self.certificate.method, self.case.target
        rows = len(x) if self.case.noise is None else len(x) * len(self.case.noise)
        maps = method.attribute(x, target, internal_batch_size=rows, create_graph=graph)
        with torch.enable_grad():
            at = x - self.case.rho * maps
            at = at if at.requires_grad else at.requires_grad_()
            (dual,) = torch.autograd.grad(self.case.score(at).sum(), at, create_graph=graph)
        residual = (maps - self.case.threshold(dual)).detach().flatten(1).norm(dim=1)
        return Look(x.detach(), maps, dual, residual)

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
    def home(self) -> Look:
        """At x itself."""
        return self.look(self.case.x)

    @cached_property
    def singular(self) -> Tensor:
        """In which directions the map moves most at x, the strongest first: right singular vectors of its Jacobian."""
        size = self.case.x.numel()
        x = self.case.x.expand(size, *self.case.x.shape[1:]).clone().requires_grad_()
        maps = self.look(x, graph=True).maps.flatten(1)
        (jacobian,) = torch.autograd.grad(maps.diagonal().sum(), x)
        return torch.linalg.svd(jacobian.flatten(1))[2].view_as(x)


def on_the_sphere(duel: Duel) -> Iterator[Look]:
    yield duel.look(duel.ball(duel.directions(duel.points)))


def singular_directions(duel: Duel) -> Iterator[Look]:
    """Both ways along the strongest, and along mixtures of two."""
    ways = duel.singular[:6]
    mixed = torch.randn(4, min(2, len(ways)), generator=duel.draw, dtype=ways.dtype)
    yield duel.look(duel.ball(torch.cat([ways, -ways, mixed @ ways[:2]])))


def topk_attack(duel: Duel) -> Iterator[Look]:
    """The package's own attack; of all that it looks at only the input that it returns counts."""
    seed = int(torch.randint(2**31, (), generator=duel.draw))
    method, epsilon = duel.certificate.method, duel.certificate.epsilon
    attack = mg.ATTACKS["topk"](method, epsilon, steps=duel.steps, box=None, seed=seed)
    yield duel.look(duel.project(attack.perturb(duel.case.x, duel.case.target).x))


# ---- ascents ----

Loss = Callable[[Duel, Look, int], Tensor]  # one number per row, made small; rows of odd number may want one more


def _less(values: Tensor) -> Tensor:
    return values.clamp_min(0).square().sum(1)


def _distance(duel: Duel, look: Look, more: int) -> Tensor:
    return -(look.maps - duel.certificate.map).flatten(1).norm(dim=1)


def _direction(duel: Duel, look: Look, more: int) -> Tensor:
    return torch.cosine_similarity(look.maps.flatten(1), duel.certificate.map.flatten()[None])


def _overlap(duel: Duel, look: Look, more: int) -> Tensor:
    """The cheapest swap of as many members as may leave, or of one more than that."""
    found = duel.certificate
    members = found.top(found.map)
    count = min(found.k - found.overlap + more, found.k, int((~members).sum()))
    sizes = ranked(duel, look)
    lowest = sizes[:, members].sort(1).values[:, :count]
    highest = sizes[:, ~members].sort(1, descending=True).values[:, :count]
    level = (lowest.detach().mean(1, keepdim=True) + highest.detach().mean(1, keepdim=True)) / 2
    margin = MARGIN * found.norm
    return _less(lowest - level + margin) + _less(level + margin - highest)


def _vanish(duel: Duel, look: Look, more: int) -> Tensor:
    """As many of the non-zeros as may, or one more."""
    found, heights, active = duel.certificate, *_support(duel, look)
    count = min(found.active, found.active - found.survivors + more)
    return _less(heights[:, active].sort(1).values[:, :count] + MARGIN * found.norm)


def _enter(duel: Duel, look: Look, more: int) -> Tensor:
    found, heights, active = duel.certificate, *_support(duel, look)
    return _less(MARGIN * found.norm - heights[:, ~active].sort(1, descending=True).values[:, : found.entrants + more])


def _support(duel: Duel, look: Look) -> tuple[Tensor, Tensor]:
    threshold = duel.case.threshold
    return threshold.norms(look.dual) - threshold.eta, threshold.norms(duel.certificate.map[None])[0] > 0


def ranked(duel: Duel, look: Look) -> Tensor:
    """What the certificate ranks, with a slope for units that are zero too: below zero by what they lack."""
    threshold, units = duel.case.threshold, duel.certificate.units
    if units == "groups":
        return threshold.norms(look.dual) - threshold.eta
    if units == "entries":
        return threshold.heights(look.dual)
    heights = threshold.heights(look.dual).view_as(look.maps)
    alive = (look.maps != 0).any(1)
    sums = look.maps.square().sum(1)
    return torch.where(alive, torch.where(alive, sums, 1.0).sqrt(), heights.amax(1)).flatten(1)


AIMS: dict[str, Loss] = {"distance": _distance, "direction": _direction, "overlap": _overlap}
SUPPORT: dict[str, Loss] = {"vanish": _vanish, "enter": _enter}


def ascents(duel: Duel) -> Iterator[tuple[str, Look]]:
    """All aims side by side, from random points; one row in two starts along what moves the map most."""
    aims = AIMS if duel.case.prior == "none" else AIMS | SUPPORT
    count, starts = len(aims) * duel.starts, duel.directions(len(aims) * duel.starts)
    if duel.case.x.numel() <= SMALL:
        starts[::2] += duel.singular[0] * starts[::2].flatten(1).norm(dim=1)[:, None]
    x = duel.ball(starts)
    for stride in (*STRIDES[: duel.steps], 0.0):
        last = stride == 0
        leaf = x.clone().requires_grad_(not last)
        look = duel.look(leaf, graph=not last)
        parts = [slice(i * duel.starts, (i + 1) * duel.starts) for i in range(len(aims))]
        if not last:
            losses = [_rowwise(aim, duel, look.rows(part)) for aim, part in zip(aims.values(), parts, strict=True)]
            (slope,) = torch.autograd.grad(torch.cat(losses).sum(), leaf)
            lengths = slope.flatten(1).norm(dim=1).clamp_min(1e-300).view(-1, *[1] * (x.ndim - 1))
            x = duel.project(x - stride * duel.certificate.epsilon * slope / lengths)
        bare = replace(look, maps=look.maps.detach(), dual=look.dual.detach())
        for name, part in zip(aims, parts, strict=True):
            yield name, bare.rows(part)
    assert count == len(x)


def _rowwise(aim: Loss, duel: Duel, look: Look) -> Tensor:
    """Half of the rows want what is certified to be possible, the others one more."""
    return torch.where(torch.arange(len(look.x), device=look.x.device) % 2 == 0, aim(duel, look, 0), aim(duel, look, 1))


ATTACKERS: dict[str, Callable[[Duel], Iterator[Look]]] = {
    "sphere": on_the_sphere,
    "singular": singular_directions,
    "topk": topk_attack,
}
