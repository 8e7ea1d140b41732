"""A visible patch that forces a class and hides from the map of that class; and the plain patch to compare it with."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from math import inf
from typing import ClassVar

import torch
from jaxtyping import Bool, Int
from torch import Tensor
from torch.nn import functional as F

from moreaugrad import validate
from moreaugrad.attacks.base import AttackedModel, predict_logits, read_classes
from moreaugrad.attacks.descent import Ball, Objective, descend
from moreaugrad.attacks.map_attack import MapAttack, magnitude, warn_if_flat
from moreaugrad.attacks.result import AttackResult, describe_range, extend_result
from moreaugrad.batch import total
from moreaugrad.model.score import make_score
from moreaugrad.model.smoothing import antithetic, independent_seed
from moreaugrad.types import Counts, Flags, Images, PerImage, Target, Watch

Mask = Bool[Tensor, "h w"]

MISSED = 2.0  # what another class than the target costs: more than a share or a probability can be
SURE = 0.1  # a plain patch is left alone once the target has all but this of the probability


@dataclass(frozen=True, slots=True, repr=False)
class PatchResult(AttackResult):
    """What a patch does; success: the model predicts the target.

    Attributes:
        mask: where the patch lies, (N, H, W).
        share: of the target's map that lies in the patch, at `x`; NaN where the target is not predicted.
        plain_x: the images with a patch that does not hide; None without `compare`, as the next two.
        plain_success: whether the model predicts the target there.
        plain_share: `share` of the plain patch.
    """

    mask: Bool[Tensor, "n h w"] = field(kw_only=True)
    share: PerImage = field(kw_only=True)
    plain_x: Images | None = field(default=None, kw_only=True)
    plain_success: Flags | None = field(default=None, kw_only=True)
    plain_share: PerImage | None = field(default=None, kw_only=True)

    def _say_more(self) -> str:
        plain = "" if self.plain_share is None else f", of one that does not hide {describe_range(self.plain_share)}"
        return f"Share of the target's map inside the patch: {describe_range(self.share)}{plain}."


@dataclass(frozen=True, eq=False)
class Patch(MapAttack):
    """x' is x outside a rectangle and a patch inside: `patch <- clip(patch - a sign(grad L))`, from zero.

    `L = share of |map of t| inside + lam CE(t)`, the latter while t is not predicted; with `hide=False` CE alone. Use
    it to see whether a map shows what makes the model predict t (Subramanya et al., 2019). The objective is the share
    (of a plain patch 1 - p_t), plus 2 where t is not predicted; a map of zeros counts as hidden. The target t is that
    of `perturb`, by default a random class other than the predicted one. `perturb` returns a `PatchResult`.

    Args:
        epsilon: largest change inside the patch, in the units of the input; default no bound but the box.
        steps: sign steps of each start.
        step_size: a, in the units of the input.
        size: of the patch in pixels, a number or (rows, columns); default 2/7 of the sides (64 of 224).
        position: row and column of the upper left corner.
        lam: weight of the cross-entropy; 0.8 is the published 0.05 beside a mean over 4 x 4 cells.
        hide: whether the patch hides from the map.
        compare: whether to find the plain patch too.
        **options: those of `MapAttack`; the inputs must be images (N, C, H, W).

    Example:
        >>> found = mg.Patch(mg.GradCam(net, "0"), steps=3, step_size=0.2, size=4).perturb(x, target=1)
        >>> int(found.mask[0].sum()), bool((found.x == x)[:, :, 4:, 4:].all())
        (16, True)
    """

    unbounded: ClassVar[bool] = True

    epsilon: float = inf
    steps: int = field(default=750, kw_only=True)
    step_size: float = field(default=0.005, kw_only=True)
    size: int | tuple[int, int] | None = field(default=None, kw_only=True)
    position: tuple[int, int] = field(default=(0, 0), kw_only=True)
    lam: float = field(default=0.8, kw_only=True)
    hide: bool = field(default=True, kw_only=True)
    compare: bool = field(default=True, kw_only=True)

    def __post_init__(self) -> None:
        super().__post_init__()
        size = self.size if isinstance(self.size, tuple | list) else (1 if self.size is None else self.size,) * 2
        for name, given, least in (("size", size, 1), ("position", self.position, 0)):
            if not isinstance(given, tuple | list) or len(given) != 2:
                raise ValueError(f"{name} must be two whole numbers (rows, columns), got {given!r}")
            for each in given:
                validate.at_least(name, each, least)
        if self.rule not in (None, "sign"):
            raise ValueError(f"a patch is found by sign steps, so rule must be 'sign', got {self.rule!r}")
        self.check_options(positive="lam", flags="hide compare")

    def mask(self, x: Images) -> Mask:
        """The pixels of the patch on images like x, (H, W)."""
        if x.ndim != 4:
            raise ValueError(
                f"a patch lies on images (N, C, H, W), got inputs of shape {tuple(x.shape)}; other attacks take those"
            )
        whole = int(x.shape[2]), int(x.shape[3])
        sides = self.size if isinstance(self.size, tuple | list) else (self.size, self.size)
        size = tuple(max(1, 2 * all_ // 7) if one is None else int(one) for one, all_ in zip(sides, whole, strict=True))
        row, column = self.position
        if row + size[0] > whole[0] or column + size[1] > whole[1]:
            raise ValueError(
                f"the patch must lie inside the images of {whole[0]} x {whole[1]} pixels, got {size[0]} x {size[1]} "
                f"at position {(row, column)}; give a smaller size or another position"
            )
        if size == whole:
            raise ValueError(f"the patch must leave some of the image, got a size of {size}, which is all of it")
        mask = torch.zeros(whole, dtype=torch.bool, device=x.device)
        mask[row : row + size[0], column : column + size[1]] = True
        return mask

    def check_inputs(self, x: Images) -> None:
        self.mask(x)

    def choose_classes(self, target: Target, logits: Tensor) -> Int[Tensor, "n"]:
        if target is not None:
            return read_classes(target, logits)
        generator = torch.Generator().manual_seed(self.seed)
        away = int(torch.randint(1, logits.shape[1], (), generator=generator))  # one draw: the same in any batch
        return (logits.argmax(1) + away) % logits.shape[1]

    def run(self, ball: Ball, model: AttackedModel, watch: Watch) -> PatchResult:
        if not (self.hide and self.compare):
            return self._find(ball, model, self.hide, watch)
        plain = self._find(ball, model, False, lambda step, total, info: watch(step, 2 * total, info))
        own = self._find(ball, model, True, lambda step, total, info: watch(total + step, 2 * total, info))
        spent = plain.gradients + own.gradients
        return replace(own, gradients=spent, plain_x=plain.x, plain_success=plain.success, plain_share=plain.share)

    def _find(self, ball: Ball, model: AttackedModel, hide: bool, watch: Watch) -> PatchResult:
        """One patch for each image: one that hides, or a plain one."""
        mask = self.mask(ball.x)
        search = PatchSearch(model, mask, self.lam, hide)
        exact, enough = model.exact or not hide, 0 if hide else SURE
        objective = Objective(search.value, search.value_and_grad, search.hits_target, exact=exact, enough=enough)
        rule = PatchSteps(mask, self.step_size)
        found = descend(ball, objective, rule, self.steps, self.restarts, self.seed, watch)
        warn_if_flat(bool(search.flat))
        success, final = search.hits_target(found.x), model.method.explain(found.x, target=model.target)
        maps, slopes = (found.values + 1, found.gradients) if hide else (1, 0)
        spent = search.spent + self.count_gradients(model, final.gradients, maps, slopes)
        result = self.make_result(ball, model, found.x, success, found.objective, found.trace, spent)
        share = torch.where(success, share_inside(final.map, mask), torch.nan)
        return extend_result(result, PatchResult, mask=mask.expand(len(ball.x), -1, -1), share=share)


@dataclass(eq=False)
class PatchSearch:
    """The objective of a patch and its gradient. Remembers the last points' predictions and counts gradients."""

    model: AttackedModel
    mask: Mask
    lam: float
    hide: bool
    flat: bool | None = field(default=None, init=False)  # whether every share above zero had no gradient

    def __post_init__(self) -> None:
        self.spent: Counts = torch.zeros_like(self.model.target)  # on the cross-entropy, per image
        self._last: tuple[Images, Flags] | None = None

    def hits_target(self, at: Images) -> Flags:
        if self._last is None or self._last[0] is not at:
            self._last = at, self.model.predict(at) == self.model.target
        return self._last[1]

    def value(self, at: Images) -> PerImage:
        if self.hide:
            return self._with_penalty(at, share_inside(self.model.map(at), self.mask))
        found = predict_logits(self.model.network, at).to(at.dtype).softmax(1).gather(1, self.model.target[:, None])
        return self._with_penalty(at, 1 - found.squeeze(1))

    def value_and_grad(self, at: Images) -> tuple[PerImage, Images]:
        log_probability = make_score(self.model.network, at, self.model.target, kind="logprob")
        if not self.hide:
            value, grad = log_probability.value_and_grad(at)
            self.spent += 1
            return self._with_penalty(at, 1 - value.exp()), -grad
        with torch.enable_grad():
            leaf = at.detach().requires_grad_()
            share = share_inside(self.model.map_with_graph(leaf), self.mask)
            (grad,) = torch.autograd.grad(share.sum(), leaf)
        if bool(share.any()):
            self.flat = self.flat is not False and not bool(grad.any())
        missed = (~self.hits_target(at)).nonzero().flatten()
        if len(missed):
            _, up = log_probability.take(missed).value_and_grad(at[missed])
            grad = grad.index_add(0, missed, up, alpha=-self.lam)
            self.spent[missed] += 1
        return self._with_penalty(at, share.detach()), grad

    def _with_penalty(self, at: Images, part: PerImage) -> PerImage:
        return part + MISSED * (~self.hits_target(at)).to(part.dtype)


@dataclass(frozen=True, slots=True)
class PatchSteps:
    """patch <- patch - length * sign(grad), and nothing else moves. Starts at zero, later at random colours."""

    mask: Mask
    length: float

    def start(self, ball: Ball, objective: Objective, seed: int, restart: int) -> Images:
        colours = torch.zeros_like(ball.x)
        if restart:
            noise_seed = independent_seed(seed, 3)
            colours = antithetic(tuple(ball.x.shape[1:]), 1, noise_seed, restart, ball.x).expand_as(ball.x)
            if ball.low is not None and ball.high is not None:  # uniform in the box
                colours = ball.low + (ball.high - ball.low) * (1 + torch.erf(colours / 2**0.5)) / 2
        return ball.project(torch.where(self.mask, colours, ball.x))

    def step(self, ball: Ball, objective: Objective, at: Images, grad: Images, number: int) -> Images:
        return ball.project(torch.where(self.mask, at - self.length * grad.sign(), ball.x))


def share_inside(maps: Images, mask: Mask) -> PerImage:
    """The share of |map|, summed over channels, that lies in the patch; 0 for a map of zeros.

    A cell of a coarser map counts by how much of it the patch covers.
    """
    size = magnitude(maps)
    cells = F.adaptive_avg_pool2d(mask.to(size.dtype)[None, None], (int(size.shape[-2]), int(size.shape[-1])))
    return total(size * cells) / total(size).clamp_min(torch.finfo(size.dtype).tiny)
