"""How much maps change when the image hardly does. Makes maps itself, by a function that the caller gives."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor

from moreaugrad import validate
from moreaugrad.batch import norm
from moreaugrad.metrics.maps import read_maps, require_function, require_maps, to_float64
from moreaugrad.types import PerImage


def local_lipschitz(
    explainer: Callable[[Tensor], Tensor], x: Tensor, *, radius: float = 0.1, samples: int = 10, seed: int = 0
) -> PerImage:
    """Largest change of the map per change of the image, `max over d of |I(x + d) - I(x)|_2 / |d|_2`.

    A lower bound of the local Lipschitz constant. Signed maps are compared as they are.

    Args:
        explainer: makes maps (N, ...) of a batch. It must fix its targets and its seed, or a change of class or of
            the noise counts as a change of the map.
        x: images (N, ...).
        radius: length of the random directions d, in the units of x.
        samples: number of directions, each with one call of the explainer.
        seed: of the directions.

    Returns:
        One number per image, 0 or more; lower is more robust.

    Example:
        >>> mg.local_lipschitz(lambda v: 3 * v, x.double(), samples=2).round(decimals=4)
        tensor([3., 3.], dtype=torch.float64)
    """
    require_function("explainer", explainer, "a batch", "maps")
    x = validate.one_input(x)
    validate.positive("radius", radius)
    validate.at_least("samples", samples, 1)
    validate.at_least("seed", seed, 0)
    x = x.detach()
    before = read_maps(run_explainer(explainer, x, None))
    worst, finite = torch.zeros(len(x), dtype=before.values.dtype, device=before.values.device), before.finite
    for sample in range(samples):
        moved = x + radius * _direction(x, seed, sample)
        length = norm(to_float64(moved) - to_float64(x))  # as rounded in the dtype of x
        after = read_maps(run_explainer(explainer, moved, tuple(before.values.shape)))
        change = norm(after.values - before.values)
        # a step that is lost in the rounding of x has no slope
        worst = torch.maximum(worst, torch.where(length > 0, change / length, torch.nan).to(worst))
        finite = finite & after.finite
    return before.result(worst, ~finite)


def run_explainer(explainer: Callable[[Tensor], Any], x: Tensor, shape: tuple[int, ...] | None) -> Tensor:
    """The maps of an explainer: one per image, of the same shape at every call."""
    found = explainer(x.clone())
    if not isinstance(found, Tensor):
        way = "; return its .map" if hasattr(found, "map") else ""
        raise TypeError(f"the explainer must return a tensor of maps, got {type(found).__name__}{way}")
    require_maps(found, "the explainer's result")
    wanted = (len(x), "...") if shape is None else shape
    if len(found) != len(x) or (shape is not None and tuple(found.shape) != shape):
        raise ValueError(f"the explainer must return maps of shape {wanted}, got {tuple(found.shape)}")
    return found


def seeded_generator(*seeds: int) -> torch.Generator:
    """A generator of its own for each combination of seeds."""
    state = np.random.SeedSequence(seeds).generate_state(1, np.uint64)[0]
    return torch.Generator().manual_seed(int(state >> np.uint64(1)))


def _direction(x: Tensor, seed: int, sample: int) -> Tensor:
    """A unit vector, the same for every image, in every batch and on every device."""
    drawn = torch.randn(x.shape[1:], generator=seeded_generator(seed, sample), dtype=torch.float64)
    unit: Tensor = drawn / drawn.norm()
    return unit.to(x.dtype).to(x.device)
