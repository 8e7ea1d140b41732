"""How few entries or groups carry a map. Each looks at |map|, and at one map at a time."""

from __future__ import annotations

from numbers import Integral
from typing import Any

import torch
from jaxtyping import Int
from torch import Tensor

from moreaugrad.batch import norm, total
from moreaugrad.metrics import checks
from moreaugrad.metrics.maps import read, scaled, zero
from moreaugrad.types import Images, PerImage


def nonzero_share(maps: Tensor, tol: float = 0.0) -> PerImage:
    """Share of entries with |v| > tol max|v|. tol=1e-3 suits methods that leave no exact zeros."""
    checks.tolerance(tol)
    batch = read(maps)
    filled = _filled(batch.values, tol).flatten(1)
    return batch.answer(filled.sum(1).to(batch.values.dtype) / filled.shape[1])


def gini(maps: Tensor) -> PerImage:
    """sum_k (2k - n - 1) |v|_(k) / (n sum |v|), |v| in ascending order: 0 if all are alike, 1 - 1/n for one alone.

    NaN for a zero map.
    """
    batch = read(maps)
    ordered = scaled(batch.values).abs().flatten(1).sort(1).values
    n = ordered.shape[1]
    weights = torch.arange(1 - n, n, 2, dtype=ordered.dtype, device=ordered.device)
    return batch.answer((total(ordered * weights) / (n * total(ordered))).clamp(0, 1), zero(batch.values))


def hoyer(maps: Tensor) -> PerImage:
    """(sqrt(n) - |v|_1 / |v|_2) / (sqrt(n) - 1): 0 if all are alike, 1 for one alone. NaN for a zero map, or n = 1."""
    batch = read(maps)
    values = scaled(batch.values)
    root = float(values[0].numel() ** 0.5)
    if root == 1:
        return batch.answer(torch.full_like(total(values), torch.nan))
    figures = (root - total(values.abs()) / norm(values)) / (root - 1)
    return batch.answer(figures.clamp(0, 1), zero(values))


def active_groups(maps: Tensor, groups: int | str | Tensor | Any = 16, tol: float = 0.0) -> PerImage:
    """Share of groups with an entry |v| > tol max|v|; 0 for a zero map.

    Groups as the group-sparse method has them: cells per side, "channels", or a label map (d,), (H, W) or (N, H, W).
    """
    checks.tolerance(tol)
    batch = read(maps)
    x = batch.values[:, None] if batch.values.ndim == 3 else batch.values
    checks.groups(groups, tuple(x.shape))
    filled = _filled(x, tol).flatten(1)
    rows = [torch.unique(row, return_inverse=True)[1] for row in _labels(groups, x)]
    counts = torch.stack([row.max() + 1 for row in rows])
    labels = torch.stack(rows).expand(len(x), -1)
    active = torch.zeros(len(x), int(counts.max()), dtype=torch.long, device=x.device)
    active.scatter_add_(1, labels, filled.long())
    return batch.answer((active > 0).sum(1).to(x.dtype) / counts)


def _filled(x: Images, tol: float) -> Tensor:
    return x != 0 if tol == 0 else scaled(x).abs() > tol


def _labels(groups: Any, x: Images) -> Int[Tensor, "rows d"]:
    """The group of each flattened entry, for all maps alike (one row) or one row per map."""
    one = x[:1]
    if isinstance(groups, str):
        return torch.arange(x.shape[1], device=x.device).view(-1, *[1] * (x.ndim - 2)).expand_as(x[0]).reshape(1, -1)
    if isinstance(groups, Integral):
        sides = x.shape[-2:]
        row, column = (torch.arange(s, device=x.device) * min(int(groups), s) // s for s in sides)
        return (row[:, None] * int(groups) + column).expand_as(one).flatten(1)
    labels = torch.as_tensor(groups, device=x.device).long()
    if labels.ndim == 1:
        return labels[None]
    labels = labels if labels.ndim == 3 else labels[None]
    return labels.view(len(labels), *[1] * (x.ndim - 3), *x.shape[-2:]).expand(-1, *x.shape[1:]).flatten(1)
