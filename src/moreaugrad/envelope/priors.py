"""Penalties of the displacement. A new prior is one class and one line in `PRIORS`, or one call of `register`."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from moreaugrad.batch import spread, total, widest
from moreaugrad.registry import Entry, Table
from moreaugrad.types import Images, PerImage, Prior

PRIORS = Table(
    "prior",
    zero=Entry("moreaugrad.envelope.priors:Zero", "no penalty: the plain Moreau envelope"),
    l1=Entry("moreaugrad.envelope.priors:L1", "sum of absolute values: keeps single entries"),
    group=Entry("moreaugrad.envelope.priors:Group", "sum of group norms: keeps whole groups of entries"),
)


@dataclass(frozen=True, slots=True)
class Zero:
    """No penalty, 0: the plain Moreau envelope, in which every entry is kept.

    Example:
        >>> mg.Zero().prox(x, torch.ones(2)).equal(x)
        True
    """

    convex: ClassVar[bool] = True

    def value(self, delta: Images) -> PerImage:
        return delta.new_zeros(len(delta))

    def prox(self, delta: Images, amount: PerImage) -> Images:
        return delta

    def level(self, u: Images, keep: float) -> PerImage:
        return u.new_zeros(len(u))

    def units(self, delta: Images) -> Float[Tensor, "n m"]:
        return delta.abs().flatten(1)

    def active(self, delta: Images) -> Bool[Tensor, "n *shape"]:
        return torch.ones_like(delta, dtype=torch.bool)

    def hessian_product(self, delta: Images, q: Images) -> Images:
        return torch.zeros_like(q)

    def stiffness(self, delta: Images) -> Images:
        return torch.zeros_like(delta)


@dataclass(frozen=True, slots=True)
class L1:
    """|delta|_1, the sum of absolute values: keeps single entries, the others become exactly zero.

    Example:
        >>> mg.L1().prox(torch.tensor([[3.0, -0.5]]), torch.ones(1))
        tensor([[2., 0.]])
    """

    convex: ClassVar[bool] = True
    default_sparsity: ClassVar[float] = 0.05

    def value(self, delta: Images) -> PerImage:
        return total(delta.abs())

    def prox(self, delta: Images, amount: PerImage) -> Images:
        bound = spread(amount, delta)
        return delta - delta.clamp(-bound, bound)  # exact zeros, no mask, no division

    def level(self, u: Images, keep: float) -> PerImage:
        return keep_largest(self.units(u), keep)

    def units(self, delta: Images) -> Float[Tensor, "n m"]:
        return delta.abs().flatten(1)

    def active(self, delta: Images) -> Bool[Tensor, "n *shape"]:
        return delta != 0

    def hessian_product(self, delta: Images, q: Images) -> Images:
        return torch.zeros_like(q)  # straight wherever it has a derivative

    def stiffness(self, delta: Images) -> Images:
        return torch.zeros_like(delta)


@dataclass(frozen=True, eq=False)
class Group:
    """sum over groups S of |delta_S|_2: keeps or drops whole groups of entries.

    Args:
        groups: a number of cells per side of a grid over the last two axes, all others pooled (of signals (N, C, T):
            pieces of the last axis); "superpixels" of images; "channels" (axis 1); or integer labels. Their shape is
            that of the inputs, (1, ...) for all images or (N, ...) for each its own, where axes of length 1 are spread,
            or a part of it: (d,) all entries, flat; (C, H, W) one image; (H, W) or (N, H, W) without channels, also
            where N is the number of channels; of videos (T, H, W), or (H, W) for every frame; of signals (C, T) or
            (T,); of tokens (tokens, dim), or (tokens,) and (N, tokens) with one label for each token.
            For several inputs a tuple, one of these for each; a number or a word alone holds for every input.

    Example:
        >>> prior = mg.Group(groups=4).for_batch(x)
        >>> prior.units(x).shape  # one norm for each of 4 x 4 cells
        torch.Size([2, 16])
    """

    convex: ClassVar[bool] = True
    default_sparsity: ClassVar[float] = 0.15

    groups: Any = 16
    labels: Int[Tensor, "rows d"] | None = field(default=None, repr=False)  # of each flattened entry; one row for all
    counts: tuple[int, ...] = field(default=(), repr=False)  # groups of each row, numbered from 0 without gaps

    def for_batch(self, x: Images | tuple[Tensor, ...]) -> Group:
        """The same prior with the groups of these images; of several inputs a tuple."""
        from moreaugrad.envelope.groups import label_groups

        labels, counts = label_groups(self.groups, x)
        return replace(self, labels=labels, counts=counts)

    def value(self, delta: Images) -> PerImage:
        return total(self.units(delta))

    def prox(self, delta: Images, amount: PerImage) -> Images:
        norms = self.units(delta)
        # 0/0 where a group is zero: any finite scale will do, for it multiplies zeros
        scale = (1 - amount[:, None] / norms.clamp_min(torch.finfo(norms.dtype).tiny)).clamp_min(0)
        return delta * self._spread(scale, delta)

    def level(self, u: Images, keep: float) -> PerImage:
        units = self.units(u)
        if len(self.counts) == 1:
            return keep_largest(units, keep)
        own = zip(units, self.counts, strict=True)  # norms beyond an image's own groups are padding
        return torch.cat([keep_largest(row[None, :count], keep) for row, count in own])

    def active(self, delta: Images) -> Bool[Tensor, "n *shape"]:
        return self._spread(self.units(delta) > 0, delta)

    def hessian_product(self, delta: Images, q: Images) -> Images:
        """(q_S - u <u, q_S>) / |delta_S| with u = delta_S / |delta_S|."""
        along = self._sums(delta * q).to(delta.dtype) / self._safe_norms(delta).square()
        return self.stiffness(delta) * (q - delta * self._spread(along, delta))

    def stiffness(self, delta: Images) -> Images:
        return self._spread((self.units(delta) > 0) / self._safe_norms(delta), delta)

    def units(self, delta: Images) -> Float[Tensor, "n m"]:
        sums = self._sums(delta.square())
        # the square root has no derivative at zero, and a group that is zero has none either
        alive = sums > 0
        return torch.where(alive, torch.where(alive, sums, 1.0).sqrt(), 0.0).to(delta.dtype)

    def take(self, which: Int[Tensor, "k"]) -> Group:
        if self.labels is None or len(self.counts) == 1:
            return self
        return replace(self, labels=self.labels[which], counts=tuple(self.counts[i] for i in which.tolist()))

    def _safe_norms(self, delta: Images) -> Float[Tensor, "n m"]:
        """The norm of each group, 1 where it is zero."""
        norms = self.units(delta)
        return torch.where(norms > 0, norms, 1.0)

    def _index(self, delta: Images) -> Int[Tensor, "n d"]:
        if self.labels is None:
            raise ValueError("the groups of a batch must be known, got none; call Group(...).for_batch(x) first")
        return self.labels.expand(len(delta), -1)

    def _spread(self, each: Tensor, delta: Images) -> Tensor:
        """One value per group, at every entry."""
        return each.gather(1, self._index(delta)).view_as(delta)

    def _sums(self, entries: Images) -> Float[Tensor, "n m"]:
        # float64 sums make the order in which a GPU adds the entries of a group immaterial
        wide = widest(entries)
        index = self._index(entries)
        sums = torch.zeros(len(entries), max(self.counts), dtype=wide, device=entries.device)
        return sums.scatter_add(1, index, entries.flatten(1).to(wide))


def keep_largest(units: Float[Tensor, "n m"], keep: float) -> PerImage:
    """The bound that exactly round(keep * m) units of each row exceed (fewer where units tie)."""
    total = units.shape[1]
    kept = max(1, round(keep * total))
    if kept >= total:
        return units.new_zeros(len(units))
    return units.kthvalue(total - kept, dim=1).values


def find_level(prior: Prior, u: Images, keep: float) -> PerImage:
    """The amount whose prox keeps the share `keep` of the units: the prior's own answer, else by bisection."""
    own = getattr(prior, "level", None)
    if own is not None:
        found: PerImage = own(u, keep)
        return found
    units = prior.units(u)
    most = max(1, round(keep * units.shape[1]))
    low, high = units.new_zeros(len(u)), 2 * units.amax(1).clamp_min(torch.finfo(u.dtype).tiny)

    def keeps_too_many(amount: PerImage) -> Tensor:
        return (prior.units(prior.prox(u, amount)) > 0).sum(1) > most

    for _ in range(60):  # the weight that drops the last unit may be above the largest unit
        if not bool((over := keeps_too_many(high)).any()):
            break
        high = torch.where(over, 4 * high, high)
    else:
        raise ValueError(
            f"sparsity needs a prior that drops units as its weight grows, got {type(prior).__name__}, whose prox "
            "keeps them at every weight; give eta= instead"
        )
    high = torch.where(keeps_too_many(low), high, low)
    for _ in range(torch.finfo(u.dtype).bits):
        middle = (low + high) / 2
        over = keeps_too_many(middle)
        low, high = torch.where(over, middle, low), torch.where(over, high, middle)
    return high


def take_prior(prior: Prior, which: Int[Tensor, "k"], x: Images) -> Prior:
    """The prior of some of the images x: its own answer, else what it makes of them alone."""
    own, again = getattr(prior, "take", None), getattr(prior, "for_batch", None)
    if own is not None:
        return own(which)  # type: ignore[no-any-return]
    return prior if again is None else again(x[which])
