"""The structured attack: the smallest change of the class that touches few groups of entries."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

import torch
from torch import Tensor

from moreaugrad import validate
from moreaugrad.attacks.base import Attack
from moreaugrad.attacks.goal import ClassAttack, Misled, leads, said
from moreaugrad.attacks.result import Attacked
from moreaugrad.attacks.space import Space
from moreaugrad.attacks.splitting import GroupSparse, Splitting, Within
from moreaugrad.attacks.victim import Victim
from moreaugrad.batch import norm, spread
from moreaugrad.envelope.groups import check_groups
from moreaugrad.envelope.priors import Group
from moreaugrad.model.score import ClassScore
from moreaugrad.types import Flags, Images, PerImage, Watch

POLISH = 100  # by how much gamma is lowered where only the support is left to change
FLOOR = 0.03  # share of the smallest entries that leave the support


@dataclass(frozen=True, eq=False)
class Structured(ClassAttack):
    """min over z of c l(x + z) + gamma |z|^2 + tau sum_g |z_g|_2, in the box and |z|_inf <= epsilon.

    l is the hinge of the margin, l = max(0, Z_t - max other Z + confidence), or the reverse for a goal. c is
    searched for each image; the shortest change that succeeds is kept, then shortened within its support.
    tau and gamma suit inputs that span about 1; where they span R, tau/R and gamma/R^2 mean the same.
    As published: rounds=8, iterations=1000, growing=True.
    """

    norms: ClassVar[tuple[str, ...]] = ("linf",)

    norm: str = field(default="linf", kw_only=True)
    groups: Any = field(default=16, kw_only=True)  # cells per side, 'superpixels', 'channels', or a label map
    tau: float = field(default=3.0, kw_only=True)
    gamma: float = field(default=2.0, kw_only=True)
    c: float = field(default=1.0, kw_only=True)  # of the first round
    confidence: float = field(default=0.0, kw_only=True)  # by how much the margin must be exceeded, in logits
    rounds: int = field(default=4, kw_only=True)  # of the search for c, in both stages
    iterations: int = field(default=300, kw_only=True)  # of a round; two fifths of it within the support
    growing: bool = field(default=False, kw_only=True)  # the second round takes twice as many, the third thrice
    refine: bool = field(default=True, kw_only=True)
    official: bool = field(default=False, kw_only=True)  # one block doubled, as in the published code
    rho: float = field(default=15.0, kw_only=True)
    alpha: float = field(default=5.0, kw_only=True)

    def __post_init__(self) -> None:
        Attack.__post_init__(self)
        for name in ("gamma", "c", "rho", "alpha"):
            validate.positive(name, getattr(self, name))
        for name in ("tau", "confidence"):
            validate.not_negative(name, getattr(self, name))
        for name in ("rounds", "iterations"):
            validate.at_least(name, getattr(self, name), 1)
        for name in ("growing", "refine", "official"):
            validate.flag(name, getattr(self, name))

    def _space(self, x: Images) -> Space:
        check_groups(self.groups, tuple(x.shape))
        return Attack._space(self, x)

    def run(self, space: Space, victim: Victim, watch: Watch) -> Attacked:
        assert isinstance(victim, Misled)
        best = Shortest(space, victim, self.confidence)
        first = [self.iterations * (1 + number if self.growing else 1) for number in range(self.rounds)]
        second = [max(1, 2 * self.iterations // 5)] * (self.rounds if self.refine else 0)
        search = Search(best, len(first) + len(second), watch)
        search.go(self._sparse(space), torch.zeros_like(space.x), self.c, first)
        found = best.length < torch.inf
        if second:
            change = best.at - space.x
            search.go(self._within(space, change), change, 5 * self.c, second, idle=not bool(found.any()))
        success = best.length < torch.inf
        spent = sum(first) + sum(second) * found.long()
        return self._result(space, victim, best.at, success, best.length, torch.stack(search.trace), spent)

    def _sparse(self, space: Space) -> GroupSparse:
        low, high = _ends(space)
        group = Group(self.groups).for_batch(space.x)
        return GroupSparse(group, low, high, self.gamma, self.tau, self.rho, self.alpha, bool(self.official))

    def _within(self, space: Space, change: Images) -> Within:
        low, high = _ends(space)
        return Within(support(change), low, high, self.gamma / POLISH, self.rho, self.alpha)


@dataclass(eq=False)
class Shortest:
    """The shortest change of each image that succeeds, among all that were offered."""

    space: Space
    victim: Misled
    confidence: float

    def __post_init__(self) -> None:
        self.at: Images = self.space.x
        self.length: PerImage = torch.full_like(norm(self.space.x), torch.inf)
        self.score: ClassScore = self.victim.lead(self.space.x)
        self.push = 1 if self.victim.goal is None else -1

    def slope(self, change: Images) -> Images:
        """The gradient of the hinge."""
        value, grad = self.score.value_and_grad(self.space.x + change)
        active = self.push * value + self.confidence > 0
        return torch.where(spread(active, grad), self.push * grad, 0).nan_to_num(0.0, 0.0, 0.0)

    def offer(self, change: Images, known: Flags) -> Flags:
        """Which images it succeeds for; those `known` to succeed are asked about only where it would be shorter."""
        point = self.space.project(self.space.x + change)
        length = norm(point - self.space.x)
        which = (~known | (length < self.length)).nonzero().flatten()
        if not len(which):
            return known
        some = self.victim.take(which)
        logits = said(some, point[which])
        sure = self.push * leads(logits, some.named) <= -self.confidence
        good = torch.zeros_like(known)
        good[which] = sure & some.reached(logits.argmax(1))
        better = good & (length < self.length)
        self.at = torch.where(spread(better, point), point, self.at)
        self.length = torch.where(better, length, self.length)
        return known | good


class Search:
    """Rounds that search, for each image, the smallest weight c of the hinge for which the attack succeeds."""

    def __init__(self, best: Shortest, total: int, watch: Watch) -> None:
        self.best, self.total, self.watch = best, total, watch
        self.trace = [best.length]

    def go(self, problem: Splitting, begin: Images, c: float, counts: Sequence[int], idle: bool = False) -> None:
        """One round for each count of iterations; an idle search only writes down that nothing came of it."""
        weight = torch.full_like(self.best.length, c)
        low, high = torch.zeros_like(weight), torch.full_like(weight, torch.inf)
        for count in counts:
            won = torch.zeros_like(weight, dtype=torch.bool)
            state = problem.start(begin)
            for k in range(0 if idle else count):
                state = problem.step(state, spread(weight, begin) * self.best.slope(state.z), k)
                won = self.best.offer(state.copies[-1], won)
            low, high, weight = narrowed(low, high, weight, won)
            self.trace.append(self.best.length)
            self.watch(len(self.trace) - 1, self.total, {"objective": self.best.length})


def narrowed(low: PerImage, high: PerImage, c: PerImage, won: Flags) -> tuple[PerImage, PerImage, PerImage]:
    """The next c: five times as much while nothing succeeded, then the middle of what failed and what succeeded."""
    low, high = torch.where(won, low, c), torch.where(won, c, high)
    return low, high, torch.where(high.isinf(), 5 * c, (low + high) / 2)


def support(change: Images) -> Images:
    """Ones where a change is, but for its smallest 3 %."""
    rows = []
    for size in change.abs():
        kept = size[size > 0]
        floor = torch.quantile(kept, FLOOR) if len(kept) else size.new_zeros(())
        rows.append((size >= floor) & (size > 0))
    return torch.stack(rows).to(change.dtype)


def _ends(space: Space) -> tuple[Tensor, Tensor]:
    """The least and the largest change that ball and box allow."""
    low, high = torch.full_like(space.x, -space.epsilon), torch.full_like(space.x, space.epsilon)
    if space.low is not None and space.high is not None:
        return torch.maximum(low, space.low - space.x), torch.minimum(high, space.high - space.x)
    return low, high
