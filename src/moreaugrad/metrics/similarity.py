"""Similarity of two batches of maps, entry by entry: distances, correlations, common top entries.

Each compares |map| unless `signed=True`, ignores the scale of the maps, and is symmetric unless it says otherwise.
"""

from __future__ import annotations

from numbers import Integral
from typing import Any

import torch
from jaxtyping import Bool, Int
from torch import Tensor

from moreaugrad import validate
from moreaugrad.batch import norm, spread, total
from moreaugrad.metrics.maps import Flat, is_zero, read_pair, require_boolean, sum_channels, unit_scale
from moreaugrad.types import Images, PerImage


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
    require_boolean("per_pixel", per_pixel)
    pair = read_pair(a, b, signed)
    first, second = ((sum_channels(each, signed) if per_pixel else each).flatten(1) for each in (pair.a, pair.b))
    require_top("k", k, first.shape[1])
    most = count_top(k, first.abs())
    common = (top_entries(first, most) & top_entries(second, most)).sum(1)
    return pair.result(common.to(first.dtype) / most, equal=1, undefined=is_zero(first) | is_zero(second))


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
