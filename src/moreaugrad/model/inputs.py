"""What goes into a network and which of its outputs is explained: tuples of inputs, targets, further arguments."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor

from moreaugrad.types import ForwardFunc, Images, Target

Owners = Int[Tensor, "r"]  # the image that each row belongs to


@dataclass(frozen=True, eq=False)
class Packing:
    """Turns the user's inputs into one tensor and back, so that every solver and prior works on a single batch.

    One tensor keeps its shape, so that a prior knows its pixels; a tuple becomes flat rows.
    """

    shapes: tuple[tuple[int, ...], ...]
    dtypes: tuple[torch.dtype, ...]

    @classmethod
    def of(cls, inputs: tuple[Tensor, ...]) -> Packing:
        return cls(tuple(tuple(t.shape[1:]) for t in inputs), tuple(t.dtype for t in inputs))

    def pack(self, inputs: tuple[Tensor, ...], graph: bool = False) -> Images:
        """One fresh float32 (float64 where an input is) tensor; detached from the caller's graph unless `graph`."""
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


def place_target(target: Target, x: Tensor) -> Target:
    """The same target on the device of the images: once, or in every step the host would wait for the device."""
    if isinstance(target, Tensor) and target.numel() == 1:
        return int(target)
    if isinstance(target, list) and isinstance(target[0], int):
        return torch.tensor(target, device=x.device)
    return target


def take_target(target: Target, owners: Owners) -> Target:
    """The targets of the images `owners`, one per row; one that serves every image as it is."""
    if target is None or isinstance(target, int | tuple) or (isinstance(target, Tensor) and target.numel() == 1):
        return target
    if isinstance(target, Tensor):
        return target.to(owners.device)[owners]
    return [target[i] for i in owners.tolist()]


def select_target(output: Tensor, target: Target) -> Tensor:
    """One number per row of the output."""
    if target is None:
        return output.reshape(len(output))
    if isinstance(target, Tensor) and target.numel() == 1:
        target = int(target.item())
    if isinstance(target, int):
        return output[:, target]
    if isinstance(target, tuple):
        return output[(slice(None), *target)]
    if isinstance(target, list) and isinstance(target[0], tuple):
        return torch.stack([output[(row, *index)] for row, index in enumerate(target)])
    columns = torch.as_tensor(target, device=output.device, dtype=torch.long) % output.shape[1]
    return output.gather(1, columns.view(-1, 1)).squeeze(1)


def report_target(target: Target, x: Images) -> Target:
    """The target as a result reports it: one class per image where there is one."""
    if isinstance(target, int):
        return torch.full((len(x),), target, dtype=torch.long, device=x.device)
    if isinstance(target, Tensor):
        return target.to(x.device).long().reshape(-1).expand(len(x))
    if isinstance(target, list) and isinstance(target[0], int):
        return torch.tensor(target, device=x.device)
    return target


def take_argument(argument: Any, owners: Owners, images: int) -> Any:
    """A further forward argument for the rows of `owners`: tensors with one row per image follow it."""
    if isinstance(argument, Tensor) and argument.ndim >= 1 and len(argument) == images:
        return argument[owners.to(argument.device)]
    return argument


def black_baseline(forward: ForwardFunc, given: tuple[Tensor, ...]) -> Tensor | float:
    """The black picture of a classifier that knows its own normalisation; zero for any other."""
    box = getattr(forward, "box", None)
    if not isinstance(box, tuple) or len(given) != 1:
        return 0.0
    black: Tensor = box[0].to(given[0].device, given[0].dtype).expand(1, *given[0].shape[1:])
    return black
