"""Effect of eta on groups: maps of Group-sparse MoreauGrad on a grid of 16 x 16 cells; the paper takes 0.05.

The images are the first of the seeded choice, not picked by looks. One solve gives the whole path.
"""

from __future__ import annotations

from functools import partial

import moreaugrad as mg
from paper.datasets import Sample
from paper.settings import Settings
from paper.sweep import Line, Sweep, share

ETAS = (0.0, 0.02, 0.05, 0.1, 0.15, 0.2)
CELLS = 16  # a side
BUDGET, QUICK = 1600, 160  # gradients of a map


def make(settings: Settings) -> bool:
    budget = QUICK if settings.quick else BUDGET
    return Sweep(
        "groups",
        "eta",
        ETAS,
        partial(_solve, budget=budget),
        lambda line: f"{share(line['active_groups'])} of the cells",
        "Group-sparse MoreauGrad on 16 x 16 cells for several eta, rho = 1",
        "Above a map: the share of the cells that are not zero.",
        heads={0.0: "eta = 0: MoreauGrad", 0.05: "eta = 0.05, as published"},
        more=_active,
        told={"rho": 1.0, "noise_level": 0.1, "cells": CELLS, "budget": budget},
    ).make(settings)


def _solve(sample: Sample, budget: int) -> list[mg.Explanation]:
    method = mg.GroupSparseMoreauGrad(sample.classifier, eta=list(ETAS), groups=CELLS, budget=budget)
    found: list[mg.Explanation] = method.explain(sample.x)
    return found


def _active(found: mg.Explanation, eta: float) -> Line:
    return {"active_groups": mg.METRICS["active_groups"](found.map, CELLS).item()}
