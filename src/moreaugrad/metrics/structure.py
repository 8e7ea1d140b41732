"""Similarity of two batches of maps as pictures: local structure, and where the mass lies.

Both use one number per pixel, |map| summed over the channels, and need (N, C, H, W) or (N, H, W).
"""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor

from moreaugrad.batch import norm, spread, total
from moreaugrad.metrics.maps import Planes, is_zero, read_pair, require_boolean, require_pictures, sum_channels
from moreaugrad.types import PerImage

WINDOW = 11  # side of the Gaussian window, of sigma 1.5
AT_ONCE = 2**20  # entries that are filtered together: the filter holds some ten arrays of their size
FLAT = 1e-10  # span of a constant picture, relative to its largest value


def ssim(a: Tensor, b: Tensor, raw: bool = False) -> PerImage:
    """Mean structural similarity with a Gaussian window of 11 x 11 pixels (Wang et al., 2004).

    Each map is scaled to [0, 1], a constant one to zeros; only windows inside the picture count.

    Args:
        a: maps (N, C, H, W) or (N, H, W) of at least 11 x 11 pixels.
        b: maps of the same shape.
        raw: compare as published code does: signed maps without scaling, channel by channel, zeros around them and a
            dynamic range of 1. The size of the maps then decides: any two of size 1e-3 score nearly 1.

    Returns:
        One number per image in [-1, 1]; higher is more similar.

    Example:
        >>> mg.ssim(x, 3 * x)
        tensor([1., 1.])
    """
    require_boolean("raw", raw)
    pair = read_pair(a, b, signed=raw)
    require_pictures(tuple(pair.a.shape))
    height, width = pair.a.shape[-2:]
    if min(height, width) < WINDOW:
        raise ValueError(
            f"maps must be at least {WINDOW} x {WINDOW} for a window of that size, got {height} x {width}; "
            "enlarge them first: torch.nn.functional.interpolate(map, size=(224, 224), mode='bilinear')"
        )
    first, second = (_pad(each) if raw else _unit_range(sum_channels(each))[:, None] for each in (pair.a, pair.b))
    size = max(1, AT_ONCE // first[0].numel())
    parts = [_similarity(*some) for some in zip(first.split(size), second.split(size), strict=True)]
    return pair.result(torch.cat(parts).clamp(-1, 1), equal=1)


def centre_shift(a: Tensor, b: Tensor) -> PerImage:
    """Pixels between the centres of mass `sum_u s_u (row, column)` of two maps, with s = |map| / sum |map|.

    Args:
        a: maps (N, C, H, W) or (N, H, W).
        b: maps of the same shape.

    Returns:
        One number per image in pixels; lower is more similar. NaN if exactly one map is zero.

    Example:
        >>> a, b = torch.zeros(2, 1, 5, 5)
        >>> a[0, 0, 0], b[0, 3, 4] = 1, 1
        >>> mg.centre_shift(a, b)
        tensor([5.])
    """
    pair = read_pair(a, b)
    shift = norm(_centre(sum_channels(pair.a)) - _centre(sum_channels(pair.b)))
    return pair.result(shift, equal=0, undefined=is_zero(pair.a) | is_zero(pair.b))


def _similarity(a: Float[Tensor, "n c h w"], b: Float[Tensor, "n c h w"]) -> PerImage:
    from torchmetrics.functional.image import structural_similarity_index_measure

    _, local = structural_similarity_index_measure(
        a, b, sigma=1.5, kernel_size=WINDOW, reduction="none", data_range=1.0, return_full_image=True
    )
    edge = WINDOW // 2  # pixels whose window crosses the border
    inside: Tensor = local[..., edge:-edge, edge:-edge]
    return total(inside) / inside[0].numel()


def _pad(x: Tensor) -> Tensor:
    edge = WINDOW // 2
    return torch.nn.functional.pad(x if x.ndim == 4 else x[:, None], (edge, edge, edge, edge))


def _unit_range(x: Planes) -> Planes:
    low, high = x.flatten(1).amin(1), x.flatten(1).amax(1)
    spans = (high - low).masked_fill(high - low <= FLAT * high, 1)  # a constant picture becomes zeros
    return (x - spread(low, x)) / spread(spans, x)


def _centre(x: Planes) -> Float[Tensor, "n 2"]:
    row, column = (torch.arange(size, dtype=x.dtype, device=x.device) for size in x.shape[1:])
    return torch.stack([total(x * row[:, None]), total(x * column)], 1) / total(x)[:, None]
