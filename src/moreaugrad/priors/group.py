"""The group prior: a sum of Euclidean norms over a partition of the entries."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor

from moreaugrad.contracts import Images, PerImage
from moreaugrad.priors.l1 import keep_largest
from moreaugrad.shapes import total


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
        labels = self.labels.expand(len(delta), -1)
        return delta * scale.gather(1, labels).view_as(delta)

    def level(self, u: Images, keep: float) -> PerImage:
        units = self.units(u)
        if len(self.counts) == 1:
            return keep_largest(units, keep)
        own = zip(units, self.counts, strict=True)  # norms beyond an image's own groups are padding
        return torch.cat([keep_largest(row[None, :count], keep) for row, count in own])

    def units(self, delta: Images) -> Float[Tensor, "n m"]:
        squares = delta.flatten(1).square()
        # float64 sums make the order in which a GPU adds the entries of a group immaterial
        wide = squares.dtype if squares.device.type == "mps" else torch.float64
        sums = torch.zeros(len(delta), max(self.counts), dtype=wide, device=delta.device)
        sums.scatter_add_(1, self.labels.expand(len(delta), -1), squares.to(wide))
        return sums.sqrt().to(delta.dtype)

    def take(self, which: Int[Tensor, "k"]) -> Group:
        if len(self.counts) == 1:
            return self
        return Group(self.labels[which], tuple(self.counts[i] for i in which.tolist()))
