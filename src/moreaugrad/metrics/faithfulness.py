"""Insertion and deletion: how fast a class appears or vanishes with the pixels, in the order of a map.

Owns the path between two versions of an image; the model runs in chunks of rows without a graph.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields
from typing import Any, Literal, overload

import torch
from jaxtyping import Float, Int
from torch import Tensor

from moreaugrad import validate
from moreaugrad.metrics import maps as checks
from moreaugrad.metrics.maps import Flat, read_maps, sum_channels, to_float64
from moreaugrad.model.inputs import select_target
from moreaugrad.registry import unknown
from moreaugrad.types import Flags, ForwardFunc, Images, PerImage, Target

Curves = Float[Tensor, "n points"]
Probabilities = Callable[[Images, Int[Tensor, "rows"]], Float[Tensor, "rows"]]
Replacement = float | str | Tensor


@dataclass(frozen=True, slots=True)
class PixelOrder:
    """The order of the pixels: by |map| summed over the channels, largest first.

    Equal ones come in random order, and the curve is the mean over the seeds.
    """

    step: int | None = None
    signed: bool = False
    seeds: tuple[int, ...] = (0, 1, 2)
    internal_batch_size: int = 32

    def __post_init__(self) -> None:
        validate.at_least("step", 1 if self.step is None else self.step, 1)
        validate.at_least("internal_batch_size", self.internal_batch_size, 1)
        checks.require_boolean("signed", self.signed)
        if not isinstance(self.seeds, tuple | list | range) or not self.seeds:
            raise TypeError(f"seeds must be a tuple of at least one whole number, got {self.seeds!r}")
        for each in self.seeds:
            validate.at_least("seeds", each, 0)


@overload
def insertion(
    maps: Tensor, x: Tensor, model: ForwardFunc, target: Target = None, *, return_curve: Literal[True], **options: Any
) -> tuple[PerImage, Curves]: ...
@overload
def insertion(
    maps: Tensor, x: Tensor, model: ForwardFunc, target: Target = None, *, return_curve: bool = False, **options: Any
) -> PerImage: ...
def insertion(
    maps: Tensor,
    x: Tensor,
    model: ForwardFunc,
    target: Target = None,
    *,
    baseline: Replacement = "blur",
    return_curve: bool = False,
    **options: Any,
) -> PerImage | tuple[PerImage, Curves]:
    """Area under the class probability while the pixels of x appear on the baseline, the largest of the map first.

    Args:
        maps: maps (N, C, H, W) or (N, H, W).
        x: the images (N, C, H, W), as the model takes them.
        model: returns logits (N, classes).
        target: the class or classes; None: the predicted ones.
        baseline: what stands where a pixel is missing: a number, a tensor like x, or "blur".
        return_curve: whether to return the curves too.
        **options: `step`, pixels at a time (None: the width of the image); `signed`, order by the signed sum, evidence
            against the class last; `seeds`, over which the order of equal pixels is averaged;
            `internal_batch_size`, the rows that reach the model at once (32).

    Returns:
        One number per image in [0, 1], 1 is best; with `return_curve` also the curves (N, points), both ends included.

    Example:
        >>> mg.insertion(x, x, net, target=3).shape
        torch.Size([2])
    """
    return _measure(maps, x, model, target, (baseline, None), return_curve, options)


@overload
def deletion(
    maps: Tensor, x: Tensor, model: ForwardFunc, target: Target = None, *, return_curve: Literal[True], **options: Any
) -> tuple[PerImage, Curves]: ...
@overload
def deletion(
    maps: Tensor, x: Tensor, model: ForwardFunc, target: Target = None, *, return_curve: bool = False, **options: Any
) -> PerImage: ...
def deletion(
    maps: Tensor,
    x: Tensor,
    model: ForwardFunc,
    target: Target = None,
    *,
    baseline: Replacement = 0.0,
    return_curve: bool = False,
    **options: Any,
) -> PerImage | tuple[PerImage, Curves]:
    """Area under the class probability while the baseline replaces the pixels of x, the largest of the map first.

    Args:
        maps: maps (N, C, H, W) or (N, H, W).
        x: the images (N, C, H, W), as the model takes them.
        model: returns logits (N, classes).
        target: the class or classes; None: the predicted ones.
        baseline: what replaces a pixel: a number in the units of x, a tensor like x, or "blur".
        return_curve: whether to return the curves too.
        **options: as for `insertion`.

    Returns:
        One number per image in [0, 1], 0 is best; with `return_curve` also the curves (N, points), both ends included.

    Example:
        >>> area, curve = mg.deletion(x, x, net, target=3, return_curve=True, step=64)
        >>> area.shape, curve.shape
        (torch.Size([2]), torch.Size([2, 5]))
    """
    return _measure(maps, x, model, target, (None, baseline), return_curve, options)


def _measure(
    maps: Tensor, x: Any, model: Any, target: Any, ends: tuple[Any, Any], curve: bool, options: dict[str, Any]
) -> PerImage | tuple[PerImage, Curves]:
    names = [each.name for each in fields(PixelOrder)]
    for name in options:
        if name not in names:
            raise unknown("option", name, names)
    path, batch = PixelOrder(**options), read_maps(maps)
    checks.require_boolean("return_curve", curve)
    x = validate.one_input(x)
    _require_same_pixels(tuple(maps.shape), tuple(x.shape))
    checks.require_one_device(maps, x)
    checks.require_function("model", model, "a batch", "logits (N, classes)")
    validate.evaluating(model)
    target = validate.target(target, len(x))
    with torch.no_grad():
        x = x.detach()
        start, end = (x if each is None else make_baseline(each, x) for each in ends)
        classes = _class_numbers(model, x, target, path.internal_batch_size)

        def probabilities(rows: Images, image: Int[Tensor, "rows"]) -> Float[Tensor, "rows"]:
            every = to_float64(validate.output(model(rows), len(rows))).softmax(1)
            return every.gather(1, classes[image, None]).flatten()

        order = sum_channels(batch.values, path.signed).flatten(1)
        found = _curves(order, start, end, probabilities, batch.finite, path)
    found = found.masked_fill(~batch.finite[:, None], torch.nan)
    area = batch.result((found.sum(1) - (found[:, 0] + found[:, -1]) / 2) / (found.shape[1] - 1))
    return (area, found.to(area.dtype)) if curve else area


def _require_same_pixels(maps: tuple[int, ...], x: tuple[int, ...]) -> None:
    if len(x) != 4:
        raise ValueError(f"x must be images (N, C, H, W), got shape {x}")
    checks.require_pictures(maps)
    if maps[0] != x[0] or maps[-2:] != x[-2:]:
        raise ValueError(
            f"maps must have one number or more per pixel of x, got maps of shape {maps} for images of shape {x}; "
            "resize small maps with torch.nn.functional.interpolate"
        )


def _curves(order: Flat, start: Images, end: Images, run: Probabilities, finite: Flags, path: PixelOrder) -> Curves:
    """p_c after each step, both ends included; a map without equal pixels needs one order only."""
    pixels, step = order.shape[1], path.step or start.shape[-1]
    after = (torch.arange(-(-pixels // step) + 1, device=order.device) * step).clamp(max=pixels)
    ordered = order.sort(1).values
    tied = (ordered[:, 1:] == ordered[:, :-1]).any(1)
    sums = torch.zeros(len(order), len(after), dtype=order.dtype, device=order.device)
    for number, seed in enumerate(path.seeds):
        which = (finite if number == 0 else finite & tied).nonzero().flatten()
        place = pixel_places(order[which], seed).view(-1, 1, *start.shape[-2:])
        rows = torch.arange(len(which) * len(after), device=order.device)
        for some in rows.split(path.internal_batch_size):
            at, point = some // len(after), some % len(after)
            owner = which[at]
            row = torch.where(place[at] < after[point].view(-1, 1, 1, 1), end[owner], start[owner])
            sums[owner, point] += run(row, owner).to(sums.dtype)
    return sums / torch.where(tied, len(path.seeds), 1)[:, None]


def pixel_places(order: Flat, seed: int) -> Int[Tensor, "n d"]:
    """The place of each pixel in the order, largest first; the seed alone decides the order of equal ones."""
    size = order.shape[1]
    mixed = torch.randperm(size, generator=torch.Generator().manual_seed(seed)).to(order.device)
    at = mixed[order[:, mixed].argsort(stable=True, dim=1, descending=True)]
    return torch.empty_like(at).scatter(1, at, torch.arange(size, device=order.device).expand_as(at))


def make_baseline(given: Any, x: Images) -> Images:
    """What stands where a pixel of x does not: a number, a tensor, or x blurred."""
    if isinstance(given, str):
        validate.one_of("baseline", given, {"blur": None})
        return blur(x)
    return validate.baselines(given, (x,))[0]


def blur(x: Images, size: int = 11, sigma: float = 5.0) -> Images:
    """A Gaussian window of size x size pixels, cut off at the border, so that a constant image stays constant."""
    blurred = to_float64(x)
    for axis in (2, 3):
        place = torch.arange(x.shape[axis], dtype=blurred.dtype, device=x.device)
        away = place[:, None] - place
        weights = (-away.square() / (2 * sigma**2)).exp() * (away.abs() <= size // 2)
        blurred = (blurred.transpose(axis, 3) @ (weights / weights.sum(0))).transpose(axis, 3)
    return blurred.to(x.dtype)


def _class_numbers(model: ForwardFunc, x: Images, target: Target, size: int) -> Int[Tensor, "n"]:
    """The class of each image, as a number from 0; the predicted one where none is given."""
    parts = x.split(size) if target is None else (x[:1],)
    outputs = [validate.output(model(part.clone()), len(part)) for part in parts]
    shape = (len(x), *outputs[0].shape[1:])
    if target is None:
        validate.target_fits(0, shape, "prob")
        return torch.cat([each.argmax(1) for each in outputs])
    validate.target_fits(target, shape, "prob")
    return select_target(torch.arange(shape[1], device=x.device).expand(len(x), -1), target)
