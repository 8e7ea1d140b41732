"""Makes groups: a grid, superpixels, channels, or the user's own label map.

Holds no penalty. Every function returns labels of flattened entries, numbered without gaps.
"""

from __future__ import annotations

from numbers import Integral
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from moreaugrad import validate
from moreaugrad.envelope.priors_group import Group
from moreaugrad.types import Images, Labels

Rows = Int[Tensor, "rows d"]


def make_groups(groups: int | str | Labels | Any, x: Images) -> Group:
    """The Group prior that `groups` asks for on the images x."""
    validate.groups(groups, tuple(x.shape))
    if isinstance(groups, str):
        labels = channels(x) if groups == "channels" else superpixels(x)
    elif isinstance(groups, Integral):
        labels = grid(x, int(groups))
    else:
        labels = from_map(torch.as_tensor(groups, device=x.device).long(), x)
    rows = [torch.unique(row, return_inverse=True)[1] for row in labels]  # by itself: company must not count
    counts = tuple(int(row.max()) + 1 for row in rows)
    return Group(torch.stack(rows), counts)


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
