"""Makes groups: a grid, superpixels, channels, or the user's own label maps.

Holds no penalty. Labels of a batch are those of its flattened entries, numbered without gaps.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Iterator
from numbers import Integral
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from moreaugrad import validate
from moreaugrad.types import Images, Labels

Rows = Int[Tensor, "rows d"]
Shape = tuple[int, ...]

log = logging.getLogger("moreaugrad")

_WAYS = "a number of cells per side, 'superpixels', 'channels', or an integer label map"


def label_groups(groups: Any, x: Images | tuple[Tensor, ...]) -> tuple[Rows, tuple[int, ...]]:
    """The labels that `groups` asks for on a batch, or on a tuple of inputs, and the number of groups of each row."""
    inputs = x if isinstance(x, tuple) else (x,)
    spelled = spell_out(groups, tuple(tuple(each.shape[1:]) for each in inputs), len(inputs[0]))
    parts = [_label_input(each, of) for each, of in zip(spelled, inputs, strict=False)]  # one alone labels all inputs
    for number in range(1, len(parts)):  # no group reaches from one input into another
        parts[number] = parts[number] + 1 + parts[number - 1].max()
    most = max(map(len, parts))
    labels = torch.cat([part.expand(most, -1) for part in parts], dim=1)
    rows = [torch.unique(row, return_inverse=True)[1] for row in labels]  # image by image: others must not matter
    return torch.stack(rows), tuple(int(row.max()) + 1 for row in rows)


def take_groups(groups: Any, shapes: tuple[Shape, ...], images: int, some: slice) -> Any:
    """The groups of some of the images: label maps with one for each image are cut, anything else stays."""
    found = tuple(
        each[some] if isinstance(each, Tensor) and len(each) == images > 1 else each
        for each in spell_out(groups, shapes, images)
    )
    return found[0] if len(found) == 1 else found


def check_groups(groups: Any, shape: Shape) -> None:
    """Groups that partition inputs of this shape (batch first)."""
    spell_out(groups, (shape[1:],), shape[0])


def spell_out(groups: Any, shapes: tuple[Shape, ...], images: int) -> tuple[Any, ...]:
    """The groups of each input, label maps with all axes: (1, ...) for one that serves every image, else (N, ...).

    Labels of all entries of several inputs, whose groups may reach from one into another, are flat rows (1, d), (N, d).
    """
    if isinstance(groups, tuple) and len(groups) == len(shapes):
        return tuple(_spell(each, shape, images) for each, shape in zip(groups, shapes, strict=True))
    if isinstance(groups, str | Integral):
        return tuple(_spell(groups, shape, images) for shape in shapes)
    if len(shapes) == 1:
        return (_spell(groups, shapes[0], images),)
    every = sum(map(math.prod, shapes))
    labels = _read_labels(groups)
    if tuple(labels.shape) not in ((every,), (1, every), (images, every)):
        raise ValueError(
            f"groups must cover every input: a tuple of {len(shapes)}, one label map, number or word for each, or one "
            f"label map of all their entries, ({every},), got {tuple(labels.shape)}"
        )
    return (labels.view(-1, every),)


def _spell(groups: Any, shape: Shape, images: int) -> Any:
    if isinstance(groups, str):
        if groups not in ("superpixels", "channels"):
            raise ValueError(f"groups must be {_WAYS}, got {groups!r}")
        if groups == "superpixels" and len(shape) != 3:
            raise ValueError(f"groups='superpixels' needs images (N, C, H, W), got inputs of shape {(images, *shape)}")
        return groups
    if isinstance(groups, Integral) and not isinstance(groups, bool):
        validate.at_least("groups", groups, 1)
        if len(shape) < 2:
            raise ValueError(
                f"a grid of groups needs inputs with positions, such as (N, C, H, W) or (N, C, T), got inputs of shape "
                f"{(images, *shape)}; pass a label map of shape ({math.prod(shape)},) instead"
            )
        return groups
    return _spread_labels(_read_labels(groups), shape, images)


def _read_labels(groups: Any) -> Labels:
    try:
        parts = isinstance(groups, list) and groups and all(isinstance(each, Tensor) for each in groups)
        labels = torch.stack(groups) if parts else torch.as_tensor(groups)
    except (TypeError, ValueError, RuntimeError):
        raise TypeError(f"groups must be {_WAYS}, got {type(groups).__name__}") from None
    validate.dense("a label map of groups", labels)
    if labels.is_floating_point() or labels.dtype in (torch.bool, torch.complex64, torch.complex128):
        raise TypeError(f"a label map of groups must hold integers, got {labels.dtype}")
    if labels.numel() and labels.long().min() < 0:
        raise ValueError(
            f"groups must cover the whole input, got {int((labels < 0).sum())} entries with a negative label; "
            "give every entry a group, if need be one of its own"
        )
    return labels.long()


def _spread_labels(labels: Labels, shape: Shape, images: int) -> Int[Tensor, "rows ..."]:
    """A label map with the axes that it leaves out."""
    whole, size = (images, *shape), tuple(labels.shape)
    views = [(1, *shape)] if size == (math.prod(shape),) else []
    views += _fitting_views(size, whole)
    if not views:
        raise ValueError(
            f"groups must cover the whole input: a label map of shape {_name_shapes(whole)}, "
            f"got {size} for inputs of shape {whole}"
        )
    found = [labels.reshape(view).expand(view[0], *shape) for view in views]
    for view, other in zip(views, found, strict=True):
        if not torch.equal(other.expand(whole), found[0].expand(whole)):
            log.warning(
                "groups of shape %s are read as %s for inputs of shape %s, not as %s; write all axes to be clear, as "
                "in labels.reshape%s",
                size,
                views[0],
                whole,
                view,
                views[0],
            )
            break
    return found[0]


def _fitting_views(size: Shape, whole: Shape) -> Iterator[Shape]:
    """The shapes with all axes that a label map of this size can have; those of length 1 are spread."""
    for axes in _readings(len(whole)):
        lengths = dict(zip(axes, size, strict=False))
        fits = len(axes) == len(size) and all(length in (1, whole[axis]) for axis, length in lengths.items())
        view = tuple(lengths.get(axis, 1) for axis in range(len(whole)))
        if fits and (math.prod(view[1:]) > 1 or math.prod(whole[1:]) == 1):  # one group for all is no grouping
            yield view


def _readings(rank: int) -> list[Shape]:
    """The axes of the inputs that a label map may have; where several readings fit, the first is taken."""
    every = tuple(range(rank))
    if rank == 2:
        return [every, (1,)]
    if rank == 3:  # (T,) of a signal, or one label for each token
        return [every, (1, 2), (0, 2), (2,), (0, 1), (1,)]
    frames = [(0, 3, 4), (3, 4)] if rank == 5 else []  # the same in each frame
    return [every, (0, *every[2:]), *frames, every[1:], every[2:]]


def _name_shapes(whole: Shape) -> str:
    shapes = [tuple(whole[axis] for axis in axes) for axes in _readings(len(whole))]
    return " or ".join(map(str, dict.fromkeys([(math.prod(whole[1:]),), *reversed(shapes)])))


def _label_input(groups: Any, x: Images) -> Rows:
    if isinstance(groups, str):
        labels = channels(x) if groups == "channels" else superpixels(x)
    elif isinstance(groups, Integral):
        labels = grid(x, int(groups))
    else:
        return groups.to(x.device).flatten(1)  # type: ignore[no-any-return]
    return labels.expand(len(labels), *x.shape[1:]).flatten(1)


def grid(x: Images, cells: int) -> Int[Tensor, "1 ..."]:
    """cells x cells blocks over the last two axes, all others pooled; of (N, C, T) pieces of the last. Uneven edges."""
    places = [torch.arange(size, device=x.device) * min(cells, size) // size for size in x.shape[-2:]]
    labels = places[1] if x.ndim == 3 else places[0][:, None] * cells + places[1]
    return labels.view(*[1] * (x.ndim - labels.ndim), *labels.shape)


def channels(x: Images) -> Int[Tensor, "1 ..."]:
    """Each channel (axis 1) one group."""
    return torch.arange(x.shape[1], device=x.device).view(1, -1, *[1] * (x.ndim - 2))


def superpixels(x: Images, number: int = 200) -> Int[Tensor, "n 1 h w"]:
    """SLIC segments of each image, all channels pooled."""
    from skimage.segmentation import slic

    labels = [slic(_displayable(image), n_segments=number, channel_axis=-1, start_label=0) for image in x]
    return torch.as_tensor(np.stack(labels), device=x.device)[:, None]


def _displayable(image: Float[Tensor, "..."]) -> Any:
    """Height x width x channels in [0, 1], whatever units the tensor has: SLIC weighs colour by scale."""
    flat = image.detach().float().cpu().reshape(-1, *image.shape[-2:])
    low, high = flat.amin(), flat.amax()
    return ((flat - low) / (high - low).clamp_min(1e-12)).permute(1, 2, 0).numpy()
