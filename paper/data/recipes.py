"""The methods of the paper with its parameters: noise of 0.1 of an image's range, 50 steps from black, tau = 0.1,
rho = 1, eta = 0.005 and, on 16 x 16 cells, 0.05. The caller says what a map may cost."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import moreaugrad as mg

LEVEL = 0.1  # of the noise, relative to the range of an image
ETA = {"sparse_moreau": 0.005, "group_sparse_moreau": 0.05}


def _noise(samples: int | None = None) -> Any:
    return mg.Smoothing(LEVEL) if samples is None else mg.Smoothing(LEVEL, samples=samples)


RECIPES: dict[str, Callable[[Any, int, int], Any]] = {  # model, budget, seed -> method
    "gradient": lambda model, budget, seed: mg.Gradient(model),
    "integrated_gradients": lambda model, budget, seed: mg.IntegratedGradients(model, steps=min(50, budget)),
    "deeplift": lambda model, budget, seed: mg.DeepLift(model),
    "smoothgrad": lambda model, budget, seed: mg.SmoothGrad(model, _noise(budget), seed=seed),
    "sparsified_smoothgrad": lambda model, budget, seed: mg.SparsifiedSmoothGrad(
        model, tau=0.1, smoothing=_noise(budget), seed=seed
    ),
    "relex": lambda model, budget, seed: mg.Relex(model, budget, smoothing=_noise(50), seed=seed),
    "moreau": lambda model, budget, seed: mg.MoreauGrad(model, smoothing=_noise(), budget=budget, seed=seed),
    "sparse_moreau": lambda model, budget, seed: mg.SparseMoreauGrad(
        model, eta=ETA["sparse_moreau"], smoothing=_noise(), budget=budget, seed=seed
    ),
    "group_sparse_moreau": lambda model, budget, seed: mg.GroupSparseMoreauGrad(
        model, eta=ETA["group_sparse_moreau"], groups=16, smoothing=_noise(), budget=budget, seed=seed
    ),
}


def make_method(name: str, model: Any, budget: int, seed: int = 0) -> Any:
    """A method of the paper; some ignore `budget` (gradients of a map) or `seed` (of its noise)."""
    return RECIPES[name](model, budget, seed)
