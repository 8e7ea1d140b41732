"""Effect of eta: maps of Sparse MoreauGrad from eta = 0 (vanilla) up; the paper takes 0.005.

The images are the first of the seeded choice, not picked by looks. One solve gives the whole path.
"""

from __future__ import annotations

from functools import partial

import moreaugrad as mg
from paper.datasets import Sample
from paper.settings import Settings
from paper.sweep import Line, Sweep, share

ETAS = (0.0, 0.001, 0.002, 0.005, 0.01, 0.02)
BUDGET, QUICK = 1600, 160  # gradients of a map


def make(settings: Settings) -> bool:
    budget = QUICK if settings.quick else BUDGET
    return Sweep(
        "eta",
        "eta",
        ETAS,
        partial(_solve, budget=budget),
        _words,
        "Sparse MoreauGrad for several eta, rho = 1",
        "Above a map: the share of its entries that are not zero.",
        heads={0.0: "eta = 0: MoreauGrad", 0.005: "eta = 0.005, as published"},
        told={"rho": 1.0, "noise_level": 0.1, "budget": budget},
    ).make(settings)


def _solve(sample: Sample, budget: int) -> list[mg.Explanation]:
    found: list[mg.Explanation] = mg.SparseMoreauGrad(sample.classifier, eta=list(ETAS), budget=budget).explain(
        sample.x
    )
    return found


def _words(line: Line) -> str:
    return f"{share(line['nonzero_share'])} non-zero"
