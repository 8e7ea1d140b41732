"""The derivative of a solved map in each mode: seconds, peak memory after few and many solver steps, and direction.

    python -m benchmarks.derivative --data FOLDER [--device cuda] [--photos 4] [--steps 25,200]

The network is the softplus copy of the embedded model. Direction: the cosine, image by image, with the implicit
derivative on many samples (`--reference STEPSxSAMPLES`), for a random cotangent. On a CPU the peak is that of the
whole process so far, so the first row counts.
"""

from __future__ import annotations

import resource
from typing import Any

import torch
from torch import Tensor, nn

import moreaugrad as mg
from benchmarks import photos, record
from moreaugrad.run.contest import slope


def derivative(
    model: nn.Module, x: Tensor, target: Tensor, way: mg.Slope, budget: int, device: str
) -> tuple[Tensor, dict[str, Any]]:
    """The derivative along a fixed cotangent, and what it took."""
    method = mg.SparseMoreauGrad(model, sparsity=0.05, budget=budget, grad_mode=way)
    cotangent = torch.randn(x.shape, generator=torch.Generator().manual_seed(0)).to(device)
    if device.startswith("cuda"):
        torch.cuda.reset_peak_memory_stats()
    leaf = x.clone().requires_grad_()
    maps, solve = record.timed(device, lambda: method.attribute(leaf, target, create_graph=True))
    (found,), pull = record.timed(device, lambda: torch.autograd.grad(maps, leaf, cotangent))
    on_gpu = device.startswith("cuda")
    peak = torch.cuda.max_memory_allocated() if on_gpu else 1024 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    samples = mg.Smoothing().samples
    facts = {"mode": way.mode, "solver_steps": budget // samples, "seconds_solve": solve, "seconds_derivative": pull}
    return found, facts | {"gradients": way.cost(samples), "peak_bytes": peak}


def main() -> None:
    asked = record.arguments(
        __doc__, photos=4, steps="25,200", modes="frozen,implicit,unrolled,covariance", reference="24x64"
    )
    model, x = photos.load(asked.data, asked.photos, asked.device)
    soft = mg.with_softplus(model)
    with torch.no_grad():
        target = model(x).argmax(1)
    samples = mg.Smoothing().samples
    steps, many = map(int, asked.reference.split("x"))
    table: list[dict[str, Any]] = []
    for count in map(int, asked.steps.split(",")):
        best = mg.Slope("implicit", steps, many, tol=1e-6)
        wanted, _ = derivative(soft, x, target, best, samples * count, asked.device)
        for mode in asked.modes.split(","):
            way = slope(mode)
            if asked.device.startswith("cuda"):
                derivative(soft, x, target, way, samples * count, asked.device)  # kernels are loaded here
            found, facts = derivative(soft, x, target, way, samples * count, asked.device)
            cosine = torch.cosine_similarity(found.flatten(1), wanted.flatten(1)).tolist()
            table.append({**facts, "cosine_with_reference": cosine})
            print(table[-1], flush=True)
            figures = {"images": len(x), "reference": asked.reference, "table": table}
            record.store("derivative", asked.device, figures, asked.out)


if __name__ == "__main__":
    main()
