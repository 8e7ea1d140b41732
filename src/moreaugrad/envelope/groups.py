"""Makes groups: a grid, superpixels, channels, or the user's own label map.

Holds no penalty. Every function returns labels of flattened entries, numbered without gaps.
"""

from __future__ import annotations

import math
from numbers import Integral
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from moreaugrad import validate
from moreaugrad.types import Images, Labels

Rows = Int[Tensor, "rows d"]


def label_groups(groups: int | str | Labels | Any, x: Images) -> tuple[Rows, tuple[int, ...]]:
    """The labels that `groups` asks for on the images x, and the number of groups of each row."""
    check_groups(groups, tuple(x.shape))
    if isinstance(groups, str):
        labels = channels(x) if groups == "channels" else superpixels(x)
    elif isinstance(groups, Integral):
        labels = grid(x, int(groups))
    else:
        labels = from_map(torch.as_tensor(groups, device=x.device).long(), x)
    rows = [torch.unique(row, return_inverse=True)[1] for row in labels]  # image by image: others must not matter
    return torch.stack(rows), tuple(int(row.max()) + 1 for row in rows)


def grid(x: Images, cells: int) -> Rows:
    """cells x cells blocks over the last two axes, all channels pooled; edges may be uneven."""
    height, width = x.shape[-2:]
    row = torch.arange(height, device=x.device) * min(cells, height) // height
    column = torch.arange(width, device=x.device) * min(cells, width) // width
    return from_map(row[:, None] * cells + column[None, :], x)


def channels(x: Images) -> Rows:
    """Each channel (axis 1) one group."""
    shape = (-1, *[1] * (x.ndim - 2))
    return torch.arange(x.shape[1], device=x.device).view(shape).expand(x.shape[1:]).reshape(1, -1)


def superpixels(x: Images, number: int = 200) -> Rows:
    """SLIC segments of each image, all channels pooled."""
    from skimage.segmentation import slic

    labels = [slic(_displayable(image), n_segments=number, channel_axis=-1, start_label=0) for image in x]
    return from_map(torch.as_tensor(np.stack(labels), device=x.device), x)


def from_map(labels: Labels, x: Images) -> Rows:
    """A label map of shape (d,), (H, W) or (N, H, W), spread over the channels."""
    if labels.ndim == 1:
        return labels.long().view(1, -1)
    rows = len(labels) if labels.ndim == 3 else 1
    spatial = labels.long().view(rows, *[1] * (x.ndim - 3), *labels.shape[-2:])
    return spatial.expand(rows, *x.shape[1:]).reshape(rows, -1)


def _displayable(image: Float[Tensor, "..."]) -> Any:
    """Height x width x channels in [0, 1], whatever units the tensor has: SLIC weighs colour by scale."""
    flat = image.detach().float().cpu().reshape(-1, *image.shape[-2:])
    low, high = flat.amin(), flat.amax()
    return ((flat - low) / (high - low).clamp_min(1e-12)).permute(1, 2, 0).numpy()


def check_groups(groups: Any, shape: tuple[int, ...]) -> None:
    """Groups that partition inputs of this shape (batch first)."""
    one = math.prod(shape[1:])
    ways = "a number of cells per side, 'superpixels', 'channels', or an integer label map"
    if isinstance(groups, str):
        if groups not in ("superpixels", "channels"):
            raise ValueError(f"groups must be {ways}, got {groups!r}")
        if groups == "superpixels" and len(shape) != 4:
            raise ValueError(f"groups='superpixels' needs images (N, C, H, W), got inputs of shape {shape}")
        return
    if isinstance(groups, Integral) and not isinstance(groups, bool):
        validate.at_least("groups", groups, 1)
        if len(shape) < 4:
            raise ValueError(
                f"a grid of groups needs images (N, C, H, W), got inputs of shape {shape}; "
                f"pass a label map of shape ({one},) instead"
            )
        return
    _check_labels(groups, shape, one, ways)


def _check_labels(groups: Any, shape: tuple[int, ...], one: int, ways: str) -> None:
    try:
        labels = torch.as_tensor(groups)
    except (TypeError, ValueError, RuntimeError):
        raise TypeError(f"groups must be {ways}, got {type(groups).__name__}") from None
    if labels.is_floating_point() or labels.dtype in (torch.bool, torch.complex64, torch.complex128):
        raise TypeError(f"a label map of groups must hold integers, got {labels.dtype}")
    allowed = [(one,)] + ([tuple(shape[-2:]), (shape[0], *shape[-2:])] if len(shape) >= 4 else [])
    if tuple(labels.shape) not in allowed:
        raise ValueError(
            f"groups must cover the whole input: a label map of shape {' or '.join(map(str, allowed))}, "
            f"got {tuple(labels.shape)} for inputs of shape {shape}"
        )
    if labels.long().min() < 0:
        raise ValueError(
            f"groups must cover the whole input, got {int((labels < 0).sum())} entries with a negative label; "
            "give every entry a group, if need be one of its own"
        )
