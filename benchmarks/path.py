"""A path of sparsities: its cost relative to one map, and the quality of its points relative to separate solves.

    python -m benchmarks.path --data FOLDER [--device cuda] [--photos 20]

The gap of a point is mean(F_path - F_separate) / mean(F(0) - F_separate), both at the eta of the path's point,
F on 512 fresh noise samples.
"""

from __future__ import annotations

import torch

import moreaugrad as mg
from benchmarks import photos, record
from benchmarks.objective import objective

SHARES = "0.005,0.01,0.02,0.05,0.1,0.15,0.2,0.3"


def main() -> None:
    args = record.arguments(__doc__, photos=20, budget=800, fresh=512, shares=SHARES)
    shares = [float(share) for share in args.shares.split(",")]
    model, x = photos.load(args.data, args.photos, args.device)
    one = mg.SparseMoreauGrad(model, sparsity=0.05, budget=args.budget, compile=False)
    one.attribute(x[:1], target=0)
    single, seconds = record.timed(args.device, lambda: one.explain(x))
    several = mg.SparseMoreauGrad(model, sparsity=shares, budget=args.budget, compile=False)
    points, longer = record.timed(args.device, lambda: several.explain(x))
    table = []
    for share, point in zip(shares, points, strict=True):
        alone = mg.SparseMoreauGrad(model, eta=point.eta, budget=args.budget, compile=False).explain(
            x, target=single.target
        )
        values = [
            objective(model, x, single.target, delta, point.eta, args.fresh)
            for delta in (point.delta, alone.delta, torch.zeros_like(x))
        ]
        found, separate, nothing = (float(value.mean()) for value in values)
        row = {
            "sparsity": share,
            "kept": float(point.kept.mean()),
            "gradients": int(point.gradients.max()),
            "relative_gap_to_separate_solve": (found - separate) / (nothing - separate),
            "cosine_to_separate_solve": float(
                torch.cosine_similarity(point.map.flatten(1), alone.map.flatten(1)).mean()
            ),
        }
        table.append(row)
        print(row, flush=True)
    results = {
        "photos": len(x),
        "budget": args.budget,
        "seconds_of_one_map": seconds,
        "seconds_of_the_path": longer,
        "cost_in_gradients": sum(row["gradients"] for row in table) / int(single.gradients.max()),
        "cost_in_seconds": longer / seconds,
        "table": table,
    }
    print({key: results[key] for key in ("cost_in_gradients", "cost_in_seconds")})
    record.store("path", args.device, results, args.out)


if __name__ == "__main__":
    main()
