"""Meaningful perturbation: the smallest smooth mask that takes a class away, or keeps it."""

from __future__ import annotations

from dataclasses import dataclass, field

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn import functional as F

from moreaugrad import validate
from moreaugrad.batch import norm, total
from moreaugrad.methods import checks_masks as mask_checks
from moreaugrad.methods.base import Call, Method
from moreaugrad.methods.mask_optimisation import adam, blurred, chances, generator, rise, total_variation
from moreaugrad.results import Explanation
from moreaugrad.types import Images

MODES = {"deletion": 1, "preservation": -1}  # the sign of the class probability in what is minimised
REPLACEMENTS = ("blur", "constant", "noise")
SIDE = 224  # of the photos for which lengths in pixels are told
DISCS = 35  # radii 0, 5, ..., 170 pixels
LEFT = 0.01  # share of the class probability that a disc may leave

Masks = Float[Tensor, "n 1 h w"]


@dataclass(frozen=True, eq=False)
class MeaningfulPerturbation(Method):
    """deletion: min over m of lam1 |1 - m|_1 + lam2 TV(m) + E p_c(m x + (1 - m) r), the map is 1 - m.

    preservation: min of lam1 |m|_1 + lam2 TV(m) - E p_c, the map is m. The mask has a low resolution and is
    blurred; r is x blurred, and the expectation is over shifts of x by a few pixels. Pictures only.
    It starts at the smallest disc that takes the class away, which costs 36 forwards that are not counted.
    """

    mode: str = "deletion"
    budget: int = 300  # steps, of one gradient per image each
    lr: float = 0.1  # of Adam
    lam1: float = 1e-4  # per entry of the low-resolution mask
    lam2: float = 1e-2
    tv_beta: float = 3.0  # power of the total variation
    scale: int | None = None  # pixels of a mask entry; None: 8 for photos of 224 pixels, at least 2
    blur: float | None = None  # sigma of r in pixels, twice that of the mask; None: 10 for photos of 224 pixels
    jitter: int | None = None  # shifts along each axis; 1 for none; None: 4 for photos of 224 pixels
    replacement: str = "blur"  # or constant (the image's mean colour), noise (of its mean and variance)
    score: str = field(default="prob", kw_only=True)  # no other
    seed: int | torch.Generator | None = field(default=0, kw_only=True)

    def __post_init__(self) -> None:
        Method.__post_init__(self)
        mask_checks.probability(self.score, self.get_name())
        validate.one_of("mode", self.mode, MODES)
        validate.one_of("replacement", self.replacement, dict.fromkeys(REPLACEMENTS))
        for name, count in (("budget", self.budget), ("scale", self.scale), ("jitter", self.jitter)):
            if count is not None:
                validate.at_least(name, count, 1)
        for name, size in (("lr", self.lr), ("tv_beta", self.tv_beta), ("blur", self.blur)):
            if size is not None:
                validate.positive(name, size)
        for name, weight in (("lam1", self.lam1), ("lam2", self.lam2)):
            validate.not_negative(name, weight)
        validate.seed(self.seed)

    @property
    def random(self) -> bool:
        return True  # by its jitter

    def compute(self, call: Call) -> Explanation:
        mask_checks.pictures(call.packing.shapes, self.get_name())
        x, (height, width) = call.x, call.x.shape[-2:]
        scale, blur = self._lengths(height)
        tall, wide = (rise(size, scale, blur / 2, x) for size in (height, width))
        still = self._still(x, blur)
        mask = self._start(call, scale, self._replaced(call, still, 0))
        first, second = torch.zeros_like(mask), torch.zeros_like(mask)
        for step in range(1, self.budget + 1):
            grad = self._slope(call, mask, (tall, wide), still, step)
            move, first, second = adam(grad, first, second, step)
            mask = (mask - self.lr * move).clamp(0, 1)
            call.watch(step, self.budget, {})
        low = 1 - mask if self.mode == "deletion" else mask
        return Explanation(map=(tall @ low @ wide.T).clamp(0, 1), gradients=call.each(self.budget), coarse=low)

    def _slope(self, call: Call, mask: Masks, rises: tuple[Tensor, Tensor], still: Images, step: int) -> Masks:
        """Gradient of the objective: through the network from the score, through the mask's own way by autograd.

        A blurred mask is left unclamped: it passes 1 by rounding alone, and a clamp would stop its gradient there.
        """
        shift = self._shift(call, step)
        seen, replaced = (_shifted(part, shift) for part in (call.x, self._replaced(call, still, step)))
        with torch.enable_grad():
            leaf = mask.detach().requires_grad_()
            full = rises[0] @ leaf @ rises[1].T
            mixed = full * seen + (1 - full) * replaced
            size = (1 - leaf if self.mode == "deletion" else leaf).sum()
            penalty = self.lam1 * size + self.lam2 * total_variation(leaf, self.tv_beta).sum()
        _, slope = call.score.value_and_grad(mixed.detach())
        (grad,) = torch.autograd.grad([mixed, penalty], leaf, [MODES[self.mode] * slope, torch.ones_like(penalty)])
        return grad

    def _lengths(self, height: int) -> tuple[int, float]:
        """Pixels of a mask entry and sigma of the blur, by the size of the picture."""
        scale = self.scale if self.scale is not None else max(2, round(8 * height / SIDE))
        return scale, self.blur if self.blur is not None else 10 * height / SIDE

    def _still(self, x: Images, blur: float) -> Images:
        """What replaces the picture, but for noise."""
        if self.replacement == "blur":
            return blurred(x, blur)
        return (total(x.flatten(0, 1)) / x[0, 0].numel()).view(*x.shape[:2], 1, 1).expand_as(x)

    def _replaced(self, call: Call, still: Images, step: int) -> Images:
        if self.replacement != "noise":
            return still
        x, rest = call.x, (call.x - still).flatten(0, 1)
        size: Tensor = (norm(rest) / rest[0].numel() ** 0.5).view(*x.shape[:2], 1, 1)
        drawn = generator(call.seed, step, x.device)
        return still + size * torch.randn(x.shape[1:], generator=drawn, dtype=x.dtype, device=x.device)

    def _shift(self, call: Call, step: int) -> tuple[int, int]:
        """Of the whole batch at this step, symmetrical about zero as near as whole numbers go."""
        many = self.jitter if self.jitter is not None else max(1, round(4 * call.x.shape[-2] / SIDE))
        drawn = generator(call.seed, step, torch.device("cpu"), stream=2)
        down, right = torch.randint(many, (2,), generator=drawn).tolist()
        return down - many // 2, right - many // 2

    def _start(self, call: Call, scale: int, replaced: Images) -> Masks:
        """The smallest centred disc whose replacement leaves a hundredth of what the whole replacement takes."""
        discs = _discs(call.x)
        gone = torch.cat([discs, torch.ones_like(discs[:1])])
        chosen = torch.empty(len(call.x), dtype=torch.long, device=call.x.device)
        for image in range(len(call.x)):
            one = slice(image, image + 1)
            rows = call.x[one] + gone * (replaced[one] - call.x[one])
            chance, _ = chances(call.score, rows, torch.full((len(rows),), image, device=call.x.device))
            span = chance[0] - chance[-1]  # the first disc is empty
            enough = (chance[:-1] - chance[-1] < LEFT * span) & (span > 0)
            fallback = torch.where(span > 0, DISCS - 1, 0)
            chosen[image] = torch.where(enough.any(), enough.int().argmax(), fallback)
        low = F.avg_pool2d(discs[chosen], scale, ceil_mode=True, count_include_pad=False)
        return 1 - low if self.mode == "deletion" else low


def _discs(x: Images) -> Float[Tensor, "discs 1 h w"]:
    """Centred discs of growing radius with a soft edge; the first is empty."""
    height, width = x.shape[-2:]
    unit = height / SIDE
    down, right = (torch.arange(size, device=x.device, dtype=x.dtype) - (size - 1) / 2 for size in (height, width))
    distance = (down[:, None].square() + right.square()).sqrt()
    radii = 5 * unit * torch.arange(DISCS, device=x.device, dtype=x.dtype)
    hard = (distance < radii.view(-1, 1, 1)).to(x.dtype)
    return blurred(hard, 10 * unit)[:, None]


def _shifted(x: Images, shift: tuple[int, int]) -> Images:
    """Moved by whole pixels; the border is repeated."""
    down, right = (
        (torch.arange(size, device=x.device) + by).clamp(0, size - 1)
        for size, by in zip(x.shape[-2:], shift, strict=True)
    )
    return x if shift == (0, 0) else x[..., down, :][..., right]
