"""How far a map moves when nothing but its company or the chunk size changes.

    python -m benchmarks.invariance --data FOLDER [--device cuda] [--photos 4] [--budget 800]

Differences are the largest over the entries, relative to the largest entry of the map.
"""

from __future__ import annotations

from typing import Any

import torch

import moreaugrad as mg
from benchmarks import photos, record


def main() -> None:
    asked = record.arguments(__doc__, photos=4, budget=800, rows="4,8,32")
    model, x = photos.load(asked.data, asked.photos, asked.device)
    method = mg.SparseMoreauGrad(model, sparsity=0.05, budget=asked.budget)
    together = method.explain(x)

    def worst(others: Any) -> float:
        scale = together.map.flatten(1).abs().amax(1)
        return float(((others - together.map).flatten(1).abs().amax(1) / scale).max())

    alone = torch.cat([method.attribute(x[i : i + 1], target=together.target[i : i + 1]) for i in range(len(x))])
    backwards = method.attribute(x.flip(0), target=together.target.flip(0)).flip(0)
    figures: dict[str, Any] = {
        "photos": len(x),
        "budget": asked.budget,
        "alone_against_batch": worst(alone),
        "reversed_order": worst(backwards),
        "other_internal_batch_size": {},
    }
    for rows in map(int, asked.rows.split(",")):
        moved = method.attribute(x, target=together.target, internal_batch_size=rows)
        cosine = torch.cosine_similarity(moved.flatten(1), together.map.flatten(1)).min()
        figures["other_internal_batch_size"][rows] = {"worst": worst(moved), "cosine": float(cosine)}
    print(figures)
    record.store("invariance", asked.device, figures, asked.out)


if __name__ == "__main__":
    main()
