"""Effect of eta on groups: maps of Group-sparse MoreauGrad on a grid of 16 x 16 cells; the paper takes 0.05."""

from __future__ import annotations

import moreaugrad as mg
from paper.figures.sweep import EtaSweep, format_share

CELLS = 16  # a side
SWEEP = EtaSweep(
    (0.0, 0.02, 0.05, 0.1, 0.15, 0.2),
    0.05,
    lambda model, etas, budget: mg.GroupSparseMoreauGrad(model, eta=etas, groups=CELLS, budget=budget),
    {
        "figure": "groups",
        "title": "Group-sparse MoreauGrad on 16 x 16 cells for several eta, rho = 1",
        "note": "Above a map: the share of the cells that are not zero.",
        "caption": lambda line: f"{format_share(line['active_groups'])} of the cells",
        "extra": lambda found, eta: {"active_groups": mg.METRICS["active_groups"](found.map, CELLS).item()},
        "options": {"cells": CELLS},
    },
)
make = SWEEP.make
