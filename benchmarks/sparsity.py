"""Whether a requested sparsity is reached, and whether its eta gives it again with another seed.

python -m benchmarks.sparsity --data FOLDER [--device cuda] [--photos 20]
"""

from __future__ import annotations

import moreaugrad as mg
from benchmarks import photos, record

METHODS = (mg.SparseMoreauGrad, mg.GroupSparseMoreauGrad)


def main() -> None:
    args = record.arguments(__doc__, photos=20, budget=800, shares="0.01,0.05,0.20", groups=True)
    model, x = photos.load(args.data, args.photos, args.device)
    table = []
    for method in METHODS if args.groups else METHODS[:1]:
        for share in map(float, args.shares.split(",")):
            found = method(model, sparsity=share, budget=args.budget).explain(x)
            again = method(model, eta=found.eta, budget=args.budget, seed=1)
            kept = again.explain(x).kept
            change = 100 * (kept - found.kept).abs()
            row = {
                "method": method.__name__,
                "asked_percent": 100 * share,
                "worst_miss_points": 100 * float((found.kept - share).abs().max()),
                "change_with_same_eta_other_seed_points": [round(c, 3) for c in change.tolist()],
                "photos_within_half_a_point": int((change <= 0.5).sum()),
                "median_change_points": float(change.median()),
                "pixels_kept_percent": 100 * float(found.pixels_kept.mean()),
                "eta_smallest": float(found.eta.min()),
                "eta_largest": float(found.eta.max()),
            }
            table.append(row)
            print(row, flush=True)
    results = {"photos": len(x), "budget": args.budget, "table": table}
    record.store("sparsity", args.device, results, args.out)


if __name__ == "__main__":
    main()
