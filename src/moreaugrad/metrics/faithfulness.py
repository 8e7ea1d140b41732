"""Insertion and deletion: how fast a class comes or goes as pixels do, in the order of a map.

Owns the walk between two versions of an image; the model runs in chunks of rows without a graph.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.nn import functional as F

from moreaugrad import validate
from moreaugrad.metrics import checks as map_checks
from moreaugrad.metrics.maps import Flat, planes, read, wide
from moreaugrad.types import Flags, ForwardFunc, Images, Target

Curves = Float[Tensor, "n points"]
Chances = Callable[[Images, Int[Tensor, "rows"]], Float[Tensor, "rows"]]


@dataclass(frozen=True, slots=True)
class Walk:
    """How the pixels are gone through: by |map| summed over the channels, largest first.

    Equal ones come in random order, and the curve is the mean over the seeds.
    """

    step: int | None = None  # pixels at a time; None: the width of the image
    signed: bool = False  # order by the signed sum instead: evidence against the class comes last
    seeds: tuple[int, ...] = (0, 1, 2)
    internal_batch_size: int = 32  # rows that reach the model

    def __post_init__(self) -> None:
        for name in ("step", "internal_batch_size"):
            if getattr(self, name) is not None:
                validate.at_least(name, getattr(self, name), 1)
        map_checks.yes_or_no("signed", self.signed)
        map_checks.seeds(self.seeds)


def insertion(
    maps: Tensor,
    x: Tensor,
    model: ForwardFunc,
    target: Target = None,
    *,
    baseline: float | str | Tensor = "blur",
    return_curve: bool = False,
    **options: Any,
) -> Any:
    """Area under p_c as the pixels of x appear on the baseline, its blurred copy; 1 is best. None: predicted class.

    `return_curve=True` gives (area, curve (N, points)) with both ends. Options: the fields of `Walk`.
    """
    return _measure(maps, x, model, target, (baseline, None), return_curve, _walk(options))


def deletion(
    maps: Tensor,
    x: Tensor,
    model: ForwardFunc,
    target: Target = None,
    *,
    baseline: float | str | Tensor = 0.0,
    return_curve: bool = False,
    **options: Any,
) -> Any:
    """Area under p_c as the pixels of x give way to the baseline, 0 in the model's units; 0 is best.

    Else as `insertion`; baselines are numbers, tensors like x, or "blur".
    """
    return _measure(maps, x, model, target, (None, baseline), return_curve, _walk(options))


def _walk(options: dict[str, Any]) -> Walk:
    map_checks.known(options, [each.name for each in fields(Walk)])
    return Walk(**options)


def _measure(maps: Tensor, x: Tensor, model: Any, target: Any, ends: Any, curve: bool, walk: Walk) -> Any:
    batch = read(maps)
    map_checks.yes_or_no("return_curve", curve)
    (x,) = validate.inputs(x)
    map_checks.fits(tuple(maps.shape), tuple(x.shape))
    map_checks.one_device(maps, x)
    map_checks.function("model", model, "a batch", "logits (N, classes)")
    validate.evaluating(model)
    target = validate.target(target, len(x))
    with torch.no_grad():
        x = x.detach()
        start, end = (x if each is None else replacement(each, x) for each in ends)
        classes = _classes(model, x, target, walk.internal_batch_size)
        order = planes(batch.values, walk.signed).flatten(1)
        found = _curves(order, start, end, lambda rows, of: _chances(model, rows, classes[of]), batch.sound, walk)
    found = found.masked_fill(~batch.sound[:, None], torch.nan)
    area = batch.answer((found.sum(1) - (found[:, 0] + found[:, -1]) / 2) / (found.shape[1] - 1))
    return (area, found.to(area.dtype)) if curve else area


def _curves(order: Flat, start: Images, end: Images, chances: Chances, sound: Flags, walk: Walk) -> Curves:
    """p_c after each step, both ends included; a map without equal pixels needs one order only."""
    pixels, step = order.shape[1], walk.step or start.shape[-1]
    after = (torch.arange(-(-pixels // step) + 1, device=order.device) * step).clamp(max=pixels)
    ordered = order.sort(1).values
    tied = (ordered[:, 1:] == ordered[:, :-1]).any(1)
    sums = torch.zeros(len(order), len(after), dtype=order.dtype, device=order.device)
    for number, seed in enumerate(walk.seeds):
        which = (sound if number == 0 else sound & tied).nonzero().flatten()
        place = places(order[which], seed).view(-1, 1, *start.shape[-2:])
        rows = torch.arange(len(which) * len(after), device=order.device)
        for some in rows.split(walk.internal_batch_size):
            at, point = some // len(after), some % len(after)
            owner = which[at]
            row = torch.where(place[at] < after[point].view(-1, 1, 1, 1), end[owner], start[owner])
            sums[owner, point] += chances(row, owner).to(sums.dtype)
    return sums / torch.where(tied, len(walk.seeds), 1)[:, None]


def places(order: Flat, seed: int) -> Int[Tensor, "n d"]:
    """The place of each pixel, largest first; equal ones in an order that the seed alone decides."""
    size = order.shape[1]
    mixed = torch.randperm(size, generator=torch.Generator().manual_seed(seed)).to(order.device)
    at = mixed[order[:, mixed].argsort(stable=True, dim=1, descending=True)]
    return torch.empty_like(at).scatter(1, at, torch.arange(size, device=order.device).expand_as(at))


def replacement(given: Any, x: Images) -> Images:
    """What stands where a pixel of x does not: a number, a tensor, or x blurred."""
    if isinstance(given, str):
        validate.one_of("baseline", given, {"blur": None})
        return blurred(x)
    return validate.baselines(given, (x,))[0]


def blurred(x: Images, size: int = 11, sigma: float = 5.0) -> Images:
    """A Gaussian window of size x size pixels; what hangs over the border does not count, so a constant stays one."""
    ticks = torch.arange(size, dtype=wide(x).dtype, device=x.device) - size // 2
    window = (-(ticks**2) / (2 * sigma**2)).exp()
    flat, edge = wide(x).flatten(0, 1)[:, None], size // 2

    def along(part: Tensor) -> Tensor:
        return F.conv2d(
            F.conv2d(part, window.view(1, 1, -1, 1), padding=(edge, 0)), window.view(1, 1, 1, -1), padding=(0, edge)
        )

    return (along(flat) / along(torch.ones_like(flat[:1]))).view_as(x).to(x.dtype)


def _classes(model: ForwardFunc, x: Images, target: Target, size: int) -> Int[Tensor, "n"]:
    """The class of each image, as a number from 0; the predicted one where none is given."""
    parts = x.split(size) if target is None else (x[:1],)
    outputs = [validate.output(model(part), len(part)) for part in parts]
    shape = (len(x), *outputs[0].shape[1:])
    if target is None:
        validate.target_fits(0, shape, "prob")
        return torch.cat([each.argmax(1) for each in outputs])
    validate.target_fits(target, shape, "prob")
    listed = target.flatten().tolist() if isinstance(target, Tensor) else target
    numbers = [listed] if isinstance(listed, int | tuple) else listed
    columns = [each[0] if isinstance(each, tuple) else each for each in numbers]
    classes: Tensor = torch.tensor(columns, device=x.device) % shape[1]
    return classes.expand(len(x))


def _chances(model: ForwardFunc, rows: Images, classes: Int[Tensor, "rows"]) -> Float[Tensor, "rows"]:
    found = wide(validate.output(model(rows), len(rows))).softmax(1)
    return found.gather(1, classes[:, None]).flatten()
