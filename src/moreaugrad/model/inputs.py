"""What goes into a network and which of its outputs is explained: inputs, arguments, parts of outputs, targets."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor

from moreaugrad import validate
from moreaugrad.types import ForwardFunc, Images, Output, ScoreFunc, Target

Owners = Int[Tensor, "r"]  # the image that each row belongs to

_ROWS = (
    "reduce over the other axes only, as in out[:, 3].sum((1, 2)), with masks that broadcast over the rows: they come "
    "in chunks, not as your batch"
)


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


def read_output(found: Any, rows: int, output: Output = None, score: ScoreFunc | None = None) -> Tensor:
    """The tensor (rows, ...) that is explained in what a network returned: the part `output`, then `score` of it."""
    part = found if output is None else pick_output(found, output)
    if score is None:
        return validate.output(part, rows)
    try:
        scores: Any = score(part)
    except RuntimeError as error:
        if "must match" not in str(error):
            raise
        raise ValueError(f"score must take any number of rows, got {rows} and failed: {error}; {_ROWS}") from error
    if not isinstance(scores, Tensor):
        raise TypeError(f"score must return a tensor of scores (N, K) or (N,), got {type(scores).__name__}")
    if scores.ndim == 0 or len(scores) != rows:
        raise ValueError(
            f"score must return one row per row that it gets, got shape {tuple(scores.shape)} for {rows} row(s); "
            f"{_ROWS}"
        )
    return scores


def pick_output(found: Any, output: Output) -> Any:
    """The part of a tuple, list, dict or object that a function, a name or a position picks."""
    if callable(output):
        return output(found)
    if isinstance(found, Tensor):
        raise TypeError(
            f"output={output!r} picks a part of what the model returns, got a model that returns one tensor, of shape "
            f"{tuple(found.shape)}; leave output out, and choose among its entries by target"
        )
    try:
        by_name = isinstance(output, str) and not isinstance(found, Mapping)
        return getattr(found, str(output)) if by_name else found[output]
    except (KeyError, IndexError, AttributeError, TypeError):
        parts = list(found) if isinstance(found, Mapping) else list(getattr(found, "__dict__", ()))
        has = f"the parts {parts}" if parts else f"{len(found)} part(s)" if hasattr(found, "__len__") else "no parts"
        raise ValueError(
            f"output must name a part of what the model returns, got {output!r} for a {type(found).__name__} with {has}"
        ) from None


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
