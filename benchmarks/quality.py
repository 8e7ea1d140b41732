"""Quality of a map against the gradients spent on it, beside the published algorithm.

    python -m benchmarks.quality --data FOLDER [--device cuda] [--photos 32]

F is the objective (rho 1, eta 0.005, relative noise 0.1, logit of the predicted class) on 512 fresh noise
samples that no solver has seen. The relative gap is mean(F - F_paper) / mean(F(0) - F_paper), F_paper from
300 steps of 64 samples, step 0.1, average of the last 101 iterates. Negative: better than the published result.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

import moreaugrad as mg
from benchmarks import photos, record

ETA, RHO, LEVEL = 0.005, 1.0, 0.1


@torch.no_grad()
def objective(model: torch.nn.Module, x: Tensor, target: Tensor, delta: Tensor, samples: int) -> Tensor:
    """F on fresh noise: written from the definition, apart from the library's own scores."""
    sigma = LEVEL * (x.flatten(1).amax(1) - x.flatten(1).amin(1)).view(-1, 1, 1, 1)
    generator = torch.Generator(x.device).manual_seed(2**40 + 1)
    total = torch.zeros(len(x), device=x.device)
    for _ in range(samples):
        noise = torch.randn(x.shape[1:], device=x.device, generator=generator)
        rows = (x + delta + sigma * noise).contiguous(memory_format=torch.channels_last)
        total += model(rows).gather(1, target[:, None])[:, 0]
    return total / samples + delta.flatten(1).square().sum(1) / (2 * RHO) + ETA * delta.flatten(1).abs().sum(1)


def solve(model: torch.nn.Module, x: Tensor, rows: int, samples: int = 16, **options: Any) -> tuple[Any, float]:
    start = time.perf_counter()
    smoothing = mg.Smoothing(noise_level=LEVEL, samples=samples)
    found = mg.SparseMoreauGrad(model, rho=RHO, eta=ETA, smoothing=smoothing, **options)
    explanation = found.explain(x, internal_batch_size=rows)
    if x.is_cuda:
        torch.cuda.synchronize()
    return explanation, time.perf_counter() - start


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--photos", type=int, default=32)
    parser.add_argument("--rows", type=int, default=512)
    parser.add_argument("--budgets", default="160,400,600,800,1600,3200")
    parser.add_argument("--paper-steps", type=int, default=300)
    parser.add_argument("--fresh", type=int, default=512)
    parser.add_argument("--out", type=Path)
    asked = parser.parse_args()

    model, x = photos.load(asked.data, asked.photos, asked.device)
    paper, seconds = solve(
        model, x, asked.rows, samples=64, solver=mg.PaperAlgorithm(asked.paper_steps, gamma=0.1, tail=101)
    )
    target = paper.target

    def value(delta: Tensor) -> Tensor:
        return objective(model, x, target, delta, asked.fresh)

    best, nothing = value(paper.delta), value(torch.zeros_like(x))
    gain = (nothing - best).mean()
    table = [
        {
            "solver": "PaperAlgorithm",
            "gradients": paper.gradients,
            "relative_gap": 0.0,
            "share_nonzero": float(paper.kept.mean()),
            "seconds": seconds,
        }
    ]
    for budget in map(int, asked.budgets.split(",")):
        found, seconds = solve(model, x, asked.rows, budget=budget)
        other, _ = solve(model, x, asked.rows, budget=budget, seed=1)
        flat, again = found.map.flatten(1), other.map.flatten(1)
        gaps = [float((value(e.delta) - best).mean() / gain) for e in (found, other)]
        row = {
            "solver": "DualAveraging",
            "gradients": found.gradients,
            "relative_gap": sum(gaps) / 2,
            "relative_gap_of_each_seed": gaps,
            "share_nonzero": float(found.kept.mean()),
            "seed_to_seed_cosine": float(torch.cosine_similarity(flat, again).mean()),
            "seed_variance_over_stderr_squared": _honesty(found, other),
            "converged": float(found.converged.float().mean()),
            "seconds": seconds,
        }
        table.append(row)
        print(row, flush=True)
    figures = {"photos": len(x), "fresh_samples": asked.fresh, "mean_gain": float(gain), "table": table}
    print("stored", record.store("quality", asked.device, figures, asked.out))


def _honesty(one: Any, two: Any) -> float:
    """Variance between two seeds over the variance that stderr claims, on entries that both keep: 1 is honest."""
    both = (one.map != 0) & (two.map != 0)
    seen = (one.map - two.map)[both].square().mean() / 2
    return float(seen / ((one.stderr[both].square() + two.stderr[both].square()) / 2).mean())


if __name__ == "__main__":
    main()
