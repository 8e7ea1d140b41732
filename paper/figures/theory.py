"""The numbers behind the corrections to the paper's theory: OUT/theory.csv, one line each. Not a figure.

Everything is computed: counterexamples are solved, constants evaluated, the rule of thumb measured on images.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

import moreaugrad as mg
from paper.data import records
from paper.data.datasets import sample
from paper.data.records import Line
from paper.settings import Settings

COLUMNS = ("name", "case", "value")
MOVE = 0.01  # of the input in the counterexample
SIZES = {"cifar10": 3 * 32 * 32, "imagenet": 3 * 224 * 224}  # entries of an image
IMAGES, QUICK = 200, 8


def make(settings: Settings) -> bool:
    lines = [*solve_counterexample(), *compare_signs(), *compare_constants(), *measure_rule_of_thumb(settings)]
    records.write(settings.out / "theory.csv", lines, COLUMNS)
    return True


def solve_counterexample() -> list[Line]:
    """g(u) = (u1 + 10 u2)^2 / 2 + 5 u1 + 20 u2 is convex, so that with rho = 1 the stated constant is 1.

    The sparse map at 0 and at (0, h), by the library's solver: how far it moves per h.
    """
    method = mg.SparseMoreauGrad(_convex, rho=1.0, eta=1.0, smoothing=None, solver=_exact_solver())
    at = torch.tensor([[0.0, 0.0], [0.0, MOVE]], dtype=torch.float64)
    maps = method.attribute(at, 0)
    ratio = float((maps[1] - maps[0]).norm() / MOVE)
    plain = mg.MoreauGrad(_convex, rho=1.0, smoothing=None, solver=_exact_solver()).attribute(at, 0)
    return [
        _line("lipschitz_stated", "counterexample", 1.0),
        _line("counterexample_ratio", "sparse", ratio),
        _line("counterexample_ratio", "plain", float((plain[1] - plain[0]).norm() / MOVE)),
        _line("counterexample_map", "first-entry", float(maps[0, 0])),
        _line("counterexample_map", "second-entry", float(maps[0, 1])),
    ]


def _convex(x: Tensor) -> Tensor:
    first, second = x[:, 0], x[:, 1]
    return ((first + 10 * second).square() / 2 + 5 * first + 20 * second)[:, None]


def _exact_solver() -> mg.ProximalGradient:
    return mg.ProximalGradient(budget=20_000, tol=1e-12)


def compare_signs() -> list[Line]:
    """cos between the gradient and the displacement delta*/rho that the paper's algorithm returns, and its negative."""
    slope = torch.tensor([3.0, -4.0, 1.0], dtype=torch.float64)

    def linear(x: Tensor) -> Tensor:
        return (x @ slope)[:, None]

    x = torch.zeros(1, 3, dtype=torch.float64)
    found: list[Line] = []
    for case, rho in {"linear-rho-half": 0.5, "linear-rho-one": 1.0}.items():
        solved = mg.MoreauGrad(linear, rho=rho, smoothing=None, solver=_exact_solver()).explain(x, 0)
        each = {"displacement": solved.delta[0], "map": solved.map[0]}
        for name, values in each.items():
            found.append(_line(f"cosine_{name}", case, float(torch.cosine_similarity(values, slope, dim=0))))
        for name, values in each.items():
            found.append(_line(f"length_{name}", case, float(values.norm() / slope.norm())))
    return found


def compare_constants() -> list[Line]:
    """Weak convexity of a smoothed L-Lipschitz score in units of L / sigma, and E|Z| in units of sigma sqrt(d)."""
    found = [_line("curvature_sharp", "any", math.sqrt(2 / math.pi))]
    for name, size in {"one": 1, **SIZES}.items():
        mean = math.sqrt(2) * math.exp(math.lgamma((size + 1) / 2) - math.lgamma(size / 2))
        found += [
            _line("entries", name, size),
            _line("curvature_published", name, math.sqrt(size)),
            _line("curvature_loose_by", name, math.sqrt(math.pi * size / 2)),
            _line("mean_norm", name, mean / math.sqrt(size)),
            _line("mean_norm_published", name, math.sqrt(2 / math.pi)),
        ]
    return found


def measure_rule_of_thumb(settings: Settings) -> list[Line]:
    """1 / sqrt(E|X|) over images as the network gets them; 1 is what the paper reports."""
    found: list[Line] = []
    for name in settings.datasets:
        count = QUICK if settings.quick else IMAGES
        x = sample(name, settings, min(48, count) if name == "imagenet" else count).x
        mean = float(x.flatten(1).norm(dim=1).mean())
        found += [_line("mean_length", name, mean), _line("rule_of_thumb", name, 1 / math.sqrt(mean))]
    return found


def _line(name: str, case: str, value: float) -> Line:
    return {"name": name, "case": case, "value": value}
