"""How few entries or groups carry a map. Each measures |map|."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from moreaugrad import validate
from moreaugrad.batch import norm, total
from moreaugrad.envelope.groups import label_groups
from moreaugrad.metrics.maps import is_zero, read_maps, unit_scale
from moreaugrad.types import Images, PerImage


def nonzero_share(maps: Tensor, tol: float = 0.0) -> PerImage:
    """Share of entries with `|v| > tol max|v|`.

    Args:
        maps: maps (N, ...).
        tol: share of the largest entry in [0, 1); 0 counts exact zeros, 1e-3 suits methods that leave none.

    Returns:
        One number per image in [0, 1]; lower is sparser.

    Example:
        >>> mg.nonzero_share(torch.tensor([[0.0, 0.0, -2.0, 0.001]]), tol=1e-2)
        tensor([0.2500])
    """
    batch = read_maps(maps)
    filled = _filled(batch.values, tol).flatten(1)
    return batch.result(filled.sum(1).to(batch.values.dtype) / filled.shape[1])


def gini(maps: Tensor) -> PerImage:
    """Inequality of the entries, `sum_k (2k - n - 1) |v|_(k) / (n sum |v|)` with |v| in ascending order.

    Args:
        maps: maps (N, ...) of n entries each.

    Returns:
        One number per image: 0 if all entries are equal, 1 - 1/n for a single one; NaN for a zero map.

    Example:
        >>> mg.gini(torch.tensor([[1.0, 1.0], [0.0, 5.0]]))
        tensor([0.0000, 0.5000])
    """
    batch = read_maps(maps)
    ordered = unit_scale(batch.values).abs().flatten(1).sort(1).values
    n = ordered.shape[1]
    weights = torch.arange(1 - n, n, 2, dtype=ordered.dtype, device=ordered.device)
    return batch.result((total(ordered * weights) / (n * total(ordered))).clamp(0, 1), is_zero(batch.values))


def hoyer(maps: Tensor) -> PerImage:
    """Sparseness by the ratio of norms, `(sqrt(n) - |v|_1 / |v|_2) / (sqrt(n) - 1)`.

    Args:
        maps: maps (N, ...) of n entries each.

    Returns:
        One number per image: 0 if all entries are equal, 1 for a single one; NaN for a zero map, or n = 1.

    Example:
        >>> mg.hoyer(torch.tensor([[0.0, 5.0]]))
        tensor([1.])
    """
    batch = read_maps(maps)
    values = unit_scale(batch.values)
    root = float(values[0].numel() ** 0.5)
    if root == 1:
        return batch.result(torch.full_like(total(values), torch.nan))
    numbers = (root - total(values.abs()) / norm(values)) / (root - 1)
    return batch.result(numbers.clamp(0, 1), is_zero(values))


def active_groups(maps: Tensor, groups: int | str | Tensor | Any = 16, tol: float = 0.0) -> PerImage:
    """Share of groups that hold an entry `|v| > tol max|v|`.

    Args:
        maps: maps (N, C, H, W) or (N, H, W).
        groups: as for `GroupSparseMoreauGrad`: a number of cells per side, "channels", or a label map of shape (d,),
            (H, W), (C, H, W) or (N, H, W).
        tol: share of the largest entry in [0, 1); 0 counts exact zeros.

    Returns:
        One number per image in [0, 1]; 0 for a zero map, lower is sparser.

    Example:
        >>> mg.active_groups(torch.eye(4)[None], groups=2)
        tensor([0.5000])
    """
    batch = read_maps(maps)
    x = batch.values[:, None] if batch.values.ndim == 3 else batch.values
    if isinstance(groups, str) and groups != "channels":
        raise ValueError(
            f"groups must be a number of cells per side, 'channels' or a label map, got {groups!r}; superpixels are "
            "those of the image, which a map does not show: pass their label map"
        )
    (labels, counts), filled = label_groups(groups, x), _filled(x, tol).flatten(1)
    active = torch.zeros(len(x), max(counts), dtype=torch.long, device=x.device)
    active.scatter_add_(1, labels.expand(len(x), -1), filled.long())
    return batch.result((active > 0).sum(1).to(x.dtype) / torch.tensor(counts, device=x.device))


def _filled(x: Images, tol: float) -> Tensor:
    validate.number("tol", tol)
    if not 0 <= tol < 1:
        raise ValueError(f"tol must be in [0, 1), a share of the largest entry, got {tol!r}; 0 counts exact zeros")
    return x != 0 if tol == 0 else unit_scale(x).abs() > tol
