"""Similarity of two batches of maps as pictures: local structure, and where the mass lies.

Both look at one number per pixel, |map| summed over the channels, and need (N, C, H, W) or (N, H, W).
"""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor

from moreaugrad.batch import norm, spread, total
from moreaugrad.metrics import checks
from moreaugrad.metrics.maps import Planes, planes, read_pair, zero
from moreaugrad.types import PerImage

WINDOW = 11  # side of the Gaussian window, of sigma 1.5
AT_ONCE = 2**20  # entries that are filtered together: the filter holds some ten arrays of their size
FLAT = 1e-10  # span of a constant picture, relative to its largest value


def ssim(a: Tensor, b: Tensor, raw: bool = False) -> PerImage:
    """Mean structural similarity (Wang 2004), Gaussian window 11 x 11, of maps scaled to [0, 1] each.

    A constant map is scaled to zeros. Only windows that lie inside the picture count. `raw=True` is the comparison
    of published code: signed maps as they come, channel by channel, zeros around them, a dynamic range of 1. Then the
    size of the maps decides: any two maps of size 1e-3 score nearly 1.
    """
    checks.yes_or_no("raw", raw)
    pair = read_pair(a, b, signed=raw)
    checks.pictures(tuple(pair.a.shape))
    checks.large(tuple(pair.a.shape), WINDOW)
    first, second = (_raw(each) if raw else _unit_range(planes(each))[:, None] for each in (pair.a, pair.b))
    size = max(1, AT_ONCE // first[0].numel())
    parts = [_similarity(*some) for some in zip(first.split(size), second.split(size), strict=True)]
    return pair.answer(torch.cat(parts).clamp(-1, 1), itself=1)


def centre_shift(a: Tensor, b: Tensor) -> PerImage:
    """Pixels between the centres of mass, sum_u s_u (row, column) with s = |map| / sum |map|.

    NaN where one map is zero and the other is not: nothing has no centre.
    """
    pair = read_pair(a, b)
    shift = norm(_centre(planes(pair.a)) - _centre(planes(pair.b)))
    return pair.answer(shift, itself=0, undefined=zero(pair.a) | zero(pair.b))


def _similarity(a: Float[Tensor, "n c h w"], b: Float[Tensor, "n c h w"]) -> PerImage:
    from torchmetrics.functional.image import structural_similarity_index_measure

    _, local = structural_similarity_index_measure(
        a, b, sigma=1.5, kernel_size=WINDOW, reduction="none", data_range=1.0, return_full_image=True
    )
    edge = WINDOW // 2  # pixels whose window hangs over
    inside: Tensor = local[..., edge:-edge, edge:-edge]
    return total(inside) / inside[0].numel()


def _raw(x: Tensor) -> Tensor:
    edge = WINDOW // 2
    return torch.nn.functional.pad(x if x.ndim == 4 else x[:, None], (edge, edge, edge, edge))


def _unit_range(x: Planes) -> Planes:
    low, high = x.flatten(1).amin(1), x.flatten(1).amax(1)
    spans = (high - low).masked_fill(high - low <= FLAT * high, 1)  # what is left of a constant picture is nothing
    return (x - spread(low, x)) / spread(spans, x)


def _centre(x: Planes) -> Float[Tensor, "n 2"]:
    row, column = (torch.arange(size, dtype=x.dtype, device=x.device) for size in x.shape[1:])
    return torch.stack([total(x * row[:, None]), total(x * column)], 1) / total(x)[:, None]
