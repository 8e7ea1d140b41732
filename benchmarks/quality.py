"""Quality of a map against the gradients spent on it, compared with the published algorithm.

    python -m benchmarks.quality --data FOLDER [--device cuda] [--photos 32]

F is the objective (rho 1, eta 0.005, relative noise 0.1, logit of the predicted class) on 512 fresh noise
samples that no solver has used. The relative gap is mean(F - F_paper) / mean(F(0) - F_paper), F_paper from
300 steps of 64 samples, step 0.1, average of the last 101 iterates. Negative: better than the published result.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

import moreaugrad as mg
from benchmarks import photos, record
from benchmarks.objective import objective

RHO, ETA, NOISE_LEVEL = 1.0, 0.005, 0.1
PUBLISHED_STEPS, PUBLISHED_SAMPLES = 300, 64


def main() -> None:
    args = record.arguments(
        __doc__,
        photos=32,
        budgets="160,320,400,600,800,1600,3200",
        paper_steps=PUBLISHED_STEPS,
        reference=12_800,
        fresh=512,
        compile=True,
        precision="",
    )
    model, x = photos.load(args.data, args.photos, args.device)

    def solve(**options: Any) -> tuple[Any, float]:
        running = {"precision": args.precision or None, "compile": args.compile}
        method = mg.SparseMoreauGrad(model, rho=RHO, eta=ETA, **running, **options)
        return record.timed(args.device, lambda: method.explain(x))

    solve(budget=16)  # compiles
    published = mg.PaperAlgorithm(args.paper_steps, gamma=0.1, tail=101)
    paper, seconds = solve(smoothing=mg.Smoothing(noise_level=NOISE_LEVEL, samples=PUBLISHED_SAMPLES), solver=published)
    reference, _ = solve(budget=args.reference, seed=2)

    def value(delta: Tensor) -> Tensor:
        return objective(model, x, paper.target, delta, ETA, args.fresh)

    def cosine(one: Any, two: Any) -> float:
        return float(torch.cosine_similarity(one.map.flatten(1), two.map.flatten(1)).mean())

    best, nothing = value(paper.delta), value(torch.zeros_like(x))
    gain = (nothing - best).mean()
    table: list[dict[str, Any]] = [
        {
            "solver": "PaperAlgorithm",
            "gradients": int(paper.gradients[0]),
            "relative_gap": 0.0,
            "share_nonzero": float(paper.kept.mean()),
            "cosine_to_reference": cosine(paper, reference),
            "seconds": seconds,
        }
    ]
    for budget in map(int, args.budgets.split(",")):
        found, seconds = solve(budget=budget)
        other, _ = solve(budget=budget, seed=1)
        gaps = [float((value(e.delta) - best).mean() / gain) for e in (found, other)]
        row = {
            "solver": "DualAveraging",
            "gradients": int(found.gradients.max()),
            "relative_gap": sum(gaps) / 2,
            "relative_gap_of_each_seed": gaps,
            "share_nonzero": float(found.kept.mean()),
            "cosine_to_reference": cosine(found, reference),
            "seed_to_seed_cosine": cosine(found, other),
            "seed_variance_over_stderr_squared": _variance_ratio(found, other),
            "converged": float(found.converged.float().mean()),
            "seconds": seconds,
        }
        table.append(row)
        print(row, flush=True)
    results = {
        "photos": len(x),
        "precision": paper.options["precision"],
        "compiled": args.compile,
        "fresh_samples": args.fresh,
        "reference_gradients": int(reference.gradients.max()),
        "mean_gain": float(gain),
        "table": table,
    }
    record.store("quality", args.device, results, args.out)


def _variance_ratio(one: Any, two: Any) -> float:
    """Variance between two seeds over the variance that stderr reports, on entries that both keep; 1 is ideal."""
    both = (one.map != 0) & (two.map != 0)
    measured = (one.map - two.map)[both].square().mean() / 2
    return float(measured / ((one.stderr[both].square() + two.stderr[both].square()) / 2).mean())


if __name__ == "__main__":
    main()
