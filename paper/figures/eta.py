"""Effect of eta: maps of Sparse MoreauGrad from eta = 0 (vanilla) up; the paper takes 0.005."""

from __future__ import annotations

import moreaugrad as mg
from paper.figures.sweep import EtaSweep, format_share

SWEEP = EtaSweep(
    (0.0, 0.001, 0.002, 0.005, 0.01, 0.02),
    0.005,
    lambda model, etas, budget: mg.SparseMoreauGrad(model, eta=etas, budget=budget),
    {
        "figure": "eta",
        "title": "Sparse MoreauGrad for several eta, rho = 1",
        "note": "Above a map: the share of its entries that are not zero.",
        "caption": lambda line: f"{format_share(line['nonzero_share'])} non-zero",
    },
)
make = SWEEP.make
