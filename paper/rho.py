"""Effect of rho: maps of MoreauGrad without prior and without noise, from rho = 0 (the simple gradient) to beyond 1.

The images are the first of the seeded choice, not picked by looks. The paper finds that maps improve up to rho = 1 and
may get worse beyond; here the table says of each map how well its problem was solved and how far the map has moved. The
last row shows the first image once more, with the noise of the other figures (rho = 0 is then SmoothGrad).
"""

from __future__ import annotations

from functools import partial

import moreaugrad as mg
from paper.datasets import Sample
from paper.recipes import LEVEL
from paper.settings import Settings
from paper.sweep import Line, Sweep

RHOS = (0.0, 0.1, 0.3, 1.0, 3.0, 10.0)
BUDGET, QUICK = (200, 800), (48, 64)  # gradients of a map without noise, and with it


def make(settings: Settings) -> bool:
    budget, noisy = QUICK if settings.quick else BUDGET
    return Sweep(
        "rho",
        "rho",
        RHOS,
        partial(_solve, budget=budget),
        _words,
        "MoreauGrad without prior and noise, for several rho; last row: with noise",
        "Above a map: its optimality residual relative to its length, and its normalised distance to the first.",
        heads={0.0: "rho = 0: simple gradient"},
        more=_drop,
        told={"noise_level": [0, LEVEL], "budget": [budget, noisy]},
        again=("with noise", partial(_solve_smoothed, budget=noisy)),
    ).make(settings)


def _solve(sample: Sample, budget: int) -> list[mg.Explanation]:
    solved = [
        mg.MoreauGrad(sample.classifier, rho, smoothing=None, budget=budget).explain(sample.x) for rho in RHOS[1:]
    ]
    return [mg.Gradient(sample.classifier).explain(sample.x), *solved]


def _solve_smoothed(sample: Sample, budget: int) -> list[mg.Explanation]:
    model, noise = sample.classifier, mg.Smoothing(LEVEL)
    solved = [mg.MoreauGrad(model, rho, smoothing=noise, budget=budget).explain(sample.x) for rho in RHOS[1:]]
    return [mg.SmoothGrad(model, mg.Smoothing(LEVEL, samples=budget)).explain(sample.x), *solved]


def _drop(found: mg.Explanation, rho: float) -> Line:
    """f(x) - f(x + delta), what the solution takes from the score: objective = f(x + delta) + |delta|^2/(2 rho).

    Under noise f(x + delta) is that of the smoothed score, f(x) the score itself.
    """
    if found.delta is None or found.envelope is None or found.score is None:
        return {"score_drop": 0.0, "delta_norm": 0.0}
    length = float(found.delta.norm())
    return {"score_drop": found.score.item() - found.envelope.item() + length**2 / (2 * rho), "delta_norm": length}


def _words(line: Line) -> str:
    if line["rho"] == 0:
        return "SmoothGrad" if line["way"] else ""
    distance = f"distance {line['distance_to_first']:.2f}"
    if line["way"]:  # the residual there is mostly the noise of its estimate
        return distance
    left = 100 * line["relative_residual"]
    told = "converged" if line["converged"] else f"residual {left:.{0 if left > 1 else 1}f} %"
    return f"{told}, {distance}"
