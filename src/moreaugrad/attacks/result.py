"""What an attack found, and the strongest of several attacks on the same images. Holds no algorithm."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Any, TypeVar

import torch
from jaxtyping import Float, Int
from torch import Tensor

from moreaugrad.types import Counts, Flags, Images, PerImage

Result = TypeVar("Result", bound="AttackResult")


@dataclass(frozen=True, slots=True)
class AttackResult:
    """What an attack found, one entry for each of the N images.

    Where nothing valid was found, `success` is False and `x` is the input itself (plain noise returns its image).

    Attributes:
        x: attacked inputs, of the shape of the inputs.
        success: whether a valid point lowered the objective; for attacks on the class, whether the class changed.
        kept: whether the model predicts at `x` what it predicted for the clean input.
        objective: at `x`, on the model itself; smaller is better for the attacker.
        trace: the best valid objective so far, (steps, N); the first row is that of the clean input.
        gradients: sample gradients spent; the derivative of a gradient counts as two more.
        target: the class that was attacked, or whose map was.
        l2: Euclidean length of the change, in the units of the input.
        linf: largest change of an entry, in the units of the input.
        pixels_l2: `l2` in steps of 8-bit pixels, by the model's box or else the attack's; None where neither is known.
        pixels_linf: `linf` likewise.

    Example:
        >>> found = mg.TopK(mg.Gradient(net), epsilon=0.5, steps=3).perturb(x)
        >>> found.x.shape, bool((found.l2 <= 0.5001).all())
        (torch.Size([2, 3, 16, 16]), True)
    """

    x: Images
    success: Flags
    kept: Flags
    objective: PerImage
    trace: Float[Tensor, "steps n"]
    gradients: Counts
    target: Int[Tensor, "n"]
    l2: PerImage
    linf: PerImage
    pixels_l2: PerImage | None = None
    pixels_linf: PerImage | None = None

    @property
    def success_rate(self) -> float:
        """The share of the images for which the attack succeeded."""
        return float(self.success.double().mean())


def extend_result(found: AttackResult, kind: type[Result], **more: Any) -> Result:
    """The same result with the further fields of a subclass."""
    return kind(**{each.name: getattr(found, each.name) for each in fields(found)}, **more)


def strongest_attack(
    found: Sequence[AttackResult], by: Sequence[PerImage] | None = None
) -> tuple[AttackResult, Int[Tensor, "n"]]:
    """For each image the strongest of several attacks: the successful one with the smallest figure.

    Use it to report one number for several attacks, seeds or sizes on the same images.

    Args:
        found: results of the attacks, all on the same N images.
        by: one tensor of N figures for each attack, small for a strong one; default the objectives.

    Returns:
        The result of the strongest attack on each image, with the gradients of all attacks together, and the index
        (N) of that attack in `found`.

    Example:
        >>> attacks = [mg.TopK(mg.Gradient(net), 0.5, steps=3, seed=seed) for seed in (0, 1)]
        >>> best, index = mg.strongest_attack([attack.perturb(x) for attack in attacks])
        >>> index.shape
        torch.Size([2])
    """
    figures = torch.stack([each.objective for each in found] if by is None else list(by))
    best = (
        torch.where(torch.stack([each.success for each in found]), figures, torch.inf)
        .nan_to_num(nan=torch.inf)
        .argmin(0)
    )

    def choose(name: str) -> Any:
        values = [getattr(each, name) for each in found]
        return None if values[0] is None else torch.stack(values)[best, torch.arange(len(best))]

    names = [each.name for each in fields(AttackResult) if each.name not in ("trace", "gradients")]
    traces = torch.stack([each.trace[-1] for each in found]).cummin(0).values
    trace = torch.cat([found[0].trace[:1], traces.minimum(found[0].trace[:1])])
    total = torch.stack([each.gradients for each in found]).sum(0)
    return AttackResult(**{name: choose(name) for name in names}, trace=trace, gradients=total), best
