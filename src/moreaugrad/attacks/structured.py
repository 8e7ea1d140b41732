"""The structured attack: the smallest change of the class that touches few groups of entries, by ADMM."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, ClassVar, NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor

from moreaugrad import validate
from moreaugrad.attacks.base import AttackedModel, ClassAttack, predict_logits
from moreaugrad.attacks.descent import Ball
from moreaugrad.attacks.result import AttackResult
from moreaugrad.batch import norm, spread
from moreaugrad.envelope.groups import check_groups
from moreaugrad.envelope.priors import Group
from moreaugrad.model.score import make_score
from moreaugrad.types import Flags, Images, PerImage, Watch

Step = Callable[
    ["AdmmState", Images, int], "AdmmState"
]  # from the gradient of the loss at z and the step's number, from 0

POLISH = 100  # by how much gamma is lowered where only the support is left to change
FLOOR = 0.03  # share of the smallest entries that leave the support


class AdmmState(NamedTuple):
    """The loss is known by its gradient at z, every other term by its prox: each copy of z carries one of them, with a
    scaled dual variable that pulls it back to z. All are equal at the solution; the last copy is the sparse one."""

    z: Images
    duals: tuple[Images, ...]
    copies: tuple[Images, ...]

    @classmethod
    def start(cls, z: Images, copies: int) -> AdmmState:
        return cls(z, (torch.zeros_like(z),) * copies, (z,) * copies)


@dataclass(frozen=True, eq=False)
class Structured(ClassAttack):
    """`min over z of c l(x + z) + gamma |z|^2 + tau sum_g |z_g|_2`, in the box and |z|_inf <= epsilon.

    Use it for changes of the class that show where a model can be fooled (Xu et al., 2019). l is the hinge of the
    margin, `max(0, Z_t - max other Z + confidence)`, or the reverse for a goal; c is searched for each image. The
    shortest change that succeeds is kept, then shortened within its support. As published: rounds=8, iterations=1000,
    growing=True. tau and gamma suit inputs that span about 1; where they span R, tau/R and gamma/R^2 mean the same.

    Args:
        groups: cells per side of a grid, "superpixels", "channels", or a label map (H, W).
        tau: weight of the group sparsity.
        gamma: weight of the squared length.
        c: weight of the hinge in the first round.
        confidence: by how much the margin must be exceeded, in logits.
        rounds: of the search for c, in both stages.
        iterations: of ADMM in a round; two fifths of it within the support.
        growing: whether the second round takes twice as many iterations, the third three times, and so on.
        refine: whether to shorten the change within its support.
        official: whether one block counts twice, as in the published code.
        rho: weight that ties the copies to z.
        alpha: of the step: z moves by about 1/(alpha sqrt(k + 1) + 3 rho) of the gradient.
        **options: those of `ClassAttack`.

    Example:
        >>> found = mg.Structured(net, epsilon=1.0, groups=4, rounds=2, iterations=10).perturb(x)
        >>> bool((found.linf <= 1.0001).all())
        True
    """

    norms: ClassVar[tuple[str, ...]] = ("linf",)

    norm: str = field(default="linf", kw_only=True)
    groups: Any = field(default=16, kw_only=True)
    tau: float = field(default=3.0, kw_only=True)
    gamma: float = field(default=2.0, kw_only=True)
    c: float = field(default=1.0, kw_only=True)
    confidence: float = field(default=0.0, kw_only=True)
    rounds: int = field(default=4, kw_only=True)
    iterations: int = field(default=300, kw_only=True)
    growing: bool = field(default=False, kw_only=True)
    refine: bool = field(default=True, kw_only=True)
    official: bool = field(default=False, kw_only=True)
    rho: float = field(default=15.0, kw_only=True)
    alpha: float = field(default=5.0, kw_only=True)

    def __post_init__(self) -> None:
        super().__post_init__()
        self.check_options("gamma c rho alpha", "tau confidence", "rounds iterations", "growing refine official")

    def check_inputs(self, x: Images) -> None:
        check_groups(self.groups, tuple(x.shape))

    def run(self, ball: Ball, model: AttackedModel, watch: Watch) -> AttackResult:
        low, high = torch.full_like(ball.x, -ball.epsilon), torch.full_like(ball.x, ball.epsilon)
        if ball.low is not None and ball.high is not None:
            low, high = torch.maximum(low, ball.low - ball.x), torch.minimum(high, ball.high - ball.x)
        first = [self.iterations * (1 + number if self.growing else 1) for number in range(self.rounds)]
        second = [max(1, 2 * self.iterations // 5)] * (self.rounds if self.refine else 0)
        search = WeightSearch(ball, model, self.confidence, len(first) + len(second), watch)
        step = partial(self.group_step, low=low, high=high, groups=Group(self.groups).for_batch(ball.x))
        search.run(step, AdmmState.start(torch.zeros_like(ball.x), 3), self.c, first)
        found = search.length < torch.inf
        if second:
            change = search.at - ball.x
            step = partial(self.support_step, low=low, high=high, support=support(change))
            search.run(step, AdmmState.start(change, 1), 5 * self.c, second, idle=not bool(found.any()))
        success, spent = search.length < torch.inf, sum(first) + sum(second) * found.long()
        return self.make_result(ball, model, search.at, success, search.length, torch.stack(search.trace), spent)

    def group_step(self, at: AdmmState, grad: Images, k: int, low: Tensor, high: Tensor, groups: Group) -> AdmmState:
        """The three copies carry the length, the box and the groups. `official` counts the first one twice, as the
        published code does, which comes to twice the gamma."""
        (u, s, v), z, rho = at.duals, at.z, self.rho
        delta = rho / (rho + 2 * self.gamma) * (z - u)
        w = (z - s).clamp(low, high)
        y = groups.prox(z - v, z.new_full((len(z),), self.tau / rho))
        twice, eta = 2 if self.official else 1, self.alpha * math.sqrt(k + 1)
        z = (eta * z + rho * (twice * (delta + u) + (w + s) + (y + v)) - grad) / (eta + (twice + 2) * rho)
        return AdmmState(z, (u + delta - z, s + w - z, v + y - z), (delta, w, y))

    def support_step(
        self, at: AdmmState, grad: Images, k: int, low: Tensor, high: Tensor, support: Images
    ) -> AdmmState:
        """One copy, for the length, the box and the support, which holds ones and zeros."""
        (u,), z, rho = at.duals, at.z, self.rho
        delta = (rho / (rho + 2 * self.gamma / POLISH) * (z - u)).clamp(low, high) * support
        z = (self.alpha * z + rho * (delta + u) - grad * support) / (self.alpha + rho)
        return AdmmState(z, (u + delta - z,), (delta,))


class WeightSearch:
    """Rounds that search, for each image, the smallest weight c of the hinge for which the attack succeeds.

    Keeps the shortest change that succeeds, among all that were tried.
    """

    def __init__(self, ball: Ball, model: AttackedModel, confidence: float, total: int, watch: Watch) -> None:
        self.ball, self.model, self.confidence, self.total, self.watch = ball, model, confidence, total, watch
        self.at: Images = ball.x
        self.length: PerImage = torch.full_like(norm(ball.x), torch.inf)
        self.margin = make_score(self._forward_margins, ball.x, arguments=(model.pushed,))
        self.trace = [self.length]

    def run(self, step: Step, begin: AdmmState, c: float, counts: Sequence[int], idle: bool = False) -> None:
        """One round for each count of iterations; an idle search only records that it found nothing."""
        weight = torch.full_like(self.length, c)
        low, high = torch.zeros_like(weight), torch.full_like(weight, torch.inf)
        for count in counts:
            won = torch.zeros_like(weight, dtype=torch.bool)
            state = begin
            for k in range(0 if idle else count):
                state = step(state, spread(weight, state.z) * self.hinge_grad(state.z), k)
                won = self.update(state.copies[-1], won)
            low, high, weight = next_weight(low, high, weight, won)
            self.trace.append(self.length)
            self.watch(len(self.trace) - 1, self.total, {"objective": self.length})

    def _forward_margins(self, rows: Images, classes: Int[Tensor, "r"]) -> PerImage:
        return margins(validate.output(self.model.network(rows), len(rows)).to(rows.dtype), classes)

    def hinge_grad(self, change: Images) -> Images:
        value, grad = self.margin.value_and_grad(self.ball.x + change)
        active = self.model.sign * value + self.confidence > 0
        return torch.where(spread(active, grad), self.model.sign * grad, 0).nan_to_num(0.0, 0.0, 0.0)

    def update(self, change: Images, known: Flags) -> Flags:
        """Which images the change succeeds for; those `known` to succeed are evaluated only where it is shorter."""
        point = self.ball.project(self.ball.x + change)
        length = norm(point - self.ball.x)
        which = (~known | (length < self.length)).nonzero().flatten()
        if not len(which):
            return known
        pushed, sign = self.model.pushed[which], self.model.sign
        logits = predict_logits(self.model.network, point[which]).to(point.dtype)
        sure = sign * margins(logits, pushed) <= -self.confidence
        good = torch.zeros_like(known)
        good[which] = sure & ((logits.argmax(1) == pushed) == (sign < 0))
        better = good & (length < self.length)
        self.at = torch.where(spread(better, point), point, self.at)
        self.length = torch.where(better, length, self.length)
        return known | good


def margins(logits: Float[Tensor, "n k"], classes: Int[Tensor, "n"]) -> PerImage:
    """Z_t - max over j != t of Z_j: positive where t is predicted."""
    own = torch.nn.functional.one_hot(classes, logits.shape[1]).bool()
    mine: PerImage = logits.gather(1, classes[:, None]).squeeze(1)
    return mine - logits.masked_fill(own, -torch.inf).amax(1)


def next_weight(low: PerImage, high: PerImage, c: PerImage, won: Flags) -> tuple[PerImage, PerImage, PerImage]:
    """The next c: five times as much while nothing succeeded, then the middle of what failed and what succeeded."""
    low, high = torch.where(won, low, c), torch.where(won, c, high)
    return low, high, torch.where(high.isinf(), 5 * c, (low + high) / 2)


def support(change: Images) -> Images:
    """1 where a change is, except at its smallest 3 %."""
    rows = []
    for size in change.abs():
        kept = size[size > 0]
        floor = torch.quantile(kept, FLOOR) if len(kept) else size.new_zeros(())
        rows.append((size >= floor) & (size > 0))
    return torch.stack(rows).to(change.dtype)
