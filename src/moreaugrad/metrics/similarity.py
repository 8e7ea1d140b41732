"""Similarity of two batches of maps: distances, correlations, common top entries, and as pictures.

Each compares |map| unless `signed=True`, ignores the scale of the maps, and is symmetric unless it says otherwise. As
pictures, maps (N, C, H, W) or (N, H, W) have one number per pixel, |map| summed over the channels.
"""

from __future__ import annotations

from numbers import Integral
from typing import Any

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from moreaugrad import validate
from moreaugrad.batch import norm, spread, total
from moreaugrad.metrics import maps as m
from moreaugrad.metrics.maps import Flat, Planes, is_zero, read_pair, sum_channels, unit_scale
from moreaugrad.types import Images, PerImage

WINDOW = 11  # side of the Gaussian window, of sigma 1.5
AT_ONCE = 2**20  # entries that are filtered together: the filter holds some ten arrays of their size
FLAT = 1e-10  # span of a constant picture, relative to its largest value


def normalised_distance(a: Tensor, b: Tensor, signed: bool = False) -> PerImage:
    """Euclidean distance of two maps, each divided by its norm: `|a/|a| - b/|b||_2 = sqrt(2 - 2 cosine)`.

    Args:
        a: maps (N, ...).
        b: maps of the same shape.
        signed: compare signed values instead of |map|.

    Returns:
        One number per image in [0, 2], at most sqrt(2) unsigned; lower is more similar. A zero map has distance 1
        from any other map, and 0 from another zero map.

    Example:
        >>> mg.normalised_distance(torch.tensor([[3.0, 0.0]]), torch.tensor([[0.0, 4.0]]))
        tensor([1.4142])
    """
    pair = read_pair(a, b, signed)
    return pair.result(norm(_unit_norm(pair.a) - _unit_norm(pair.b)).clamp(max=2), equal=0)


def cosine(a: Tensor, b: Tensor, signed: bool = False) -> PerImage:
    """Cosine of the angle between two maps, `<a, b> / (|a| |b|)`.

    Args:
        a: maps (N, ...).
        b: maps of the same shape.
        signed: compare signed values instead of |map|.

    Returns:
        One number per image in [-1, 1]; NaN if exactly one map is zero, 1 if both are.

    Example:
        >>> mg.cosine(torch.tensor([[1.0, 1.0]]), torch.tensor([[0.0, 2.0]]))
        tensor([0.7071])
    """
    pair = read_pair(a, b, signed)
    numbers = total(_unit_norm(pair.a) * _unit_norm(pair.b)).clamp(-1, 1)
    return pair.result(numbers, equal=1, undefined=is_zero(pair.a) | is_zero(pair.b))


def pearson(a: Tensor, b: Tensor, signed: bool = False) -> PerImage:
    """Linear correlation of the entries of two maps: the cosine of the centred maps.

    Args:
        a: maps (N, ...).
        b: maps of the same shape.
        signed: compare signed values instead of |map|.

    Returns:
        One number per image in [-1, 1]; NaN if exactly one map is constant, 1 if both are.

    Example:
        >>> mg.pearson(torch.tensor([[1.0, 2.0, 3.0]]), torch.tensor([[3.0, 2.0, 1.0]]))
        tensor([-1.])
    """
    pair = read_pair(a, b, signed)
    return pair.result(_correlation(pair.a, pair.b), equal=1)


def spearman(a: Tensor, b: Tensor, signed: bool = False) -> PerImage:
    """Rank correlation: `pearson` of the ranks of the entries, where equal entries share the mean of their ranks.

    Args:
        a: maps (N, ...).
        b: maps of the same shape.
        signed: rank signed values instead of |map|.

    Returns:
        One number per image in [-1, 1]; NaN if exactly one map is constant, 1 if both are.

    Example:
        >>> mg.spearman(torch.tensor([[1.0, 2.0, 9.0]]), torch.tensor([[1.0, 4.0, 5.0]]))
        tensor([1.])
    """
    pair = read_pair(a, b, signed)
    return pair.result(_correlation(ranks(pair.a.flatten(1)), ranks(pair.b.flatten(1))), equal=1)


def kl_divergence(a: Tensor, b: Tensor) -> PerImage:
    """Relative entropy `sum p log(p/q)` in nats of p = |a| / sum |a| and q = |b| / sum |b|; not symmetric.

    Args:
        a: maps (N, ...).
        b: maps of the same shape.

    Returns:
        One number per image, 0 or more; lower is more similar. Infinite where b is zero at an entry where a is not,
        as for most sparse maps; NaN if exactly one map is zero.

    Example:
        >>> mg.kl_divergence(torch.tensor([[1.0, 0.0]]), torch.tensor([[1.0, 1.0]]))
        tensor([0.6931])
    """
    pair = read_pair(a, b)
    p, q = (unit_scale(each) / spread(total(unit_scale(each)), each) for each in (pair.a, pair.b))
    numbers = total(torch.special.xlogy(p, p) - torch.special.xlogy(p, q)).clamp(min=0)
    return pair.result(numbers, equal=0, undefined=is_zero(pair.a) | is_zero(pair.b))


def topk_intersection(
    a: Tensor, b: Tensor, k: float | int | None = None, per_pixel: bool = False, signed: bool = False
) -> PerImage:
    """Share of the top entries of one map that the other keeps, `|top_k(a) and top_k(b)| / k`.

    Args:
        a: clean maps (N, ...), which determine k.
        b: maps of the same shape.
        k: share of all entries (a float), their number (an int), or None for 40 % of the non-zeros of a; never more
            than a has non-zeros. Of equal entries the first count, and zeros never do.
        per_pixel: sum |map| over the channels first.
        signed: count as published code does: the largest signed values, of which those above zero count, out of k.

    Returns:
        One number per image in [0, 1]; higher is more similar. NaN if exactly one map is zero.

    Example:
        >>> mg.topk_intersection(torch.tensor([[4.0, 3.0, 2.0, 1.0]]), torch.tensor([[4.0, 1.0, 2.0, 3.0]]), k=2)
        tensor([0.5000])
    """
    m.require_boolean("per_pixel", per_pixel)
    pair = read_pair(a, b, signed)
    first, second = ((sum_channels(each, signed) if per_pixel else each).flatten(1) for each in (pair.a, pair.b))
    require_top("k", k, first.shape[1])
    most = count_top(k, first.abs())
    common = (top_entries(first, most) & top_entries(second, most)).sum(1)
    return pair.result(common.to(first.dtype) / most, equal=1, undefined=is_zero(first) | is_zero(second))


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
    m.require_boolean("raw", raw)
    pair = read_pair(a, b, signed=raw)
    m.require_pictures(tuple(pair.a.shape))
    height, width = pair.a.shape[-2:]
    if min(height, width) < WINDOW:
        raise ValueError(
            f"maps must be at least {WINDOW} x {WINDOW} for a window of that size, got {height} x {width}; "
            "enlarge them first by torch.nn.functional.interpolate(map, size=(224, 224), mode='bilinear'), or leave "
            "ssim out (of a study by metrics=)"
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
    shift = norm(_centre_of_mass(sum_channels(pair.a)) - _centre_of_mass(sum_channels(pair.b)))
    return pair.result(shift, equal=0, undefined=is_zero(pair.a) | is_zero(pair.b))


def require_top(name: str, k: Any, entries: int) -> None:
    """How many entries count as the top ones: a share, a number, or None."""
    if k is None:
        return
    validate.number(name, k)
    if isinstance(k, Integral):
        if not 1 <= int(k) <= entries:
            raise ValueError(
                f"{name} must be 1 to {entries}, the number of entries of a map, got {k}; a share is written as a "
                f"float: {name}=0.25"
            )
    elif not 0 < k <= 1:
        raise ValueError(
            f"{name} must be in (0, 1] as a share of the entries, got {k!r}; a number is written as an int"
        )


def top_entries(sizes: Flat, most: Int[Tensor, "n"]) -> Bool[Tensor, "n d"]:
    """Which entries are the `most` largest of each row and not zero; the first of equal ones."""
    order = sizes.argsort(stable=True, dim=1, descending=True)
    places = torch.arange(sizes.shape[1], device=sizes.device) < most[:, None]
    return torch.zeros_like(places).scatter(1, order, places) & (sizes > 0)


def count_top(k: float | int | None, first: Flat) -> Int[Tensor, "n"]:
    """How many entries of each row are its largest: 40 % of the non-zeros, a share of all, or a number."""
    filled = (first > 0).sum(1)
    if k is None:
        return torch.minimum((filled * 2 // 5).clamp(min=1), filled)
    # 0.29 * 100 is a little below 29
    most = int(k) if isinstance(k, Integral) else int(float(k) * first.shape[1] + 1e-9)
    return filled.clamp(max=max(most, 1))


def ranks(x: Flat) -> Flat:
    """Ranks from 0 of the entries of each row; equal entries get the mean of theirs."""
    ordered, x = x.sort(1).values, x.contiguous()
    below, up_to = torch.searchsorted(ordered, x), torch.searchsorted(ordered, x, right=True)
    return (below + up_to - 1).to(x.dtype) / 2


def _unit_norm(x: Images) -> Images:
    x = unit_scale(x)
    length = norm(x)
    return x / spread(length.masked_fill(length == 0, 1), x)


def _correlation(a: Images, b: Images) -> PerImage:
    first, second = (each.flatten(1).amax(1) == each.flatten(1).amin(1) for each in (a, b))  # constant maps
    numbers = total(_unit_norm(_centre(a)) * _unit_norm(_centre(b))).clamp(-1, 1)
    return numbers.masked_fill(first | second, torch.nan).masked_fill(first & second, 1)


def _centre(x: Images) -> Images:
    """Subtracts the mean; the smallest entry first, which keeps the digits of maps whose entries are nearly equal.

    Halves, because the difference of the largest numbers would overflow.
    """
    x = unit_scale(x / 2 - spread(x.flatten(1).amin(1) / 2, x))
    return x - spread(total(x) / x[0].numel(), x)


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


def _centre_of_mass(x: Planes) -> Float[Tensor, "n 2"]:
    row, column = (torch.arange(size, dtype=x.dtype, device=x.device) for size in x.shape[1:])
    return torch.stack([total(x * row[:, None]), total(x * column)], 1) / total(x)[:, None]
