"""The same maps in processes that were started in any way, also by a fork of a process that has computed already."""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable
from functools import partial
from multiprocessing.context import BaseContext
from typing import Any

import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset

import moreaugrad as mg
from reliability.together import Verdict, compare
from reliability.workloads import every_member, images, make_work, network

PATIENCE = 60.0  # seconds that a process has to end
SIDE = 96  # so large that torch shares operations out among its threads
Found = dict[str, list[Tensor]]


def compute_members(number: int = 0) -> Found:
    """Every method and attack, once; of a network made here, which is the same everywhere."""
    x = images(seed=number)
    members = [each for each in every_member() if each[0] != "metric"]
    found = {name: make_work(kind, name, network())(x) for kind, name in members}
    large = torch.randn(4, 3, SIDE, SIDE, generator=torch.Generator().manual_seed(number))
    found["a large image"] = [mg.SmoothGrad(network(), samples=4).attribute(large, target=1)]
    return found


def check_start(method: str, rounds: int, used: bool = True) -> Verdict:
    """Processes of `multiprocessing`, one after the other; `used`: after this process has computed itself."""
    verdict, context = Verdict(), multiprocessing.get_context(method)
    wanted = compute_members() if used else None
    for _ in range(min(rounds, 3)):
        found = _run_process(context, verdict)
        wanted = compute_members() if wanted is None and method != "fork" else wanted
        _compare_members(found, wanted if wanted is not None else found, verdict)
    if wanted is None:  # only now, so that every fork was one of an unused process
        _compare_members(found, compute_members(), verdict)
    return verdict


def _run_process(context: BaseContext, verdict: Verdict) -> Found:
    here, there = context.Pipe(duplex=False)
    process = context.Process(target=_send, args=(there,), daemon=True)  # type: ignore[attr-defined]
    process.start()
    there.close()
    found: Found = {}
    if here.poll(PATIENCE):
        try:
            found = {name: [torch.from_numpy(each) for each in some] for name, some in here.recv().items()}
        except EOFError:
            verdict.add("a process ended without an answer")
    else:
        verdict.add("a process hangs")
    process.kill() if not found else process.join(PATIENCE)
    return found


def _send(there: Any) -> None:
    # arrays: tensors would lie in shared memory, which ends with the process that sends them
    there.send({name: [each.detach().numpy() for each in some] for name, some in compute_members().items()})


def _compare_members(found: Found, wanted: Found, verdict: Verdict) -> None:
    for name, result in found.items():
        one = Verdict()
        compare(result, wanted[name], one)
        verdict.calls += 1
        for fault in one.faults:
            verdict.add(f"{name}: {fault}")


def check_pool(method: str, rounds: int) -> Verdict:
    """`multiprocessing.Pool`, after this process has computed itself."""
    verdict, wanted = Verdict(), [compute_members(number) for number in range(2)]
    with multiprocessing.get_context(method).Pool(2) as pool:
        for _ in range(min(rounds, 2)):
            try:
                for found, alone in zip(pool.map_async(compute_members, range(2)).get(PATIENCE), wanted, strict=True):
                    _compare_members(found, alone, verdict)
            except multiprocessing.TimeoutError:
                verdict.add("workers of a pool hang")
    return verdict


class Explained(Dataset[Tensor]):
    """Maps, computed where they are loaded."""

    def __init__(self, method: mg.Method) -> None:
        self.method = method

    def __len__(self) -> int:
        return 8

    def __getitem__(self, row: int) -> Tensor:
        found: Tensor = self.method.attribute(images(1, seed=row), target=1)[0]
        return found


def check_loader(start: str, rounds: int) -> Verdict:
    """Workers of torch's DataLoader, with a method that was used before it was sent to them."""
    verdict = Verdict()
    for name in ("smoothgrad", "gradcam", "sparse_moreau"):
        method = make_work("method", name, network()).args[0]  # type: ignore[attr-defined]
        data = Explained(method)
        wanted = [data[row] for row in range(len(data))]
        loader = DataLoader(data, 4, num_workers=2, multiprocessing_context=start, timeout=PATIENCE)
        for found, alone in zip(torch.cat(list(loader)), wanted, strict=True):
            compare([found], [alone], verdict)
    return verdict


CHECKS: dict[str, Callable[[int], Verdict]] = {
    "a fork after import": partial(check_start, "fork", used=False),
    "a fork after use": partial(check_start, "fork"),
    "a process by spawn": partial(check_start, "spawn"),
    "a process by forkserver": partial(check_start, "forkserver"),
    "a pool of forked processes": partial(check_pool, "fork"),
    "a pool of spawned processes": partial(check_pool, "spawn"),
    "forked workers of a DataLoader": partial(check_loader, "fork"),
    "spawned workers of a DataLoader": partial(check_loader, "spawn"),
}
