"""Effect of rho: maps of MoreauGrad without prior and without noise, from rho = 0 (the simple gradient) to beyond 1.

The paper finds that maps improve up to rho = 1 and may get worse beyond; here the table says for each map how well its
problem was solved and how far the map has moved. The last row shows the first image once more, with the noise of the
other figures (rho = 0 is then SmoothGrad).
"""

from __future__ import annotations

import moreaugrad as mg
from paper.data.datasets import Sample
from paper.data.recipes import LEVEL
from paper.data.records import Line
from paper.figures.sweep import Sweep
from paper.settings import Settings

RHOS = (0.0, 0.1, 0.3, 1.0, 3.0, 10.0)
BUDGET, QUICK = (200, 800), (48, 64)  # gradients of a map without noise, and with it


def make(settings: Settings) -> bool:
    budget, noisy = QUICK if settings.quick else BUDGET

    def solve(sample: Sample) -> list[mg.Explanation]:
        return _explain(sample, mg.Gradient(sample.classifier), None, budget)

    def solve_smoothed(sample: Sample) -> list[mg.Explanation]:
        first = mg.SmoothGrad(sample.classifier, mg.Smoothing(LEVEL, samples=noisy))
        return _explain(sample, first, mg.Smoothing(LEVEL), noisy)

    return Sweep(
        "rho",
        "rho",
        RHOS,
        solve,
        _caption,
        "MoreauGrad without prior and noise, for several rho; last row: with noise",
        "Above a map: its optimality residual relative to its length, and its normalised distance to the first.",
        headings={0.0: "rho = 0: simple gradient"},
        extra=_measure_drop,
        options={"noise_level": [0, LEVEL], "budget": [budget, noisy]},
        again=("with noise", solve_smoothed),
    ).make(settings)


def _explain(sample: Sample, first: mg.Method, noise: mg.Smoothing | None, budget: int) -> list[mg.Explanation]:
    methods = [mg.MoreauGrad(sample.classifier, rho, smoothing=noise, budget=budget) for rho in RHOS[1:]]
    return [method.explain(sample.x) for method in (first, *methods)]


def _measure_drop(found: mg.Explanation, rho: float) -> Line:
    """f(x) - f(x + delta), what the solution takes from the score: objective = f(x + delta) + |delta|^2/(2 rho).

    Under noise f(x + delta) is that of the smoothed score, f(x) the score itself.
    """
    if found.delta is None or found.envelope is None or found.score is None:
        return {"score_drop": 0.0, "delta_norm": 0.0}
    length = float(found.delta.norm())
    return {"score_drop": found.score.item() - found.envelope.item() + length**2 / (2 * rho), "delta_norm": length}


def _caption(line: Line) -> str:
    if line["rho"] == 0:
        return "SmoothGrad" if line["way"] else ""
    distance = f"distance {line['distance_to_first']:.2f}"
    if line["way"]:  # the residual there is mostly the noise of its estimate
        return distance
    left = 100 * line["relative_residual"]
    state = "converged" if line["converged"] else f"residual {left:.{0 if left > 1 else 1}f} %"
    return f"{state}, {distance}"
