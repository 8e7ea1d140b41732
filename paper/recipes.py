"""The methods of the paper with the parameters that it names: noise of 0.1 of an image's range, 50 steps from black,
tau = 0.1, rho = 1, eta = 0.005 and, on 16 x 16 cells, 0.05. What a map may cost is for the caller to say."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import moreaugrad as mg

LEVEL = 0.1
Made = Callable[[Any, int, int], Any]  # model, budget, seed

RECIPES: dict[str, Made] = {
    "gradient": lambda model, budget, seed: mg.Gradient(model),
    "integrated_gradients": lambda model, budget, seed: mg.IntegratedGradients(model, steps=min(50, budget)),
    "deeplift": lambda model, budget, seed: mg.DeepLift(model),
    "smoothgrad": lambda model, budget, seed: mg.SmoothGrad(model, mg.Smoothing(LEVEL, samples=budget), seed=seed),
    "sparsified_smoothgrad": lambda model, budget, seed: mg.SparsifiedSmoothGrad(
        model, tau=0.1, smoothing=mg.Smoothing(LEVEL, samples=budget), seed=seed
    ),
    "relex": lambda model, budget, seed: mg.Relex(model, budget, smoothing=mg.Smoothing(LEVEL, samples=50), seed=seed),
    "moreau": lambda model, budget, seed: mg.MoreauGrad(model, smoothing=mg.Smoothing(LEVEL), budget=budget, seed=seed),
    "sparse_moreau": lambda model, budget, seed: mg.SparseMoreauGrad(
        model, eta=0.005, smoothing=mg.Smoothing(LEVEL), budget=budget, seed=seed
    ),
    "group_sparse_moreau": lambda model, budget, seed: mg.GroupSparseMoreauGrad(
        model, eta=0.05, groups=16, smoothing=mg.Smoothing(LEVEL), budget=budget, seed=seed
    ),
}


def method(name: str, model: Any, budget: int, seed: int = 0) -> Any:
    """A method of the paper; `budget` counts gradients, `seed` names its noise (neither means anything to some)."""
    return RECIPES[name](model, budget, seed)
