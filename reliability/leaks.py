"""Whether calls leave anything behind: memory, objects, threads, open files, hooks, entries of caches, and models.

After a warm-up, as many objects must be alive as before, and memory must not grow: the slope of the resident memory
over the second half of the calls, less twice its standard error, stays below `BYTES` per call.

python -m reliability.leaks [--calls 1000] [--visits 200] [--rows 10000]
"""

from __future__ import annotations

import ctypes
import gc
import json
import os
import sys
import tempfile
import threading
import time
import weakref
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import torch
from PIL import Image
from torch import nn

import moreaugrad as mg
from benchmarks import record
from moreaugrad.methods.chunks import _KEPT
from reliability.workloads import every_member, images, make_work, network

SUPPORT = Path(__file__).parent.parent / "tests" / "support"
LOOKS = 50  # at the memory, during the calls
BYTES = 1024.0  # of growth per call that are not a leak: allocators round


@dataclass(frozen=True)
class Level:
    """What is there after a call, when garbage has been collected."""

    objects: int
    threads: int
    handles: int
    hooks: int
    kept: int  # entries of the table of what methods keep


def resident() -> int:
    """Bytes of memory that this process holds, without those that the allocator has free."""
    gc.collect()
    with suppress(OSError, AttributeError):  # glibc's
        ctypes.CDLL("libc.so.6").malloc_trim(0)
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def look(net: nn.Module) -> Level:
    gc.collect()
    kinds = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")
    hooks = sum(len(getattr(module, kind)) for module in net.modules() for kind in kinds)
    handles = len(os.listdir("/proc/self/fd"))  # noqa: PTH208
    return Level(len(gc.get_objects()), threading.active_count(), handles, hooks, len(_KEPT))


def slope(values: list[int]) -> tuple[float, float]:
    """Growth per step of the second half, and its standard error."""
    half = np.array(values[len(values) // 2 :], dtype=float)
    steps = np.arange(len(half)) - (len(half) - 1) / 2
    spread = float((steps**2).sum())
    rate = float((steps * half).sum() / spread)
    rest = half - half.mean() - rate * steps
    return rate, float(np.sqrt((rest**2).sum() / max(1, len(half) - 2) / spread))


def measure(call: Callable[[], object], net: nn.Module, calls: int) -> dict[str, Any]:
    """What many calls leave behind, after a tenth as many to warm up."""
    for _ in range(max(30, calls // 10)):
        call()
    before, memory, apart = look(net), [], max(1, calls // LOOKS)
    for number in range(calls):
        call()
        if number % apart == 0:
            memory.append(resident())
    after = look(net)
    rate, error = (each / apart for each in slope(memory))
    left = {name: getattr(after, name) - getattr(before, name) for name in vars_of(before)}
    faults = [f"{name}: {count} more" for name, count in left.items() if count > allowance(name, calls)]
    if rate - 2 * error > BYTES:
        faults.append(f"memory: {rate:.0f} bytes per call (standard error {error:.0f})")
    return {"calls": calls, "left": left, "bytes_per_call": rate, "standard_error": error, "faults": faults}


def vars_of(level: Level) -> list[str]:
    return list(Level.__dataclass_fields__)


def allowance(name: str, calls: int) -> float:
    """What is no leak: whatever every call leaves is one object at least, and a server's own come and go."""
    return calls // 4 if name == "objects" else 0


def check_members(calls: int) -> list[dict[str, Any]]:
    """Every method, attack and metric: a method as often as asked, the others a tenth as often."""
    rows = []
    for kind, name in every_member():
        net, x = network(), images()
        work = make_work(kind, name, net)
        count = calls if kind == "method" else max(20, calls // 10)
        row = {"what": f"{kind} {name}"} | measure(lambda work=work, x=x: work(x), net, count)  # type: ignore[misc]
        rows.append(row)
        print(json.dumps(row), flush=True)
    return rows


def check_freed() -> list[str]:
    """The members after whose use the model is not freed."""
    held = []
    for kind, name in every_member():
        if not is_freed(lambda net, kind=kind, name=name: make_work(kind, name, net)(images())):  # type: ignore[misc]
            held.append(f"{kind} {name}")
    more: dict[str, Callable[[nn.Module], object]] = {
        "prepare": lambda net: mg.SmoothGrad(mg.prepare(net, images()), samples=2).attribute(images(), target=1),
        "certify": certify,
    }
    return held + [name for name, use in more.items() if not is_freed(use)]


def certify(net: nn.Module) -> object:
    method = mg.MoreauGrad(net, rho=0, statistic="votes", smoothing=mg.Smoothing(sigma=0.5), prior=mg.L1())
    return mg.certify(method, images(1), epsilon=0.01, noise=mg.FreshNoise(samples=32, seed=1))


def is_freed(use: Callable[[nn.Module], object]) -> bool:
    """Whether nothing holds a network once the one who used it has let it go."""
    net = network()
    gone = weakref.ref(net)
    use(net)
    del net
    gc.collect()
    return gone() is None


def check_page(visits: int) -> dict[str, Any]:
    """Visits of the page in this process, each with a photo and a map of its own."""
    server, jobs, photos = (
        import_module(name) for name in ("page_server", "moreaugrad.app.jobs", "moreaugrad.app.photos")
    )
    net: Any = mg.load_model("lipschitz_cifar10")
    chance = np.random.default_rng(0)
    # what the page keeps on purpose, results and photos of the last hour, is full after a few visits
    kept = patch.object(photos, "KEPT_BYTES", 2000), patch.object(jobs, "KEPT", 8)
    with kept[0], kept[1], server.running(server.make_studio({"lipschitz_cifar10": net}, draw(chance))) as ask:

        def visit() -> None:
            ask("GET", "/")
            found = ask.wait(ask.start(photo=ask.send(draw(chance)), method="gradient"))
            if found["state"] != "done":
                raise RuntimeError(f"a visitor got no map: {found}")

        return {"what": "page visit"} | measure(visit, net, visits)


def small() -> Any:
    """The module of the tests that holds networks for pictures of a few pixels."""
    return import_module("small_network")


class Pictures:
    """A data set that draws its pictures when they are read."""

    def __init__(self, count: int) -> None:
        self.count = count

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, row: int) -> tuple[Image.Image, int]:
        return draw(np.random.default_rng(row)), 0


def check_bulk(rows: int) -> dict[str, Any]:
    """A bulk job in this process; memory is looked at after each part."""
    memory: list[int] = []
    net = small().Curved().eval()
    with tempfile.TemporaryDirectory() as folder:
        run = mg.RunOptions(engine="serial", part_size=max(1, rows // 40))

        def watch(state: Any, event: Any) -> None:
            if event is not None:
                memory.append(resident())

        mg.bulk(net, Pictures(rows), folder, "gradient", run=run, watch=watch)
    rate, error = slope(memory)
    rate, error = rate * len(memory) / rows, error * len(memory) / rows
    faults = [f"memory: {rate:.0f} bytes per row"] if rate - 2 * error > BYTES else []
    return {"what": "bulk row", "calls": rows, "bytes_per_call": rate, "standard_error": error, "faults": faults}


def draw(chance: np.random.Generator) -> Image.Image:
    size = small().SIZE
    return Image.fromarray(chance.integers(0, 255, (size, size, 3), dtype=np.uint8))


def main() -> None:
    args = record.arguments(__doc__, data=False, calls=1000, visits=1000, rows=10_000)
    torch.set_num_threads(1)
    began = time.perf_counter()
    sys.path.insert(0, str(SUPPORT))  # the server and the network that the tests of the page use
    found = [check_page(args.visits), check_bulk(args.rows)] if args.visits else []
    print(json.dumps(found), flush=True)
    found += check_members(args.calls)
    held = check_freed()
    faults = [f"{row['what']}: {fault}" for row in found for fault in row["faults"]]
    faults += [f"the model is held after {name}" for name in held]
    results = {"limit_bytes_per_call": BYTES, "rows": found, "held": held, "faults": faults}
    record.store("leaks", "cpu", results | {"seconds": round(time.perf_counter() - began, 1)}, args.out)
    sys.exit(bool(faults))


if __name__ == "__main__":
    main()
