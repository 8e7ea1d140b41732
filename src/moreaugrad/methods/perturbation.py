"""Meaningful perturbation: the smallest smooth mask that takes a class away, or keeps it."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn import functional as F

from moreaugrad import validate
from moreaugrad.batch import norm, total
from moreaugrad.methods.base import Call
from moreaugrad.methods.mask_optimisation import MaskMethod, class_probabilities, generator
from moreaugrad.results import Explanation
from moreaugrad.types import Images, PerImage

MODES = {"deletion": 1, "preservation": -1}  # the sign of the class probability in what is minimised
REPLACEMENTS = ("blur", "constant", "noise")
SIDE = 224  # of the photos for which lengths in pixels are defined
DISCS = 35  # radii 0, 5, ..., 170 pixels
LEFT = 0.01  # share of the probability that a disc may leave

Masks = Float[Tensor, "n 1 h w"]


@dataclass(frozen=True, eq=False)
class MeaningfulPerturbation(MaskMethod):
    """The smallest smooth mask whose blur deletes the class, or that alone preserves it (Fong and Vedaldi, 2017).

    Deletion minimises `lam1 |1 - m|_1 + lam2 TV(m) + E p_c(m x + (1 - m) r)` over m, and the map is 1 - m.
    Preservation minimises `lam1 |m|_1 + lam2 TV(m) - E p_c`, and the map is m. The mask has a low resolution and is
    blurred, r replaces the image, and the expectation is over shifts of x by a few pixels. For one batch of
    pictures only. Starts at the smallest disc that deletes the class: 36 forward passes that are not counted.

    Args:
        forward_func: a module in evaluation mode, or any callable that returns logits (N, classes).
        mode: "deletion" or "preservation".
        budget: steps, each of one gradient per image.
        lr: step size of Adam.
        lam1: weight of the mask's size, per entry of the low-resolution mask.
        lam2: weight of the total variation.
        tv_beta: power of the total variation.
        scale: pixels per mask entry; None: 8 for photos of 224 pixels and in proportion, at least 2.
        blur: sigma of the blur that makes r, in pixels, twice that of the mask; None: 10 for photos of 224 pixels.
        jitter: number of shifts along each axis, 1 for none; None: 4 for photos of 224 pixels.
        replacement: r: "blur", "constant" (the mean colour of the image) or "noise" (of its mean and variance).
        score: "prob", no other.
        seed: of the shifts and the noise.

    Example:
        >>> found = mg.MeaningfulPerturbation(net, budget=5).explain(x, target=3)
        >>> found.map.shape, found.coarse.shape
        (torch.Size([2, 1, 16, 16]), torch.Size([2, 1, 8, 8]))
    """

    mode: str = "deletion"
    budget: int = 300
    lr: float = 0.1
    lam1: float = 1e-4
    lam2: float = 1e-2
    tv_beta: float = 3.0
    scale: int | None = None
    blur: float | None = None
    jitter: int | None = None
    replacement: str = "blur"

    random = True  # by its jitter

    def __post_init__(self) -> None:
        super().__post_init__()
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

    def compute(self, call: Call) -> Explanation:
        shapes = call.packing.shapes
        if len(shapes) != 1 or len(shapes[0]) != 3:
            shown = " and ".join(str(("N", *shape)).replace("'", "") for shape in shapes)
            raise ValueError(f"inputs must be one batch of pictures (N, C, H, W) for {self.get_name()}, got {shown}")
        x, (height, width) = call.x, call.x.shape[-2:]
        scale, sigma = self._lengths(height)
        tall, wide = (upsampling_matrix(size, scale, sigma / 2, x) for size in (height, width))
        still = self._fixed_replacement(x, sigma)
        mask = self._start(call, scale, self._replacement(call, still, 0))
        adam = torch.optim.Adam([mask], self.lr)
        for step in range(1, self.budget + 1):
            mask.grad = self._gradient(call, mask, (tall, wide), still, step)
            adam.step()
            mask.clamp_(0, 1)
            call.watch(step, self.budget, {})
        low = 1 - mask if self.mode == "deletion" else mask
        return Explanation(map=(tall @ low @ wide.T).clamp(0, 1), gradients=call.each(self.budget), coarse=low)

    def _gradient(self, call: Call, mask: Masks, upsampling: tuple[Tensor, Tensor], still: Images, step: int) -> Masks:
        """Gradient of the objective: through the network from the score, from there to the mask by autograd.

        The blurred mask is not clamped: it exceeds 1 by rounding only, and a clamp would stop its gradient there.
        """
        shift = self._shift(call, step)
        image, replaced = (_shift_image(part, shift) for part in (call.x, self._replacement(call, still, step)))
        with torch.enable_grad():
            leaf = mask.detach().requires_grad_()
            full = upsampling[0] @ leaf @ upsampling[1].T
            mixed = full * image + (1 - full) * replaced
            size = (1 - leaf if self.mode == "deletion" else leaf).sum()
            penalty = self.lam1 * size + self.lam2 * total_variation(leaf, self.tv_beta).sum()
        _, slope = call.score.value_and_grad(mixed.detach())
        (grad,) = torch.autograd.grad([mixed, penalty], leaf, [MODES[self.mode] * slope, torch.ones_like(penalty)])
        return grad

    def _lengths(self, height: int) -> tuple[int, float]:
        """Pixels of a mask entry and sigma of the blur, by the size of the picture."""
        scale = self.scale if self.scale is not None else max(2, round(8 * height / SIDE))
        return scale, self.blur if self.blur is not None else 10 * height / SIDE

    def _fixed_replacement(self, x: Images, sigma: float) -> Images:
        """What replaces the picture, without noise."""
        if self.replacement == "blur":
            return blur(x, sigma)
        return (total(x.flatten(0, 1)) / x[0, 0].numel()).view(*x.shape[:2], 1, 1).expand_as(x)

    def _replacement(self, call: Call, still: Images, step: int) -> Images:
        if self.replacement != "noise":
            return still
        x, rest = call.x, (call.x - still).flatten(0, 1)
        size: Tensor = (norm(rest) / rest[0].numel() ** 0.5).view(*x.shape[:2], 1, 1)
        drawn = generator(call.seed, step, x.device)
        return still + size * torch.randn(x.shape[1:], generator=drawn, dtype=x.dtype, device=x.device)

    def _shift(self, call: Call, step: int) -> tuple[int, int]:
        """Pixels by which the whole batch is moved at this step, as symmetric about zero as integers allow."""
        many = self.jitter if self.jitter is not None else max(1, round(4 * call.x.shape[-2] / SIDE))
        drawn = generator(call.seed, step, torch.device("cpu"), stream=2)
        down, right = torch.randint(many, (2,), generator=drawn).tolist()
        return down - many // 2, right - many // 2

    def _start(self, call: Call, scale: int, replaced: Images) -> Masks:
        """The smallest centred disc whose replacement leaves a hundredth of the probability that a full one removes."""
        discs = _discs(call.x)
        removed = torch.cat([discs, torch.ones_like(discs[:1])])
        chosen = torch.empty(len(call.x), dtype=torch.long, device=call.x.device)
        for image in range(len(call.x)):
            one = slice(image, image + 1)
            rows = call.x[one] + removed * (replaced[one] - call.x[one])
            owners = torch.full((len(rows),), image, device=call.x.device)
            probability, _ = class_probabilities(call.score, rows, owners)
            span = probability[0] - probability[-1]  # the first disc is empty
            enough = (probability[:-1] - probability[-1] < LEFT * span) & (span > 0)
            fallback = torch.where(span > 0, DISCS - 1, 0)
            chosen[image] = torch.where(enough.any(), enough.int().argmax(), fallback)
        low = F.avg_pool2d(discs[chosen], scale, ceil_mode=True, count_include_pad=False)
        return 1 - low if self.mode == "deletion" else low


def gaussian_matrix(size: int, sigma: float, like: Tensor) -> Float[Tensor, "s s"]:
    """A blur along one axis as a matrix. Rows sum to 1, at the border too, so that constants stay constant."""
    place = torch.arange(size, dtype=torch.float64)
    if sigma <= 0:
        return torch.eye(size).to(like)
    kernel = (-(place[:, None] - place).square() / (2 * sigma**2)).exp()
    return (kernel / kernel.sum(1, keepdim=True)).to(like)


def blur(x: Float[Tensor, "*n h w"], sigma: float) -> Float[Tensor, "*n h w"]:
    return gaussian_matrix(x.shape[-2], sigma, x) @ x @ gaussian_matrix(x.shape[-1], sigma, x).T


def upsampling_matrix(size: int, scale: int, sigma: float, like: Tensor) -> Float[Tensor, "s t"]:
    """From low resolution to `size` along one axis: each entry repeated `scale` times, then blurred."""
    low = -(-size // scale)
    repeated = torch.eye(low, dtype=torch.float64).repeat_interleave(scale, 0)[:size].to(like)
    return gaussian_matrix(size, sigma, like) @ repeated


def total_variation(mask: Float[Tensor, "n 1 h w"], beta: float) -> PerImage:
    """Sum over pixels of |forward difference|_2^beta; nothing lies beyond the border."""
    tall, wide = torch.zeros_like(mask), torch.zeros_like(mask)
    tall[..., :-1, :] = mask[..., 1:, :] - mask[..., :-1, :]
    wide[..., :, :-1] = mask[..., :, 1:] - mask[..., :, :-1]
    tiny = 1e-12 if beta < 2 else 0.0  # a power below one has no derivative at zero
    each: Tensor = (tall.square() + wide.square() + tiny).pow(beta / 2) - tiny ** (beta / 2)
    return each.flatten(1).sum(1)


def _discs(x: Images) -> Float[Tensor, "discs 1 h w"]:
    """Centred discs of growing radius with a soft edge; the first is empty."""
    height, width = x.shape[-2:]
    unit = height / SIDE
    down, right = (torch.arange(size, device=x.device, dtype=x.dtype) - (size - 1) / 2 for size in (height, width))
    distance = (down[:, None].square() + right.square()).sqrt()
    radii = 5 * unit * torch.arange(DISCS, device=x.device, dtype=x.dtype)
    hard = (distance < radii.view(-1, 1, 1)).to(x.dtype)
    return blur(hard, 10 * unit)[:, None]


def _shift_image(x: Images, shift: tuple[int, int]) -> Images:
    """Moved by whole pixels; the border is repeated."""
    down, right = (
        (torch.arange(size, device=x.device) + by).clamp(0, size - 1)
        for size, by in zip(x.shape[-2:], shift, strict=True)
    )
    return x if shift == (0, 0) else x[..., down, :][..., right]
