"""What an attack found, and the strongest of several attacks on the same images. Holds no algorithm."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor

from moreaugrad.types import Counts, Flags, Images, PerImage


@dataclass(frozen=True, slots=True)
class Attacked:
    """The attacked inputs; where nothing valid was found, success is False and x the input (but of plain noise)."""

    x: Images
    success: Flags  # a valid point that lowers the objective (for attacks on the class: the class has changed)
    kept: Flags  # the model predicts at x what it predicted before
    objective: PerImage  # at x, on the model itself; smaller is better for the attacker
    trace: Float[Tensor, "steps n"]  # the best valid objective so far; the first entry is the clean input's
    gradients: Counts  # sample-gradients spent; the derivative of a gradient counts as two more
    target: Int[Tensor, "n"]  # the class whose map, or which itself, was attacked
    l2: PerImage  # length of the change, in the units of the input
    linf: PerImage
    pixels_l2: PerImage | None = (
        None  # the same in steps of 8-bit pixels, by the model's box, else by that of the attack
    )
    pixels_linf: PerImage | None = None


def strongest(found: Sequence[Attacked], by: Sequence[PerImage] | None = None) -> tuple[Attacked, Int[Tensor, "n"]]:
    """Of several attacks on the same images, for each image the valid one with the smallest figure (default: the
    objective), and its number. Holds what all attacks tell; the gradients are those of all together."""
    figures = torch.stack([each.objective for each in found] if by is None else list(by))
    valid = torch.stack([each.success for each in found])
    order = torch.where(valid, figures, torch.inf).nan_to_num(nan=torch.inf)
    best = order.argmin(0)

    def choose(values: list[Any]) -> Any:
        picked = values[0]
        if picked is None:
            return None
        for number, value in enumerate(values[1:], 1):
            picked = torch.where((best == number).view(-1, *[1] * (value.ndim - 1)), value, picked)
        return picked

    names = [each.name for each in fields(Attacked) if each.name not in ("trace", "gradients")]
    chosen = {name: choose([getattr(each, name) for each in found]) for name in names}
    traces = torch.stack([each.trace[-1] for each in found]).cummin(0).values
    trace = torch.cat([found[0].trace[:1], traces.minimum(found[0].trace[:1])])
    total = torch.stack([each.gradients for each in found]).sum(0)
    return Attacked(**chosen, trace=trace, gradients=total), best
