"""Similarity of two batches of maps, entry by entry: distances, correlations, common top entries.

Each takes |map| unless `signed=True`, ignores the scale of the maps, and is symmetric where not said otherwise.
"""

from __future__ import annotations

from numbers import Integral

import torch
from jaxtyping import Bool, Int
from torch import Tensor

from moreaugrad.batch import norm, spread, total
from moreaugrad.metrics import checks
from moreaugrad.metrics.maps import Flat, planes, read_pair, scaled, zero
from moreaugrad.types import Flags, Images, PerImage


def normalised_distance(a: Tensor, b: Tensor, signed: bool = False) -> PerImage:
    """|a/|a| - b/|b||_2 in [0, 2], at most sqrt(2) unsigned; equals sqrt(2 - 2 cosine).

    Two zero maps are 0 apart, a zero map is 1 from any other.
    """
    pair = read_pair(a, b, signed)
    return pair.answer(norm(_unit(pair.a) - _unit(pair.b)).clamp(max=2), itself=0)


def cosine(a: Tensor, b: Tensor, signed: bool = False) -> PerImage:
    """<a, b> / (|a| |b|). NaN where one map is zero and the other is not; two zero maps are alike: 1."""
    pair = read_pair(a, b, signed)
    figures = total(_unit(pair.a) * _unit(pair.b)).clamp(-1, 1)
    return pair.answer(figures, itself=1, undefined=zero(pair.a) | zero(pair.b))


def pearson(a: Tensor, b: Tensor, signed: bool = False) -> PerImage:
    """The cosine of the centred maps. NaN where just one of them is constant; two constant maps are alike: 1."""
    pair = read_pair(a, b, signed)
    return pair.answer(_correlation(pair.a, pair.b), itself=1)


def spearman(a: Tensor, b: Tensor, signed: bool = False) -> PerImage:
    """Pearson correlation of the ranks; equal entries share the mean of their ranks. Constant maps as in `pearson`."""
    pair = read_pair(a, b, signed)
    return pair.answer(_correlation(ranks(pair.a.flatten(1)), ranks(pair.b.flatten(1))), itself=1)


def kl_divergence(a: Tensor, b: Tensor) -> PerImage:
    """sum p log(p/q) of p = |a|/sum|a| and q = |b|/sum|b|, in nats; not symmetric.

    Infinite where b is zero at a place where a is not, as sparse maps mostly are; NaN where just one map is zero.
    """
    pair = read_pair(a, b)
    p, q = (scaled(each) / spread(total(scaled(each)), each) for each in (pair.a, pair.b))
    figures = total(torch.special.xlogy(p, p) - torch.special.xlogy(p, q)).clamp(min=0)
    return pair.answer(figures, itself=0, undefined=zero(pair.a) | zero(pair.b))


def topk_intersection(
    a: Tensor, b: Tensor, k: float | int | None = None, per_pixel: bool = False, signed: bool = False
) -> PerImage:
    """|top_k(a) and top_k(b)| / k, largest sizes first, ties by index; zeros are never among them.

    k comes from the first, clean map: 40 % of its non-zeros, or that share of all entries (a float: 0.25), or that
    many (an int: 1000), but no more than a has non-zeros. `per_pixel` sums |.| over the channels first. `signed`
    is the count of published code: the largest signed values, of which those above zero count, out of the same k.
    NaN where one map is zero and the other is not: a map of zeros has no largest entries.
    """
    checks.yes_or_no("per_pixel", per_pixel)
    pair = read_pair(a, b, signed)
    first, second = ((planes(each, signed) if per_pixel else each).flatten(1) for each in (pair.a, pair.b))
    checks.top("k", k, first.shape[1])
    most = count(k, first.abs())
    common = (leading(first, most) & leading(second, most)).sum(1)
    return pair.answer(common.to(first.dtype) / most, itself=1, undefined=zero(first) | zero(second))


def leading(sizes: Flat, most: Int[Tensor, "n"]) -> Bool[Tensor, "n d"]:
    """Which entries are the `most` largest of each row and not zero; the first of equal ones."""
    order = sizes.argsort(stable=True, dim=1, descending=True)
    places = torch.arange(sizes.shape[1], device=sizes.device) < most[:, None]
    return torch.zeros_like(places).scatter(1, order, places) & (sizes > 0)


def ranks(x: Flat) -> Flat:
    """Ranks from 0 of the entries of each row, the mean of theirs for equal ones."""
    ordered, order = x.sort(1)
    at = torch.arange(x.shape[1], device=x.device).expand_as(order)
    differs = (ordered[:, 1:] != ordered[:, :-1]).nonzero(as_tuple=True)
    first, last = torch.zeros_like(order), torch.full_like(order, x.shape[1] - 1)
    first[differs[0], differs[1] + 1] = at[differs[0], differs[1] + 1]
    last[differs[0], differs[1]] = at[differs[0], differs[1]]
    first, last = first.cummax(1).values, last.flip(1).cummin(1).values.flip(1)
    return torch.empty_like(x).scatter(1, order, (first + last).to(x.dtype) / 2)


def count(k: float | int | None, first: Flat) -> Int[Tensor, "n"]:
    """How many entries of each row are its largest: 40 % of the non-zeros, a share of all, or a number."""
    filled = (first > 0).sum(1)
    if k is None:
        return torch.minimum((filled * 2 // 5).clamp(min=1), filled)
    # 0.29 * 100 is a little below 29
    most = int(k) if isinstance(k, Integral) else int(float(k) * first.shape[1] + 1e-9)
    return filled.clamp(max=max(most, 1))


def _unit(x: Images) -> Images:
    x = scaled(x)
    length = norm(x)
    return x / spread(length.masked_fill(length == 0, 1), x)


def _correlation(a: Images, b: Images) -> PerImage:
    flat = [_constant(each) for each in (a, b)]
    figures = total(_unit(_centred(a)) * _unit(_centred(b))).clamp(-1, 1)
    return figures.masked_fill(flat[0] | flat[1], torch.nan).masked_fill(flat[0] & flat[1], 1)


def _centred(x: Images) -> Images:
    """Less its mean; less its smallest entry first, which costs no digits where all entries are nearly one.

    Halves, for the difference of the largest numbers would overflow.
    """
    x = scaled(x / 2 - spread(x.flatten(1).amin(1) / 2, x))
    return x - spread(total(x) / x[0].numel(), x)


def _constant(x: Images) -> Flags:
    return x.flatten(1).amax(1) == x.flatten(1).amin(1)
