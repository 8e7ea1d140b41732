"""How much maps change when the image hardly does. Makes maps itself, by a function that it is given."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor

from moreaugrad import validate
from moreaugrad.batch import norm
from moreaugrad.metrics import checks as map_checks
from moreaugrad.metrics.maps import read, wide
from moreaugrad.types import PerImage


def local_lipschitz(
    explainer: Callable[[Tensor], Tensor], x: Tensor, *, radius: float = 0.1, samples: int = 10, seed: int = 0
) -> PerImage:
    """max over d of |I(x + d) - I(x)|_2 / |d|_2, d random of length `radius` in the units of x: a lower bound.

    The explainer must hold on to its targets, or a change of class counts as a change of the map; and to its seed,
    or its noise does. Signed maps are compared as they are.
    """
    map_checks.function("explainer", explainer, "a batch", "maps")
    (x,) = validate.inputs(x)
    validate.positive("radius", radius)
    validate.at_least("samples", samples, 1)
    validate.at_least("seed", seed, 0)
    x = x.detach()
    before = read(map_checks.explained(explainer(x.clone()), None, len(x)))
    worst, sound = torch.zeros(len(x), dtype=before.values.dtype, device=before.values.device), before.sound
    for sample in range(samples):
        moved = x + radius * _direction(x, seed, sample)
        length = norm(wide(moved) - wide(x))  # as it came out in the digits of x
        after = read(map_checks.explained(explainer(moved.clone()), tuple(before.values.shape), len(x)))
        change = norm(after.values - before.values)
        # a step that x is too large to feel has no slope
        worst = torch.maximum(worst, torch.where(length > 0, change / length, torch.nan).to(worst))
        sound = sound & after.sound
    return before.answer(worst, ~sound)


def _direction(x: Tensor, seed: int, sample: int) -> Tensor:
    """A unit vector, the same for every image, in any company and on any device."""
    state = int(np.random.SeedSequence([seed, sample]).generate_state(1, np.uint64)[0] >> np.uint64(1))
    drawn = torch.randn(x.shape[1:], generator=torch.Generator().manual_seed(state), dtype=torch.float64)
    unit: Tensor = drawn / drawn.norm()
    return unit.to(x.dtype).to(x.device)
