"""How much another seed changes a map, and whether `converged` says so.

    python -m benchmarks.seeds --data FOLDER [--photos 64] [--best-every 8]

Each photo is explained twice by sparse_moreau (5 % of the entries), with seeds 0 and 1. A map that is called converged
although the second seed has a cosine below 0.8 is a false promise. --best-every takes only every so many photos for the
quality `best`, which costs most; --budget replaces the budgets of the qualities. Rows are kept in build/seeds.jsonl (or
OUT/seeds.jsonl): an interrupted run resumes there.
"""

from __future__ import annotations

import json
from itertools import pairwise
from pathlib import Path
from statistics import median
from typing import Any

import torch
from torch import Tensor

import moreaugrad as mg
from benchmarks import photos, record
from moreaugrad.methods import QUALITY

SPARSITY, FAR = 0.05, 0.8
EDGES = (0.0, 0.1, 0.2, 0.3, 0.4, 0.5, 1.0)  # of the relative errors in the table


def main() -> None:
    args = record.arguments(__doc__, photos=64, best_every=1, qualities=",".join(QUALITY), budget=0)
    model, x = photos.load(args.data, args.photos, args.device)
    rows = (args.out or Path("build")) / "seeds.jsonl"
    rows.parent.mkdir(parents=True, exist_ok=True)
    qualities = args.qualities.split(",")
    lines = rows.read_text().splitlines() if rows.is_file() else []
    known = {(row["quality"], row["photo"]): row for row in map(json.loads, lines)}
    plan = [(quality, photo) for quality in qualities for photo in range(0, len(x), _step(quality, args.best_every))]
    for quality, photo in plan:
        if (quality, photo) not in known:
            row = {
                "quality": quality,
                "photo": photo,
                **compare_seeds(model, x[photo : photo + 1], args.budget or quality),
            }
            known[quality, photo] = row
            with rows.open("a") as handle:
                handle.write(json.dumps(row) + "\n")
    chosen = [known[each] for each in plan]
    parts = {"all": chosen} | {each: [row for row in chosen if row["quality"] == each] for each in qualities}
    table = [{"quality": quality, **summarise(part)} for quality, part in parts.items()]
    record.store(
        "seeds", args.device, {"table": table, "by_relative_error": tabulate(chosen), "rows": chosen}, args.out
    )


def _step(quality: str, best_every: int) -> int:
    return best_every if quality == "best" else 1


def compare_seeds(model: torch.nn.Module, x: Tensor, budget: int | str) -> dict[str, Any]:
    """The maps of two seeds: what each says of itself, and how alike they are."""
    found = [mg.SparseMoreauGrad(model, sparsity=SPARSITY, budget=budget, seed=seed).explain(x) for seed in (0, 1)]
    one, two = (each.map.flatten() for each in found)
    kept = (one != 0) & (two != 0)
    return {
        "cosine": float(torch.cosine_similarity(one, two, 0)),
        "overlap": float(kept.sum() / ((one != 0) | (two != 0)).sum()),
        "relative_error": [float(each.relative_error) for each in found],
        "converged": [bool(each.converged) for each in found],
    }


def summarise(rows: list[dict[str, Any]]) -> dict[str, float]:
    """Over all maps, two for each row: how many are called converged, and how many of those wrongly."""
    called = [row for row in rows for said in row["converged"] if said]
    wrong = sum(row["cosine"] < FAR for row in called)
    return {
        "maps": 2 * len(rows),
        "converged": len(called),
        "converged_but_far": wrong,
        "share_of_converged": wrong / max(1, len(called)),
        "far": 2 * sum(row["cosine"] < FAR for row in rows),
        "mean_cosine": sum(row["cosine"] for row in rows) / max(1, len(rows)),
        "median_relative_error": median([error for row in rows for error in row["relative_error"]]),
    }


def tabulate(rows: list[dict[str, Any]]) -> list[dict[str, float]]:
    """The cosines of seeds by the relative error that the maps report."""
    table = []
    for low, high in pairwise(EDGES):
        cosines = [row["cosine"] for row in rows for error in row["relative_error"] if low <= error < high]
        if cosines:
            mean = sum(cosines) / len(cosines)
            table.append({"from": low, "maps": len(cosines), "lowest_cosine": min(cosines), "mean_cosine": mean})
    return table


if __name__ == "__main__":
    main()
