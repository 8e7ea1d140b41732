"""A visible patch that forces a class and hides from the map of that class; and the plain patch to compare it with."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from functools import partial
from math import inf
from typing import Any, ClassVar

import torch
from jaxtyping import Bool, Float
from torch import Tensor
from torch.nn import functional as F

from moreaugrad import validate
from moreaugrad.attacks import checks as rules
from moreaugrad.attacks import checks_patch as patches
from moreaugrad.attacks.base import MapAttack
from moreaugrad.attacks.descent import Aim, descend
from moreaugrad.attacks.result import Attacked
from moreaugrad.attacks.space import Space
from moreaugrad.attacks.topk import salience
from moreaugrad.attacks.victim import Victim, outputs
from moreaugrad.batch import total
from moreaugrad.metrics.maps import require_boolean
from moreaugrad.model.prepared import Engine
from moreaugrad.model.score import ClassScore, safe_rows
from moreaugrad.model.smoothing import antithetic, independent_seed
from moreaugrad.types import Counts, Flags, Images, PerImage, Target, Watch

Mask = Bool[Tensor, "h w"]

MISSED = 2.0  # what another class than the target costs: more than a share or a probability can be
SURE = 0.1  # a plain patch is left alone once the target has all but this of the probability


@dataclass(frozen=True, slots=True)
class Patched(Attacked):
    """What a patch does; success: the model predicts the target. A share is NaN where it does not."""

    mask: Bool[Tensor, "n h w"] = field(kw_only=True)  # where the patch lies
    share: PerImage = field(kw_only=True)  # of the target's map that lies in the patch, at x
    plain_x: Images | None = field(default=None, kw_only=True)  # the images with a patch that does not hide
    plain_success: Flags | None = field(default=None, kw_only=True)
    plain_share: PerImage | None = field(default=None, kw_only=True)

    @property
    def target_rate(self) -> float:
        """The share of the images that are taken for their target."""
        return float(self.success.double().mean())

    @property
    def plain_target_rate(self) -> float | None:
        return None if self.plain_success is None else float(self.plain_success.double().mean())


@dataclass(frozen=True, eq=False)
class Patch(MapAttack):
    """x' is x outside a rectangle, and a patch inside: patch <- clip(patch - a sign(grad L)), from zero.

    L = share of |map of t| inside + lam CE(t), the latter while t is not predicted; `hide=False`: CE alone. t is the
    `target`, or a random class other than the predicted. The objective is the share (of a plain patch 1 - p_t), plus
    2 where t is not predicted; a map of zeros counts as hidden. A finite epsilon bounds the change inside.
    """

    unbounded: ClassVar[bool] = True

    epsilon: float = inf
    steps: int = field(default=750, kw_only=True)
    step_size: float | None = field(default=0.005, kw_only=True)  # a
    size: int | tuple[int, int] | None = field(default=None, kw_only=True)  # pixels; None: 2/7 of the sides, 64 of 224
    position: tuple[int, int] = field(default=(0, 0), kw_only=True)  # row and column of the upper left corner
    lam: float = field(default=0.8, kw_only=True)  # as the published .05 beside a mean over 4 x 4 cells
    hide: bool = field(default=True, kw_only=True)
    compare: bool = field(default=True, kw_only=True)  # find the plain patch too

    def __post_init__(self) -> None:
        MapAttack.__post_init__(self)
        patches.size(self.size)
        patches.pair("position", self.position, 0)
        patches.steps(self.rule, self.step_size)
        validate.positive("lam", self.lam)
        require_boolean("hide", self.hide)
        require_boolean("compare", self.compare)

    def mask(self, x: Images) -> Mask:
        """The pixels of the patch."""
        patches.pictures(tuple(x.shape))
        whole = int(x.shape[2]), int(x.shape[3])
        told = self.size if isinstance(self.size, tuple | list) else (self.size, self.size)
        high, wide = (max(1, 2 * side // 7) if one is None else int(one) for one, side in zip(told, whole, strict=True))
        row, column = self.position
        patches.fits((row, column), (high, wide), whole)
        mask = torch.zeros(whole, dtype=torch.bool, device=x.device)
        mask[row : row + high, column : column + wide] = True
        return mask

    def _space(self, x: Images) -> Space:
        self.mask(x)  # what does not fit is refused before the model is called
        return MapAttack._space(self, x)

    def _classes(self, given: Target, clean: Tensor) -> Tensor:
        if given is not None:
            return rules.classes(given, clean)
        generator = torch.Generator().manual_seed(self.seed)
        away = int(torch.randint(1, clean.shape[1], (), generator=generator))  # one draw: the same in any company
        return (clean.argmax(1) + away) % clean.shape[1]

    def run(self, space: Space, victim: Victim, watch: Watch) -> Patched:
        mask, kinds = self.mask(space.x), [False, True] if self.hide and self.compare else [self.hide]
        parts = [
            self._part(space, Search(victim, mask, self.lam, hide), partial(_told, watch, number, len(kinds)))
            for number, hide in enumerate(kinds)
        ]
        own, plain = parts[-1], parts[0] if len(parts) > 1 else None
        spent = torch.stack([part.spent for part in parts]).sum(0)
        found = self._result(space, victim, own.x, own.reached, own.objective, own.trace, spent)
        return Patched(
            **{each.name: getattr(found, each.name) for each in fields(Attacked)},
            mask=mask.expand(len(space.x), -1, -1),
            share=own.share,
            plain_x=None if plain is None else plain.x,
            plain_success=None if plain is None else plain.reached,
            plain_share=None if plain is None else plain.share,
        )

    def _part(self, space: Space, search: Search, watch: Watch) -> Part:
        """One patch for each image: one that hides, or a plain one."""
        assert self.step_size is not None
        victim, hide = search.victim, search.hide
        aim = Aim(search.value, search.slope, search.reached, same=victim.same or not hide, enough=0 if hide else SURE)
        rule = PatchSteps(search.mask, self.step_size)
        found = descend(space, aim, rule, self.steps, self.restarts, self.seed, watch)
        self._mention_flat(replace(found, flat=bool(search.blind)))
        reached = search.reached(found.x)
        final = victim.method.explain(found.x, victim.target)
        share = torch.where(reached, inside(final.map, search.mask), torch.nan)
        one = final.gradients
        maps = one * found.looks + (one + victim.smooth.slope_cost(one)) * found.slopes if hide else 0
        return Part(found.x, reached, found.objective, found.trace, share, one + maps + search.spent)


@dataclass(frozen=True, slots=True)
class Part:
    """One of the two kinds of patches, as found."""

    x: Images
    reached: Flags
    objective: PerImage
    trace: Float[Tensor, "steps n"]
    share: PerImage
    spent: Counts


@dataclass(eq=False)
class Search:
    """What a patch is to make small, and the way there. Remembers the last points' predictions and counts gradients."""

    victim: Victim
    mask: Mask
    lam: float
    hide: bool
    spent: Counts = field(init=False)  # on the cross-entropy, per image
    seen: tuple[Images, Flags] | None = field(default=None, init=False)
    blind: bool | None = field(default=None, init=False)  # whether every share above zero had no slope

    def __post_init__(self) -> None:
        self.spent = torch.zeros_like(self.victim.target)

    def reached(self, at: Images) -> Flags:
        if self.seen is None or self.seen[0] is not at:
            self.seen = at, self.victim.predict(at) == self.victim.target
        return self.seen[1]

    def value(self, at: Images) -> PerImage:
        if self.hide:
            return self._judged(at, inside(self.victim.map(at), self.mask))
        found = outputs(self.victim.model, at).to(at.dtype).softmax(1).gather(1, self.victim.target[:, None])
        return self._judged(at, 1 - found.squeeze(1))

    def slope(self, at: Images) -> tuple[PerImage, Images]:
        if not self.hide:
            value, grad = self._log_probability(at).value_and_grad(at)
            self.spent += 1
            return self._judged(at, 1 - value.exp()), -grad
        with torch.enable_grad():
            leaf = at.detach().requires_grad_()
            share = inside(self.victim.map_with_graph(leaf), self.mask)
            (grad,) = torch.autograd.grad(share.sum(), leaf)
        if bool(share.any()):
            self.blind = self.blind is not False and not bool(grad.any())
        missed = (~self.reached(at)).nonzero().flatten()
        if len(missed):
            _, up = self._log_probability(at).take(missed).value_and_grad(at[missed])
            grad = grad.index_add(0, missed, up, alpha=-self.lam)
            self.spent[missed] += 1
        return self._judged(at, share.detach()), grad

    def _judged(self, at: Images, part: PerImage) -> PerImage:
        return part + MISSED * (~self.reached(at)).to(part.dtype)

    def _log_probability(self, x: Images) -> ClassScore:
        """log p of the target, which is minus the cross-entropy."""
        engine = Engine(self.victim.model)
        engine.rows = safe_rows(x)
        return ClassScore(engine, self.victim.target, len(x), kind="logprob")


@dataclass(frozen=True, slots=True)
class PatchSteps:
    """patch <- patch - length * sign(grad), and nothing else moves. Begins at zero, again at random colours."""

    mask: Mask
    length: float

    def start(self, space: Space, aim: Aim, seed: int, restart: int) -> Images:
        colours = torch.zeros_like(space.x)
        if restart:
            colours = antithetic(tuple(space.x.shape[1:]), 1, independent_seed(seed, 3), restart, space.x).expand_as(
                space.x
            )
            if space.low is not None and space.high is not None:  # uniform in the box
                colours = space.low + (space.high - space.low) * (1 + torch.erf(colours / 2**0.5)) / 2
        return space.project(torch.where(self.mask, colours, space.x))

    def move(self, space: Space, aim: Aim, at: Images, grad: Images, step: int) -> Images:
        return space.project(torch.where(self.mask, at - self.length * grad.sign(), space.x))


def inside(maps: Images, mask: Mask) -> PerImage:
    """The share of |map|, summed over channels, that lies in the patch; 0 for a map of zeros.

    A cell of a coarser map counts by how much of it the patch covers.
    """
    size = salience(maps)
    cells = F.adaptive_avg_pool2d(mask.to(size.dtype)[None, None], (int(size.shape[-2]), int(size.shape[-1])))
    return total(size * cells) / total(size).clamp_min(torch.finfo(size.dtype).tiny)


def _told(watch: Watch, done: int, searches: int, step: int, steps: int, info: Mapping[str, Any]) -> None:
    """Several searches as one."""
    watch(done * steps + step, searches * steps, info)
