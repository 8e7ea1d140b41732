"""Many inputs as one tensor: what lets every solver and prior see a single batch.

One tensor keeps its shape, so that a prior knows its pixels; a tuple becomes flat rows.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from moreaugrad.types import Images


@dataclass(frozen=True, eq=False)
class Packing:
    """Knows the shapes and dtypes of the user's inputs, and goes both ways."""

    shapes: tuple[tuple[int, ...], ...]
    dtypes: tuple[torch.dtype, ...]

    @classmethod
    def of(cls, inputs: tuple[Tensor, ...]) -> Packing:
        return cls(tuple(tuple(t.shape[1:]) for t in inputs), tuple(t.dtype for t in inputs))

    def pack(self, inputs: tuple[Tensor, ...], graph: bool = False) -> Images:
        """One fresh float32 (float64 where an input is) tensor; cut off from the caller's graph unless told."""
        wide = torch.float64 if torch.float64 in self.dtypes else torch.float32
        with torch.inference_mode(False), torch.set_grad_enabled(graph):
            rows = [(t if graph else t.detach()).to(wide) for t in inputs]
            return rows[0].clone() if len(rows) == 1 else torch.cat([t.flatten(1) for t in rows], dim=1)

    def split(self, x: Float[Tensor, "r ..."]) -> tuple[Tensor, ...]:
        """The inputs' shapes again, in the dtype of x."""
        if len(self.shapes) == 1:
            return (x,)
        pieces = x.split([torch.Size(shape).numel() for shape in self.shapes], dim=1)
        return tuple(piece.reshape(len(x), *shape) for piece, shape in zip(pieces, self.shapes, strict=True))

    def unpack(self, x: Float[Tensor, "r ..."]) -> tuple[Tensor, ...]:
        """Rows as the model takes them: the user's shapes and dtypes."""
        return tuple(piece.to(dtype) for piece, dtype in zip(self.split(x), self.dtypes, strict=True))
