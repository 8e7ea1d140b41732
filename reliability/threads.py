"""Everything of the package in many threads and processes at once: the results must be those computed alone.

Each check runs in a process of its own, which has to end in time; one that hangs shows where its threads are. A thread
looks at global state during the calls.

python -m reliability.threads [--rounds 20] [--only CHECK]
"""

from __future__ import annotations

import faulthandler
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import torch
from torch import Tensor

import moreaugrad as mg
from benchmarks import record
from reliability import processes
from reliability.together import Job, Verdict, run_in_asyncio, run_together
from reliability.workloads import METHODS, every_member, images, make_method, make_work, network

THREADS = 8
LIMIT = 240  # seconds of a check
Prepared = Callable[[Any], Any]


def main() -> None:
    args = record.arguments(__doc__, data=False, rounds=20, only="")
    if args.only:
        faulthandler.dump_traceback_later(LIMIT - 20, exit=True)
        torch.set_num_threads(1 if args.only.endswith("one thread") else 2)
        print(json.dumps(vars(CHECKS[args.only](args.rounds))))
        os._exit(0)  # threads that hang are told of already
    began = time.perf_counter()
    rows = [run_check(name, args.rounds) for name in CHECKS]
    faults = [row for row in rows if row["faults"]]
    results = {"threads": THREADS, "calls": sum(row["calls"] for row in rows), "checks": rows}
    record.store("threads", "cpu", results | {"seconds": round(time.perf_counter() - began, 1)}, args.out)
    sys.exit(bool(faults))


def run_check(name: str, rounds: int) -> dict[str, Any]:
    """A check in a process that has to end in time."""
    command = [sys.executable, "-m", "reliability.threads", "--only", name, "--rounds", str(rounds)]
    began = time.perf_counter()
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT, check=False)
        lines = done.stdout.strip().splitlines()
        good = done.returncode == 0 and lines
        end = " | ".join(done.stderr.strip().splitlines()[-12:])[-1200:]
        row: dict[str, Any] = json.loads(lines[-1]) if good else {"calls": 0, "faults": [f"ended: {end}"], "samples": 0}
    except subprocess.TimeoutExpired:
        row = {"calls": 0, "faults": ["hangs"], "samples": 0}
    row = {"check": name, **row, "seconds": round(time.perf_counter() - began, 1)}
    print(json.dumps(row), flush=True)
    return row


def gather(verdicts: Iterator[tuple[str, Verdict]]) -> Verdict:
    """One verdict of several, each fault with the name of what it is of."""
    whole = Verdict()
    for name, each in verdicts:
        whole.calls, whole.samples = whole.calls + each.calls, whole.samples + each.samples
        for fault in each.faults:
            whole.add(f"{name}: {fault}")
    return whole


def check_members(make: Callable[[str, str], tuple[list[Job], list[list[Tensor]]]], rounds: int) -> Verdict:
    """Every member of the tables, one after the other, each in threads."""

    def each() -> Iterator[tuple[str, Verdict]]:
        for kind, name in every_member():
            jobs, wanted = make(kind, name)
            yield name, run_together(jobs, wanted, rounds)

    return gather(each())


def share_object(kind: str, name: str) -> tuple[list[Job], list[list[Tensor]]]:
    """One object, used for the first time by all threads together; each has images of its own."""
    net, rows = network(), [images(seed=seed) for seed in range(THREADS)]
    alone = make_work(kind, name, network())
    work = make_work(kind, name, net)
    return [partial(work, x) for x in rows], [alone(x) for x in rows]


def share_network(kind: str, name: str, prepare: Prepared = lambda net: net) -> tuple[list[Job], list[list[Tensor]]]:
    """An object for each thread, all of them of one network."""
    net, rows = network(), [images(seed=seed) for seed in range(THREADS)]
    alone = make_work(kind, name, network())
    shared = net if kind == "metric" else prepare(net)
    return [partial(make_work(kind, name, shared), x) for x in rows], [alone(x) for x in rows]


def share_half(kind: str, name: str) -> tuple[list[Job], list[list[Tensor]]]:
    """The first use of a method in half precision."""
    if kind != "method":
        return [], []
    rows = [images(seed=seed) for seed in range(THREADS)]
    alone = make_work(kind, name, network(), precision="bfloat16")
    wanted = [alone(x) for x in rows]
    work = make_work(kind, name, network(), precision="bfloat16")
    return [partial(work, x) for x in rows], wanted


def check_first_use(rounds: int) -> Verdict:
    """New objects again and again, for the first use is what may race; in both precisions."""

    def each() -> Iterator[tuple[str, Verdict]]:
        for _ in range(rounds):
            for name in METHODS:
                for make, what in ((share_object, "float32"), (share_half, "bfloat16")):
                    if name != "deeplift" or what == "float32":  # which has no precision of its own
                        yield f"{name} in {what}", run_together(*make("method", name))

    return gather(each())


def check_mixture(rounds: int) -> Verdict:
    """Different members of all tables on one network at the same time: hooks of one must not reach the others."""
    net, x = network(), images()
    members = [each for each in every_member() if each[1] != "model_fooling" and each[0] != "metric"]
    wanted = [make_work(kind, name, network())(x) for kind, name in members]
    jobs: list[Job] = [partial(make_work(kind, name, net), x) for kind, name in members]
    return run_together(jobs, wanted, rounds)


def check_chunks(rounds: int) -> Verdict:
    """One method whose callers ask for chunks of different sizes."""

    def chunked(method: mg.Method, x: Tensor, size: int) -> list[Tensor]:
        return [method.attribute(x, target=1, internal_batch_size=size)]

    def each() -> Iterator[tuple[str, Verdict]]:
        for name in METHODS:
            alone, method, x = make_method(name, network()), make_method(name, network()), images(4)
            sizes = range(1, THREADS + 1)
            wanted = [chunked(alone, x, size) for size in sizes]
            yield name, run_together([partial(chunked, method, x, size) for size in sizes], wanted, rounds)

    return gather(each())


def check_derivatives(rounds: int) -> Verdict:
    """Maps with a graph, and the derivative through them: Hessian products, and attention without shortcuts."""

    def derive(method: mg.Method, x: Tensor) -> list[Tensor]:
        x = x.clone().requires_grad_()
        found = method.attribute(x, target=1, create_graph=True)
        (slope,) = torch.autograd.grad(found.square().sum(), x, allow_unused=True)
        return [found] if slope is None else [found, slope]

    def each() -> Iterator[tuple[str, Verdict]]:
        for name in METHODS:
            if "differentiable" in mg.METHODS[name].flags:
                rows = [images(seed=seed) for seed in range(THREADS)]
                alone, method = make_method(name, network()), make_method(name, network())
                wanted = [derive(alone, x) for x in rows]
                yield name, run_together([partial(derive, method, x) for x in rows], wanted, rounds)

    return gather(each())


def check_certificates(rounds: int) -> Verdict:
    """Certificates of one method."""

    def certify(x: Tensor) -> list[Tensor]:
        found = mg.certify(method, x, epsilon=0.01, noise=mg.FreshNoise(samples=64, seed=1))
        return [torch.tensor([float(each.support.active)]) for each in found if each.support is not None]

    method = mg.MoreauGrad(network(), rho=0, statistic="votes", smoothing=mg.Smoothing(sigma=0.5), prior=mg.L1())
    rows = [images(1, seed) for seed in range(THREADS)]
    return run_together([partial(certify, x) for x in rows], [certify(x) for x in rows], rounds)


def check_asyncio(rounds: int) -> Verdict:
    def each() -> Iterator[tuple[str, Verdict]]:
        for name in METHODS:
            yield name, run_in_asyncio(*share_object("method", name), rounds)

    return gather(each())


CHECKS: dict[str, Callable[[int], Verdict]] = {
    "one object in threads": partial(check_members, share_object),
    "one object in threads, torch with one thread": partial(check_members, share_object),
    "objects on one network": partial(check_members, share_network),
    "objects on one prepared network": partial(check_members, partial(share_network, prepare=mg.prepare)),
    "first use": check_first_use,
    "different members on one network": check_mixture,
    "chunks of different sizes": check_chunks,
    "derivatives of maps": check_derivatives,
    "certificates": check_certificates,
    "asyncio": check_asyncio,
    **processes.CHECKS,
}

if __name__ == "__main__":
    main()
