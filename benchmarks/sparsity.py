"""Whether a chosen sparsity is met, and holds when its eta is used again with another seed.

python -m benchmarks.sparsity --data FOLDER [--device cuda] [--photos 20]
"""

from __future__ import annotations

import argparse
from pathlib import Path

import torch

import moreaugrad as mg
from benchmarks import photos, record

METHODS = (mg.SparseMoreauGrad, mg.GroupSparseMoreauGrad)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--photos", type=int, default=20)
    parser.add_argument("--rows", type=int, default=320)
    parser.add_argument("--budget", type=int, default=800)
    parser.add_argument("--shares", default="0.01,0.05,0.20")
    parser.add_argument("--groups", action=argparse.BooleanOptionalAction, default=True)
    parser.add_argument("--out", type=Path)
    asked = parser.parse_args()
    model, x = photos.load(asked.data, asked.photos, asked.device)
    table = []
    for method in METHODS if asked.groups else METHODS[:1]:
        for share in map(float, asked.shares.split(",")):
            found = method(model, sparsity=share, budget=asked.budget).explain(x, internal_batch_size=asked.rows)
            again = method(model, eta=found.eta, budget=asked.budget, seed=1)
            kept = again.explain(x, internal_batch_size=asked.rows).kept
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
    print(
        "stored",
        record.store("sparsity", asked.device, {"photos": len(x), "budget": asked.budget, "table": table}, asked.out),
    )


if __name__ == "__main__":
    main()
