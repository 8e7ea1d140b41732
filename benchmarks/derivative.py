"""The derivative of a solved map in each mode: seconds, peak memory after few and many solver steps, and direction.

    python -m benchmarks.derivative --data FOLDER [--device cuda] [--photos 4] [--steps 25,200]

The network is the softplus copy of the default model. Direction means the cosine, for each image, with the implicit
derivative on many samples (`--reference STEPSxSAMPLES`), for a random cotangent. On a CPU each row runs in its own
process, whose peak includes Python and torch.
"""

from __future__ import annotations

import multiprocessing
import resource
from argparse import Namespace
from contextlib import ExitStack
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

import moreaugrad as mg
from benchmarks import photos, record
from moreaugrad.envelope.derivative import Derivative, parse_derivative


def derivative(
    model: nn.Module, x: Tensor, target: Tensor, way: Derivative, budget: int, device: str
) -> tuple[Tensor, dict[str, Any]]:
    """The derivative along a fixed cotangent, and its cost."""
    method = mg.SparseMoreauGrad(model, sparsity=0.05, budget=budget, derivative=way)
    cotangent = torch.randn(x.shape, generator=torch.Generator().manual_seed(0)).to(device)
    if device.startswith("cuda"):
        torch.cuda.reset_peak_memory_stats()
    leaf = x.clone().requires_grad_()
    maps, solve = record.timed(device, lambda: method.attribute(leaf, target=target, create_graph=True))
    (found,), pull = record.timed(device, lambda: torch.autograd.grad(maps, leaf, cotangent))
    on_gpu = device.startswith("cuda")
    peak = torch.cuda.max_memory_allocated() if on_gpu else 1024 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    samples = mg.Smoothing().samples
    facts = {
        "mode": type(way).__name__.lower(),
        "solver_steps": budget // samples,
        "seconds_solve": solve,
        "seconds_derivative": pull,
    }
    return found, facts | {"gradients": way.cost(samples, random=True), "peak_bytes": peak}


def measured(args: Namespace, mode: str, count: int) -> tuple[Any, dict[str, Any]]:
    """One mode after this number of solver steps; on a GPU the second run counts, when the kernels are loaded."""
    model, x = photos.load(args.data, args.photos, args.device)
    with torch.no_grad():
        target = model(x).argmax(1)
    given = (mg.with_softplus(model), x, target, parse_derivative(mode), mg.Smoothing().samples * count, args.device)
    if args.device.startswith("cuda"):
        derivative(*given)
    found, facts = derivative(*given)
    return found.cpu().numpy(), facts  # an array, because the memory of a tensor would end with the process


def main() -> None:
    modes = "frozen,implicit,unrolled,covariance"
    args = record.arguments(__doc__, photos=4, steps="25,200", modes=modes, reference="24x64")
    table: list[dict[str, Any]] = []
    with ExitStack() as stack:
        # on a CPU the peak is that of a whole process, so each row runs in a new one
        fresh = multiprocessing.get_context("spawn").Pool(1, maxtasksperchild=1)
        run = measured if args.device.startswith("cuda") else partial(stack.enter_context(fresh).apply, measured)
        for count in map(int, args.steps.split(",")):
            wanted, _ = _called(run, args, f"implicit:{args.reference}", count)
            for mode in args.modes.split(","):
                found, facts = _called(run, args, mode, count)
                ends = (torch.from_numpy(each).flatten(1) for each in (found, wanted))
                cosine = torch.cosine_similarity(*ends).tolist()
                table.append({**facts, "cosine_with_reference": cosine})
                print(table[-1], flush=True)
                results = {"images": args.photos, "reference": args.reference, "table": table}
                record.store("derivative", args.device, results, args.out)


def _called(run: Any, *given: Any) -> tuple[Any, dict[str, Any]]:
    return run(*given) if run is measured else run(given)  # type: ignore[no-any-return]


if __name__ == "__main__":
    main()
