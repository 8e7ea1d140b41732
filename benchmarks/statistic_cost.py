"""What the statistics of gradients cost beside a solve that keeps only their mean.

    OMP_NUM_THREADS=1 python -m benchmarks.statistic_cost --data FOLDER [--device cpu] [--budget 160] [--repeats 5]

Solves with and without them take turns, so that both see the same load; of each the fastest counts. On a CPU the time
is that of the processor, which other programs do not count in.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch

import moreaugrad as mg
from benchmarks import photos, record
from moreaugrad.envelope.envelope import Envelope
from moreaugrad.envelope.priors import Zero
from moreaugrad.methods.smoothgrad import TAU
from moreaugrad.model.inputs import Packing
from moreaugrad.model.score import make_score
from moreaugrad.model.smoothing import SmoothedScore


def make_problem(model: Any, x: torch.Tensor) -> Envelope:
    """The smoothed problem of a dense map, which keeps all statistics."""
    with torch.no_grad():
        target = model(x).argmax(1)
    score = make_score(mg.prepare(model), x, target)
    smoothed = SmoothedScore.of(score, mg.Smoothing(), x, Packing.of((x,)), 0)
    return Envelope(smoothed, Zero(), 1.0, x, tau=TAU)


def seconds(work: Callable[[], Any], device: str) -> float:
    """Of the processor on a CPU, of the clock on a GPU."""
    if device.startswith("cuda"):
        return record.timed(device, work)[1]
    start = time.process_time()
    work()
    return time.process_time() - start


def measure(name: str, problem: Envelope, asked: Any) -> dict[str, Any]:
    solver, plain = mg.DualAveraging(budget=asked.budget), replace(problem, tau=None)
    for each in (problem, plain):
        solver.run(each)
    taken: dict[str, list[float]] = {"with": [], "without": []}
    for _ in range(asked.repeats):
        taken["without"].append(seconds(lambda: solver.run(plain), asked.device))
        taken["with"].append(seconds(lambda: solver.run(problem), asked.device))
    more = min(taken["with"]) / min(taken["without"]) - 1
    return {"model": name, "images": len(problem.x), "gradients": asked.budget, "seconds": taken, "more": more}


def main() -> None:
    asked = record.arguments(__doc__, budget=160, repeats=5)
    network, x = photos.load(asked.data, 1, asked.device)
    small = mg.load_model("resnet18_softplus_cifar10", device=asked.device)
    cases = {"efficientnet_lite0": (network, x)}
    cases["resnet18_softplus_cifar10"] = (small, torch.nn.functional.interpolate(x, (32, 32)))
    table = [measure(name, make_problem(*case), asked) for name, case in cases.items()]
    for line in table:
        print(line, flush=True)
    record.store("statistic_cost", asked.device, {"tau": TAU, "table": table}, asked.out)


if __name__ == "__main__":
    main()
