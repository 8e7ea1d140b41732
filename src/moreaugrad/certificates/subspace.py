"""Where displacements live: all of the input's entries, or patterns that are constant on the cells of a grid."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn import functional as F

from moreaugrad.certificates import checks_units as units_rules


@dataclass(frozen=True, slots=True)
class Whole:
    """Every entry by itself."""

    shape: tuple[int, ...]

    @property
    def size(self) -> int:
        return math.prod(self.shape)

    def project(self, x: Float[Tensor, "n ..."]) -> Float[Tensor, "n ..."]:
        return x

    def embed(self, q: Float[Tensor, "n ..."]) -> Float[Tensor, "n ..."]:
        return q


@dataclass(frozen=True, slots=True)
class Grid:
    """P q: each channel constant on cells x cells blocks. P'P = 1, so that lengths are those of the pattern."""

    image: tuple[int, ...]  # channels, height, width
    cells: int

    def __post_init__(self) -> None:
        units_rules.grid(self.cells, self.image)

    @property
    def shape(self) -> tuple[int, ...]:
        return (self.image[0], self.cells, self.cells)

    @property
    def size(self) -> int:
        return math.prod(self.shape)

    @property
    def _block(self) -> tuple[int, int]:
        return self.image[1] // self.cells, self.image[2] // self.cells

    def project(self, x: Float[Tensor, "n c h w"]) -> Float[Tensor, "n c i j"]:
        return F.avg_pool2d(x, self._block) * math.sqrt(math.prod(self._block))

    def embed(self, q: Float[Tensor, "n c i j"]) -> Float[Tensor, "n c h w"]:
        wide = q.repeat_interleave(self._block[0], 2).repeat_interleave(self._block[1], 3)
        return wide / math.sqrt(math.prod(self._block))


def space_of(x: Tensor, grid: int | None) -> Whole | Grid:
    shape = tuple(torch.Size(x.shape[1:]))
    return Whole(shape) if grid is None else Grid(shape, grid)
