"""How much another seed changes a map, and whether `converged` says so.

    python -m benchmarks.seeds --data FOLDER [--photos 64] [--qualities fast,balanced,best]

Each photo is explained twice by sparse_moreau (5 % of the entries), with seeds 0 and 1. A map that is called converged
although the second seed has a cosine below 0.8 is a false promise. Rows are kept in build/seeds.jsonl: an interrupted
run resumes there.
"""

from __future__ import annotations

import json
from itertools import pairwise
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

import moreaugrad as mg
from benchmarks import photos, record
from moreaugrad.methods import QUALITY

SPARSITY, FAR = 0.05, 0.8
EDGES = (0.0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.7, 1.0, float("inf"))  # of the relative errors in the table


def main() -> None:
    args = record.arguments(__doc__, photos=64, qualities=",".join(QUALITY), rows="build/seeds.jsonl")
    model, x = photos.load(args.data, args.photos, args.device)
    rows = Path(args.rows)
    rows.parent.mkdir(parents=True, exist_ok=True)
    done = [json.loads(line) for line in rows.read_text().splitlines()] if rows.is_file() else []
    known = {(row["quality"], row["photo"]) for row in done}
    for quality in args.qualities.split(","):
        for photo in range(len(x)):
            if (quality, photo) not in known:
                done.append({"quality": quality, "photo": photo, **compare_seeds(model, x[photo : photo + 1], quality)})
                with rows.open("a") as handle:
                    handle.write(json.dumps(done[-1]) + "\n")
    chosen = [row for row in done if row["quality"] in args.qualities.split(",") and row["photo"] < len(x)]
    parts = {quality: [row for row in chosen if row["quality"] == quality] for quality in args.qualities.split(",")}
    results = {"all": summarise(chosen), **{quality: summarise(part) for quality, part in parts.items()}}
    record.store("seeds", args.device, {**results, "by_relative_error": tabulate(chosen), "rows": chosen})


def compare_seeds(model: torch.nn.Module, x: Tensor, quality: str) -> dict[str, Any]:
    """The maps of two seeds: what each says of itself, and how alike they are."""
    found = [mg.SparseMoreauGrad(model, sparsity=SPARSITY, budget=quality, seed=seed).explain(x) for seed in (0, 1)]
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
    far = [said for row in rows for said in row["converged"] if row["cosine"] < FAR]
    return {
        "maps": 2 * len(rows),
        "converged": len(called),
        "converged_but_far": wrong,
        "share_of_converged": wrong / max(1, len(called)),
        "far": len(far),
        "mean_cosine": sum(row["cosine"] for row in rows) / max(1, len(rows)),
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
