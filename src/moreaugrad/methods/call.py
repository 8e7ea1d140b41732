"""One call of a method: what a caller gave, what the method sees of it, and how answers take the caller's form."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from moreaugrad.model.noise import Smoothing
from moreaugrad.model.packing import Packing
from moreaugrad.model.score import ClassScore
from moreaugrad.model.smoothing import SmoothedScore
from moreaugrad.results import Explanation
from moreaugrad.types import Counts, ForwardFunc, Images, Target, Watch


@dataclass(frozen=True, eq=False)
class Call:
    """One batch as a method sees it."""

    score: ClassScore
    x: Images
    packing: Packing
    seed: int
    watch: Watch
    images: int  # of the whole call
    some: slice  # those that x holds
    baseline: Images | None = None  # what x is compared with, where the method compares
    graph: bool = False  # whether the map is to be differentiated again

    def each(self, number: int) -> Counts:
        """The same number for every image."""
        return torch.full((len(self.x),), number, device=self.x.device)

    def of(self, some: slice) -> Images | None:
        """The baseline of some images."""
        return None if self.baseline is None else self.baseline[some]

    def part(self, given: Any) -> Any:
        """What a caller gave for each image, cut to the images of this batch."""
        many = isinstance(given, Tensor | np.ndarray | list) and len(np.shape(given)) > 0 and self.images > 1
        return given[self.some] if many and len(given) == self.images else given

    def smoothed(self, smoothing: Smoothing) -> SmoothedScore:
        """The score under noise, each input of a tuple by its own range."""
        pieces = self.packing.split(self.x)
        scales = [smoothing.scale(piece.detach()) for piece in pieces]
        if len(pieces) > 1:
            wide = [scale.expand_as(piece).flatten(1) for scale, piece in zip(scales, pieces, strict=True)]
            scales = [torch.cat(wide, dim=1)]
        return SmoothedScore(self.score, smoothing, scales[0], self.seed)


@dataclass(frozen=True, eq=False)
class Asked:
    """What a caller gave, as it came."""

    inputs: Any
    target: Target
    arguments: Any
    baselines: Any
    internal_batch_size: int | None
    create_graph: bool
    predict: bool  # whether a missing target is the predicted class


def answer(inputs: Tensor | tuple[Tensor, ...], found: Explanation, delta: bool) -> Any:
    """A result as Captum returns it."""
    like = inputs if isinstance(inputs, tuple) else (inputs,)
    maps = tuple(m.to(t.dtype) for m, t in zip(_tuple(found.map), like, strict=True))
    answer = maps if isinstance(inputs, tuple) else maps[0]
    return (answer, found.residual) if delta else answer


def further(watch: Watch, block: int, blocks: int, step: int, total: int, info: Mapping[str, Any]) -> None:
    """Progress of one of several blocks."""
    watch(block * total + step, blocks * total, info)


def _tuple(found: Tensor | tuple[Tensor, ...]) -> tuple[Tensor, ...]:
    return found if isinstance(found, tuple) else (found,)


def black(forward: ForwardFunc, given: tuple[Tensor, ...]) -> Any:
    """The black picture of a classifier that knows its own normalisation; zero for any other."""
    box = getattr(forward, "box", None)
    if not isinstance(box, tuple) or len(given) != 1:
        return None
    return box[0].to(given[0].device, given[0].dtype).expand(1, *given[0].shape[1:])


def arguments(given: Any) -> tuple[Any, ...]:
    if given is None:
        return ()
    return given if isinstance(given, tuple) else (given,)


def shape(packing: Packing, found: Images | None, *, whole: bool) -> Any:
    """A packed result in the user's shapes: a tuple where the inputs were one."""
    if found is None:
        return None
    pieces = packing.split(found)
    return pieces if whole else pieces[0]


def target_told(target: Target, x: Images) -> Any:
    """The target as the result reports it: one class per image where there is one."""
    if isinstance(target, int):
        return torch.full((len(x),), target, dtype=torch.long, device=x.device)
    if isinstance(target, Tensor):
        return target.to(x.device).long().reshape(-1).expand(len(x))
    if isinstance(target, list) and isinstance(target[0], int):
        return torch.tensor(target, device=x.device)
    return target


def plain(value: Any) -> Any:
    """An option as text or number."""
    return value if value is None or isinstance(value, int | float | str) else repr(value)
