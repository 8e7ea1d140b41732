"""The group prior: a sum of Euclidean norms over a partition of the entries."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from moreaugrad.batch import total
from moreaugrad.envelope.priors_l1 import keep_largest
from moreaugrad.types import Images, PerImage


@dataclass(frozen=True, eq=False)
class Group:
    """sum over groups S of |delta_S|_2: keeps or drops whole groups.

    `labels` gives each flattened entry its group, for all images alike (one row) or one row per image;
    `priors.groups` makes them.
    """

    labels: Int[Tensor, "rows d"]
    counts: tuple[int, ...]  # groups of each row, numbered from 0 without gaps

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

    def bend(self, delta: Images, q: Images) -> Images:
        """(q_S - u <u, q_S>) / |delta_S| with u = delta_S / |delta_S|."""
        along = self._sums(delta * q).to(delta.dtype) / self._safe(delta).square()
        return self.stiffness(delta) * (q - delta * self._spread(along, delta))

    def stiffness(self, delta: Images) -> Images:
        return self._spread((self.units(delta) > 0) / self._safe(delta), delta)

    def _safe(self, delta: Images) -> Float[Tensor, "n m"]:
        """The norm of each group, 1 where it is zero."""
        norms = self.units(delta)
        return torch.where(norms > 0, norms, 1.0)

    def _spread(self, each: Tensor, delta: Images) -> Tensor:
        """One value per group, at every entry."""
        return each.gather(1, self.labels.expand(len(delta), -1)).view_as(delta)

    def units(self, delta: Images) -> Float[Tensor, "n m"]:
        sums = self._sums(delta.square())
        # the square root has no derivative at zero, and a group that is zero has none either
        alive = sums > 0
        return torch.where(alive, torch.where(alive, sums, 1.0).sqrt(), 0.0).to(delta.dtype)

    def _sums(self, entries: Images) -> Float[Tensor, "n m"]:
        # float64 sums make the order in which a GPU adds the entries of a group immaterial
        wide = entries.dtype if entries.device.type == "mps" else torch.float64
        sums = torch.zeros(len(entries), max(self.counts), dtype=wide, device=entries.device)
        return sums.scatter_add(1, self.labels.expand(len(entries), -1), entries.flatten(1).to(wide))

    def take(self, which: Int[Tensor, "k"]) -> Group:
        if len(self.counts) == 1:
            return self
        return Group(self.labels[which], tuple(self.counts[i] for i in which.tolist()))
