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


@dataclass(frozen=True, slots=True, repr=False)
class AttackResult:
    """What an attack found, one entry for each of the N images; `print` says it in words.

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

    def __repr__(self) -> str:
        return f"<{type(self).__name__}: {self._count_successes()}, l2 {describe_range(self.l2)}>"

    def __str__(self) -> str:
        l2, linf, before, after, cost = map(
            describe_range, (self.l2, self.linf, self.trace[0], self.objective, self.gradients)
        )
        steps = ""
        if self.pixels_l2 is not None and self.pixels_linf is not None:
            steps = f"; in 8-bit steps {describe_range(self.pixels_l2)} and {describe_range(self.pixels_linf)}"
        lines = (
            f"{type(self).__name__}: {self._count_successes()}; the prediction was kept for {int(self.kept.sum())}.",
            f"The change has l2 length {l2}, and its largest entry is {linf}{steps}.",
            f"The objective went from {before} to {after}; smaller is better for the attacker. {cost} gradients each.",
            self._say_more(),
        )
        return "\n".join(filter(None, lines))

    def _say_more(self) -> str:
        """What the further fields of a subclass say."""
        return ""

    def _count_successes(self) -> str:
        return f"success on {int(self.success.sum())} of {len(self.x)} image{'' if len(self.x) == 1 else 's'}"


def describe_range(values: Tensor) -> str:
    """The numbers of all images in a few letters: the mean, and the smallest and largest where they differ."""
    found = values.double()
    found = found[~found.isnan()]
    if not len(found):
        return "unknown"
    numbers = [float(each) for each in (found.min(), found.mean(), found.max())]
    least, mean, most = (f"{each:,.0f}" if abs(each) >= 1000 else f"{each:.3g}" for each in numbers)
    return mean if least == most else f"{mean} ({least} to {most})"


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
    _check_results(found, by)
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


def _check_results(found: Any, by: Any) -> None:
    """Results on the same images, and as many figures."""
    if not isinstance(found, Sequence) or not found or not all(isinstance(each, AttackResult) for each in found):
        raise TypeError(f"found must be a list of at least one AttackResult, got {found!r}")
    shapes = {tuple(each.x.shape) for each in found}
    if len(shapes) > 1:
        raise ValueError(f"all attacks must be on the same images, got batches of {sorted(shapes)}")
    images = len(found[0].x)
    if by is None:
        return
    if not isinstance(by, Sequence) or not all(isinstance(each, Tensor) for each in by):
        raise TypeError(f"by must be a list of tensors, one for each attack, got {by!r}")
    if len(by) != len(found) or any(tuple(each.shape) != (images,) for each in by):
        raise ValueError(f"by must hold {len(found)} tensors of {images} figures, one for each attack, got {by!r}")
