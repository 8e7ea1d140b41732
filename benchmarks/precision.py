"""How much a reduced precision changes maps, compared with another seed at the same budget.

    python -m benchmarks.precision --data FOLDER [--device cuda] [--photos 64]

A precision may be the default if 1 - cos(map, float32 map) <= 0.1 * (1 - cos between two seeds), on average.
"""

from __future__ import annotations

from typing import Any

import torch

import moreaugrad as mg
from benchmarks import photos, record


def main() -> None:
    args = record.arguments(__doc__, photos=64, budget=800, precisions="tf32,float16,bfloat16")
    model, x = photos.load(args.data, args.photos, args.device)

    def maps(precision: str, seed: int = 0, compiled: bool = False) -> Any:
        method = mg.SparseMoreauGrad(
            model, eta=0.005, budget=args.budget, seed=seed, precision=precision, compile=compiled
        )
        return method.attribute(x, target=target).flatten(1)

    with torch.no_grad():
        target = model(x).argmax(1)
    exact = maps("float32")

    def distance(other: Any) -> Any:
        return 1 - torch.cosine_similarity(exact.double(), other.double())

    seeds = distance(maps("float32", seed=1))
    table = []
    for precision in args.precisions.split(","):
        for compiled in (False, True) if x.is_cuda and precision == "float16" else (False,):
            lost = distance(maps(precision, compiled=compiled))
            row = {
                "precision": precision,
                "compiled": compiled,
                "mean_distance": float(lost.mean()),
                "largest_distance": float(lost.max()),
                "share_of_seed_distance": float(lost.mean() / seeds.mean()),
                "photos_above_a_tenth_of_their_own_seed_distance": int((lost > 0.1 * seeds).sum()),
                "may_be_default": bool(lost.mean() <= 0.1 * seeds.mean()),
            }
            table.append(row)
            print(row, flush=True)
    results = {"photos": len(x), "budget": args.budget, "seed_distance": float(seeds.mean()), "table": table}
    record.store("precision", args.device, results, args.out)


if __name__ == "__main__":
    main()
