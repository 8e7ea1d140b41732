"""Values of options: sound ones by name and by what the signature says, and odd ones of every kind."""

from __future__ import annotations

import inspect
import random
from collections.abc import Callable
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import torch

import moreaugrad as mg


class Anything:
    """A class that can be called with anything. Functions that fail by themselves are left out: their own errors are
    what callers need to see."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        pass


# sizes of the work, which is done where much is asked for: no sound call with a million steps ends in seconds
WORK = {
    "budget", "steps", "samples", "iterations", "rounds", "tries", "draws", "restarts", "attack_budget", "scout",
    "internal_batch_size", "batch_size", "grid", "max_steps", "tail", "few", "images", "top",
}  # fmt: skip
LARGE: list[Any] = [10**9, 2**31, 2**63, 10**30, 10**400, 1e300, 1e38, np.int64(2**62)]
ODD: list[Callable[[], Any]] = [
    lambda: None, lambda: True, lambda: False, lambda: float("nan"), lambda: float("inf"), lambda: -float("inf"),
    lambda: 0, lambda: 0.0, lambda: -0.0, lambda: -1, lambda: -1.5, lambda: 1.5, lambda: 1, lambda: 2, lambda: 5e-324,
    lambda: 1e-30, lambda: 1e-8, lambda: "", lambda: "1", lambda: "nan", lambda: "implicit:5x", lambda: b"x",
    lambda: "\0",
    list, tuple, dict, set, lambda: [0.1], lambda: [0.1, 0.2], lambda: [None], lambda: ["a"], lambda: (1, 2),
    lambda: (0.1, float("nan")), lambda: [[1]], lambda: {"a": 1}, object, lambda: Anything, lambda: range(3),
    lambda: 1 + 2j, lambda: Fraction(1, 2), lambda: Decimal("0.5"), lambda: Path("x"), lambda: slice(None),
    lambda: np.float64(0.5), lambda: np.float32("nan"), lambda: np.int64(-3), lambda: np.bool_(True),
    lambda: np.array(0.5), lambda: np.array([0.5, 0.25]), lambda: np.array(["a"]), lambda: np.str_("logit"),
    lambda: torch.tensor(0.5), lambda: torch.tensor(2), lambda: torch.tensor([0.5, 0.25]), lambda: torch.zeros(0),
    lambda: torch.tensor(float("nan")), lambda: torch.zeros(2, 3), lambda: torch.float32, torch.nn.Identity,
    torch.Generator, lambda: lambda *a, **k: None, lambda: NotImplemented, lambda: Ellipsis,
]  # fmt: skip
SHARES: list[Any] = [0.05, 0.25, 0.5, 1.0, 1]
# sound values of names that many signatures share; the rest follows from the default
SOUND: dict[str, list[Any]] = {
    "rho": [0, 0.1, 1.0, 3, "certified"],
    "eta": [0, 0.01, 0.1, None],
    "sparsity": SHARES,
    "precision": ["float32", None, "bfloat16"],
    "compile": [None, False],
    "hessian_step": [None, 0.01],
    "noise_level": [0.1, 0.5, 0, None],
    "sigma": [0.25, 1, None],
    "seed": [0, 1, 7, 2**40],
    "statistic": [*mg.STATISTICS, "variance"],
    "prior": [None, *mg.PRIORS],
    "derivative": [None, "implicit", "frozen", "unrolled", "covariance", "implicit:2x2"],
    "budget": [8, 16, 17, "fast"],
    "groups": [1, 2, 4, 8, "channels", "superpixels"],
    "box": [None, "model", (-9.0, 9.0), [-9, 9]],
    "epsilon": [0.01, 0.5, 2],
    "layer": [None, "second", "first"],
    "layers": [None, "second", ["first", "second"]],
    "baseline": ["black", "zero", "blur", 0.0],
    "smoothing": [None, mg.Smoothing(), mg.Smoothing(sigma=0.3, samples=4), mg.Smoothing(samples=2, fixed=True)],
    "surrogate": [None, "softplus"],
    "slope": [None, "frozen", "implicit", "square"],
    "goal": [None, 1, [0, 2]],
    "region": [(0, 0, 4, 4), [1, 2, 8, 8]],
    "classes": [None, (0, 1)],
    "k": [None, 3, 0.1],
    "units": [None, "pixels", "entries"],
    "bounds": [None, (0.0, 1.0), (-5, 5)],
    "lipschitz": [None, 1.0, "exact"],
    "curvature": [None, 0.5, (0.1, 2.0), "exact"],
    "alpha": [0.001, 0.1],
    "grid": [None, 2],
    "against": [0, 1, 2, -1],
    "modes": [("frozen",), ("implicit", "square")],
    "metrics": [(), ("ssim",), ("ssim:raw", "cosine")],
    "epsilons": [(0.3,), (0.1, 1.0)],
    "methods": [
        {"gradient": {}}, {"gradient": {}, "moreau": {"samples": 2}}, {"a": {"method": "smoothgrad", "samples": 2}},
    ],
    "attacks": [{"noise": {"tries": 2}}, {"topk": {"steps": 2}}],
    "minutes": [None, 1],
    "mean": [0.5, (0.485, 0.456, 0.406), [0.5]],
    "std": [0.2, (0.229, 0.224, 0.225), [0.5]],
    "size": [None, 8, (8, 8), 2],
    "position": [(0, 0), (1, 2)],
    "weights": [(1.0, 1.0)],
    "betas": [(10.0, 100.0)],
    "low": [0, -1.0],
    "high": [1, 3.5],
    "tolerance": [None, 0, 3.0],
    "confidence": [0.0, 0.5, 0.95],
    "tol": [None, 0.0, 1e-3],
    "device": [None, "cpu"],
    "labels": [None, ["a", "b", "c"]],
    "name": [None, "some_name"],
    "target": [None, 0, [1, 2]],
    "names": [(), ["a", "b"]],
    "show_progress": [None, False],
    "of": [None, 0],
    "method": ["gradient", "smoothgrad", "sparse_moreau"],
    "folder": [None],
}  # fmt: skip
WORKLOADS = [1, 2, 3, 4, 8]


def sound_value(chance: random.Random, name: str, parameter: inspect.Parameter) -> Any:
    """A value that an option of this name, or with this default, can have; sometimes as NumPy spells it."""
    default = None if parameter.default is parameter.empty else parameter.default
    if name in SOUND:
        found = chance.choice(SOUND[name])
    elif isinstance(default, bool) or "bool" in str(parameter.annotation):
        found = chance.random() < 0.5
    elif name in WORK or isinstance(default, int) or str(parameter.annotation) in ("int", "int | None"):
        found = chance.choice(WORKLOADS)
    elif isinstance(default, float) or "float" in str(parameter.annotation):
        found = chance.choice([0.5, 1.0, 2]) * (default or 1.0)
    else:
        found = default
    return as_numpy(chance, found) if chance.random() < 0.15 else found


def as_numpy(chance: random.Random, value: Any) -> Any:
    """The same number in a scalar of NumPy; anything else as it is."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return value
    if isinstance(value, int):
        return chance.choice([np.int64, np.int32, np.uint8])(value) if 0 <= value < 128 else value
    return np.float64(value)


def as_plain(value: Any) -> Any:
    """A scalar of NumPy as the number that it is."""
    return value.item() if isinstance(value, np.integer | np.floating) else value


def odd_value(chance: random.Random, name: str) -> Any:
    """A value that an option may be given by mistake."""
    if chance.random() < 0.1 and name not in WORK:
        return chance.choice(LARGE)
    value = chance.choice(ODD)()
    return 1 if name == "compile" and value is True else value  # the compiler itself works for tens of seconds
