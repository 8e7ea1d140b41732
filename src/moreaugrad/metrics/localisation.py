"""Whether a map lies on the object: boxes or masks drawn by people against one number per pixel."""

from __future__ import annotations

from typing import Any

import torch
from jaxtyping import Bool
from torch import Tensor

from moreaugrad import validate
from moreaugrad.batch import total
from moreaugrad.metrics import checks as map_checks
from moreaugrad.metrics.maps import Batch, planes, read, zero
from moreaugrad.types import PerImage

Inside = Bool[Tensor, "n h w"]
TOLERANCE = 15  # pixels, in photos of 224


def pointing_game(
    maps: Tensor, boxes: Tensor | list[Any], tolerance: float | None = None, signed: bool = False
) -> PerImage:
    """1 if the largest pixel (the first of equal ones) is on the object or nearer to it than `tolerance`, else 0.

    15 pixels where the shorter side is 224 or more, in proportion below. NaN where all pixels are equal, or no
    object is given. `summary.class_average` makes the usual score of it.
    """
    batch, inside = _read(maps, boxes, signed)
    height, width = inside.shape[1:]
    if tolerance is None:
        tolerance = TOLERANCE * min(1.0, min(height, width) / 224)
    validate.not_negative("tolerance", tolerance)
    place = planes(batch.values, signed).flatten(1)
    top = place.argmax(1)
    row, column = (torch.arange(size, device=maps.device) for size in (height, width))
    down, right = row - (top // width)[:, None], column - (top % width)[:, None]
    away = down.square()[:, :, None] + right.square()[:, None, :]  # whole numbers: exact at the limit
    near = (away < tolerance**2) | (away == 0)
    hit = (near & inside).flatten(1).any(1)
    nowhere = (place.amax(1) == place.amin(1)) | ~inside.flatten(1).any(1)
    return batch.answer(hit.to(place.dtype), nowhere)


def energy_in_box(maps: Tensor, boxes: Tensor | list[Any]) -> PerImage:
    """sum of |map| on the object / sum of |map|. NaN for a zero map, or where no object is given."""
    batch, inside = _read(maps, boxes, False)
    place = planes(batch.values)
    figures = (total(place * inside) / total(place)).clamp(0, 1)
    return batch.answer(figures, zero(batch.values) | ~inside.flatten(1).any(1))


def _read(maps: Tensor, boxes: Any, signed: bool) -> tuple[Batch, Inside]:
    batch = read(maps)
    map_checks.pictures(tuple(maps.shape))
    map_checks.yes_or_no("signed", signed)
    return batch, regions(boxes, tuple(maps.shape)).to(maps.device)


def regions(boxes: Any, shape: tuple[int, ...]) -> Inside:
    """Which pixels belong to an object: those of the mask, or whose centres lie in a box.

    Boxes are left, top, right, bottom in pixels from the upper left corner, so (0, 0, 2, 1) holds two pixels.
    """
    if isinstance(boxes, Tensor) and boxes.dtype == torch.bool:
        map_checks.mask(boxes, shape)
        return boxes
    rows, columns = (torch.arange(size) + 0.5 for size in shape[-2:])
    inside = torch.zeros(shape[0], *shape[-2:], dtype=torch.bool)
    for image, several in enumerate(map_checks.boxes(boxes, shape[0])):
        for left, top, right, bottom in several.tolist():
            tall, wide = (top <= rows) & (rows < bottom), (left <= columns) & (columns < right)
            inside[image] |= tall[:, None] & wide
    return inside
