"""Where in a model a map can be read: its last spatial layer, its patch grid, and what of an output is a plane.

By shapes and by one small forward pass; knows no model by name. Leaves nothing behind in the model.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from moreaugrad.methods import checks_layers
from moreaugrad.methods.layer_capture import Seen, hooked, own, read
from moreaugrad.model.prepared import numerics
from moreaugrad.model.score import ClassScore, pad
from moreaugrad.types import Images

ROWS = 2  # of a look: few, but not one, which some models squeeze away
EXTRA = 8  # tokens of no patch (class, distillation, registers) that may lead the others
THROUGH = (nn.Dropout, nn.Identity, nn.Softmax)  # hand on what they got, or hold attention

Size = tuple[int, int]
Planes = Float[Tensor, "n k h w"]


@dataclass(frozen=True, eq=False)
class Visit:
    """One call of a module in a forward pass."""

    name: str
    module: nn.Module
    shape: tuple[int, ...]
    features: Tensor | None  # the mean over all positions of a spatial output; what goes into a linear layer


@dataclass(frozen=True, slots=True)
class Found:
    """Names of modules that were looked for."""

    names: tuple[str, ...]
    sure: bool = True  # False: the model, as it is now, has no gradient by which to tell


def survey(score: ClassScore, x: Images) -> tuple[list[Visit], Tensor]:
    """Every call of a module with a tensor for output, in the order in which they end, and what the model says."""
    model = checks_layers.module(score.engine.forward, "the method")
    modules = {name: module for name, module in model.named_modules() if name}
    visits: list[Visit] = []
    size = _size(x)

    def note(name: str, module: nn.Module, given: Any, output: Any) -> None:
        first = output[0] if isinstance(output, tuple | list) and output else output
        if not isinstance(first, Tensor) or len(first) != rows:
            return
        features = given.detach() if isinstance(module, nn.Linear) and isinstance(given, Tensor) else None
        if first.ndim == 4 and layout(tuple(first.shape), size) is not None:
            features = planes(name, first.detach(), size).float().mean((2, 3))
        visits.append(Visit(name, module, tuple(first.shape), features))

    rows = min(ROWS, score.engine.rows)
    some, owners = pad(x[:rows].detach(), score.owners(x)[:rows], rows)
    bare = own(score)
    with torch.no_grad(), numerics("float32", x.is_cuda), hooked(modules, note):
        output = bare.run(some, owners, plain=True)
    return visits, output


def last_layer(score: ClassScore, x: Images) -> Found:
    """The last module with a spatial output: what goes into the pooling of a convolutional network.

    Of a transformer: the last normalisation at which the patches still reach the score. With a class token that is
    the one before the last attention, for behind it only the class token counts.
    """
    visits, _ = survey(score, x)
    size = _size(x)
    tokens = [at for at, visit in enumerate(visits) if _tokens(visit, size)]
    pixels = [at for at, visit in enumerate(visits) if _spatial(visit, size)]
    if not tokens or (pixels and pixels[-1] > tokens[-1]):
        name = visits[pixels[-1]].name if pixels else None
        return Found((checks_layers.some_layer(name, "convolutions or a grid of patches"),))
    layers = {visits[at].name: visits[at].module for at in tokens}
    alive = _reached(score, x, layers)
    return Found((alive[-1],)) if alive else Found((list(layers)[-1],), sure=False)


def last_convolution(score: ClassScore, x: Images) -> Found:
    """The last convolution with a spatial output."""
    visits, _ = survey(score, x)
    found = [visit.name for visit in visits if isinstance(visit.module, nn.Conv2d) and _spatial(visit, _size(x))]
    return Found((checks_layers.some_layer(found[-1] if found else None, "convolutions"),))


def pooled(score: ClassScore, x: Images) -> Found:
    """The last layer whose mean over all positions goes into the last linear layer, and that one.

    Only the latter where there is no such layer.
    """
    visits, output = survey(score, x)
    linear = next((visit for visit in reversed(visits) if isinstance(visit.module, nn.Linear)), None)
    checks_layers.head(linear is not None, "no linear layer")
    assert linear is not None
    assert isinstance(linear.module, nn.Linear)
    assert linear.features is not None
    checks_layers.head(
        linear.features.ndim == 2, f"{linear.name!r}, which sees {tuple(linear.features.shape[1:])} of an image"
    )
    classes = linear.module.out_features
    checks_layers.head(
        output.numel() == len(output) * classes,
        f"{linear.name!r} with {classes} outputs for a model with output of shape {tuple(output.shape)}",
    )
    found = [visit.name for visit in visits if _spatial(visit, _size(x)) and _near(visit.features, linear.features)]
    return Found((*found[-1:], linear.name))


def _reached(score: ClassScore, x: Images, layers: dict[str, nn.Module]) -> list[str]:
    """The layers at whose positions the score has a gradient."""
    size = _size(x)

    def sizes(seen: Seen) -> tuple[Tensor, ...]:
        parts = [planes(name, g, size) for name, g in zip(layers, seen.gradients, strict=True)]
        return tuple(part.abs().flatten(1).amax(1) for part in parts)

    few = own(score)
    few.engine.rows = min(ROWS, few.engine.rows)
    # of the logit: another score may be so sure of itself that no gradient is left
    look = replace(few, kind="logit", of=score.owners(x)[:ROWS], graph=False)
    found = read(look, x[:ROWS].detach(), layers, sizes)
    return [name for name, peak in zip(layers, found, strict=True) if bool(peak.any())]


def layout(shape: tuple[int, ...], size: Size) -> tuple[int, int, Callable[[Tensor], Tensor]] | None:
    """Height and width of an output, and what brings it to (N, C, h, w); None: it has no positions.

    Channels come last where only that keeps the proportions of the image, as in Swin.
    """
    if len(shape) == 4:
        _, first, second, third = shape
        if alike(first, second, size) and not alike(second, third, size):
            return first, second, lambda t: t.permute(0, 3, 1, 2)
        return (second, third, lambda t: t) if second * third > 1 else None
    if len(shape) == 3 and (found := grid(shape[1], size)) is not None:
        return *found, lambda t: t[:, shape[1] - found[0] * found[1] :].mT.unflatten(2, found)
    return None


def planes(name: str, output: Float[Tensor, "n ..."], size: Size) -> Planes:
    """The output of a layer, or its gradient, as (N, C, h, w); tokens of no patch are left out."""
    found = layout(tuple(output.shape), size)
    if found is None:
        checks_layers.spatial(name, tuple(output.shape))
    assert found is not None
    return found[2](output)


def grid(tokens: int, size: Size) -> Size | None:
    """The rows and columns of patches in the image's proportions that leave fewest tokens over."""
    found = [(high, round(high * size[1] / size[0])) for high in range(1, tokens + 1)]
    left = {at: tokens - at[0] * at[1] for at in found if at[0] * at[1] > 1}
    fit = [at for at, rest in left.items() if 0 <= rest <= EXTRA]
    return min(fit, key=lambda at: left[at]) if fit else None


def alike(high: int, wide: int, size: Size) -> bool:
    """Whether a plane has the image's proportions, up to the rounding of its sides."""
    return high * wide > 1 and high <= size[0] and abs(wide - high * size[1] / size[0]) <= 1.5


def _spatial(visit: Visit, size: Size) -> bool:
    return len(visit.shape) == 4 and not isinstance(visit.module, THROUGH) and layout(visit.shape, size) is not None


def _tokens(visit: Visit, size: Size) -> bool:
    normalises = "Norm" in type(visit.module).__name__
    return len(visit.shape) == 3 and normalises and grid(visit.shape[1], size) is not None


def _near(found: Tensor | None, wanted: Tensor) -> bool:
    """Equal up to rounding; the logits are held against it later, and more strictly."""
    if found is None or found.shape != wanted.shape:
        return False
    near = max(1e-3, 16 * torch.finfo(wanted.dtype).eps)
    return bool((found - wanted).abs().max() <= near * wanted.abs().max())


def _size(x: Images) -> Size:
    return int(x.shape[-2]), int(x.shape[-1])
