"""Whether a map lies on the object: boxes or masks drawn by people, against one number per pixel."""

from __future__ import annotations

from typing import Any

import torch
from jaxtyping import Bool
from torch import Tensor

from moreaugrad import validate
from moreaugrad.batch import total
from moreaugrad.metrics.maps import Batch, is_zero, read_maps, require_boolean, require_pictures, sum_channels
from moreaugrad.types import PerImage

Inside = Bool[Tensor, "n h w"]
TOLERANCE = 15  # pixels, in photos of 224
FORMS = "a tensor (N, 4) of left, top, right, bottom, a boolean mask (N, H, W), or a list with the boxes of each image"


def pointing_game(
    maps: Tensor, boxes: Tensor | list[Any], tolerance: float | None = None, signed: bool = False
) -> PerImage:
    """1 if the largest pixel of the map is on the object or closer to it than `tolerance`, else 0.

    Args:
        maps: maps (N, C, H, W) or (N, H, W).
        boxes: the objects: (N, 4) of left, top, right, bottom in pixels from the upper left corner, a boolean mask
            (N, H, W), or a list with the boxes (M, 4) of each image.
        tolerance: in pixels; None: 15 where the shorter side is 224 or more, in proportion below.
        signed: take the largest signed value instead of |map|.

    Returns:
        One number per image; NaN where all pixels are equal, or no object is given.

    Example:
        >>> mg.pointing_game(torch.diag(torch.arange(4.0))[None], torch.tensor([[2, 2, 4, 4]]))
        tensor([1.])
    """
    batch, inside = _read(maps, boxes, signed)
    height, width = inside.shape[1:]
    if tolerance is None:
        tolerance = TOLERANCE * min(1.0, min(height, width) / 224)
    validate.not_negative("tolerance", tolerance)
    place = sum_channels(batch.values, signed).flatten(1)
    top = place.argmax(1)
    row, column = (torch.arange(size, device=maps.device) for size in (height, width))
    down, right = row - (top // width)[:, None], column - (top % width)[:, None]
    away = down.square()[:, :, None] + right.square()[:, None, :]  # whole numbers: exact at the limit
    near = (away < tolerance**2) | (away == 0)
    hit = (near & inside).flatten(1).any(1)
    nowhere = (place.amax(1) == place.amin(1)) | ~inside.flatten(1).any(1)
    return batch.result(hit.to(place.dtype), nowhere)


def energy_in_box(maps: Tensor, boxes: Tensor | list[Any]) -> PerImage:
    """Share of the map that lies on objects, `sum of |map| on the object / sum of |map|`.

    Args:
        maps: maps (N, C, H, W) or (N, H, W).
        boxes: the objects, as for `pointing_game`.

    Returns:
        One number per image in [0, 1]; NaN for a zero map, or where no object is given.

    Example:
        >>> mg.energy_in_box(torch.ones(1, 4, 4), torch.tensor([[0, 0, 2, 2]]))
        tensor([0.2500])
    """
    batch, inside = _read(maps, boxes, False)
    place = sum_channels(batch.values)
    numbers = (total(place * inside) / total(place)).clamp(0, 1)
    return batch.result(numbers, is_zero(batch.values) | ~inside.flatten(1).any(1))


def regions(boxes: Any, shape: tuple[int, ...]) -> Inside:
    """Which pixels belong to an object: those of the mask, or whose centres lie in a box.

    Boxes are left, top, right, bottom in pixels from the upper left corner, so (0, 0, 2, 1) holds two pixels.
    """
    size = (shape[0], *shape[-2:])
    if isinstance(boxes, Tensor) and boxes.dtype == torch.bool:
        if tuple(boxes.shape) != size:
            raise ValueError(f"a mask of objects must have shape {size}, got {tuple(boxes.shape)}")
        return boxes
    if not isinstance(boxes, Tensor | list | tuple):
        raise TypeError(f"boxes must be {FORMS}, got {type(boxes).__name__}")
    if len(boxes) != shape[0]:
        raise ValueError(f"boxes must be given for each image, got {len(boxes)} for {shape[0]} images")
    rows, columns = (torch.arange(size) + 0.5 for size in shape[-2:])
    inside = torch.zeros(size, dtype=torch.bool)
    for image, several in enumerate(map(_read_boxes, boxes)):
        for left, top, right, bottom in several.tolist():
            tall, wide = (top <= rows) & (rows < bottom), (left <= columns) & (columns < right)
            inside[image] |= tall[:, None] & wide
    return inside


def _read(maps: Tensor, boxes: Any, signed: bool) -> tuple[Batch, Inside]:
    batch = read_maps(maps)
    require_pictures(tuple(maps.shape))
    require_boolean("signed", signed)
    return batch, regions(boxes, tuple(maps.shape)).to(maps.device)


def _read_boxes(given: Any) -> Tensor:
    """The boxes of one image, (M, 4): left, top, right, bottom."""
    try:
        found = torch.as_tensor(given, dtype=torch.float32, device="cpu")
    except (TypeError, ValueError, RuntimeError):
        raise TypeError(f"boxes must be {FORMS}, got {given!r} for an image") from None
    if found.numel() == 0:
        return found.reshape(0, 4)
    if found.ndim not in (1, 2) or found.shape[-1] != 4:
        raise ValueError(f"boxes must be {FORMS}, got shape {tuple(found.shape)} for an image")
    found = found.reshape(-1, 4)
    for left, upper, right, lower in found.tolist():
        if not (left < right and upper < lower):
            raise ValueError(
                f"a box must be left, top, right, bottom with left < right and top < bottom, "
                f"got {(left, upper, right, lower)}; of x, y, width, height make x, y, x + width, y + height"
            )
    return found
