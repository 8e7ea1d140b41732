"""Where maps are the same: another process, other numbers of threads, a batch, chunks, versions of Python and torch.

Every method makes maps of small images in a process of its own for each setting; the differences are those of the
entry that differs most, relative to the largest entry of the map.

python -m reliability.determinism [--pythons 3.12=PATH,lowest=PATH]
"""

from __future__ import annotations

import json
import os
import platform
import re
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

import moreaugrad as mg
from benchmarks import record
from reliability.workloads import METHODS, images, make_method, network

STORED = Path(__file__).parent.parent / "benchmarks" / "results"
TEST = "tests/reliability/test_determinism.py"
LARGE = ("gradient", "integrated_gradients", "smoothgrad", "gradcam", "normgrad", "sparse_moreau")
Maps = dict[str, np.ndarray[Any, Any]]
Way = Callable[[mg.Method, Tensor, list[int]], Tensor]


def whole(method: mg.Method, x: Tensor, target: list[int]) -> Tensor:
    found: Tensor = method.attribute(x, target=target)
    return found


def alone(method: mg.Method, x: Tensor, target: list[int]) -> Tensor:
    return torch.cat([whole(method, x[i : i + 1], target[i : i + 1]) for i in range(len(x))])


def reverse(method: mg.Method, x: Tensor, target: list[int]) -> Tensor:
    return whole(method, x.flip(0), target[::-1]).flip(0)


def chunked(method: mg.Method, x: Tensor, target: list[int], rows: int) -> Tensor:
    found: Tensor = method.attribute(x, target=target, internal_batch_size=rows)
    return found


WAYS: dict[str, Way] = {
    "batch": whole,
    "alone": alone,
    "reversed": reverse,
    **{f"chunks of {rows}": (lambda m, x, t, rows=rows: chunked(m, x, t, rows)) for rows in (1, 2, 5, 16)},  # type: ignore[misc]
}


def compute_maps(ways: Mapping[str, Way]) -> Maps:
    """Maps of every method in every way, by METHOD/WAY."""
    x, found = images(4), {}
    for name in METHODS:
        method = make_method(name, network())
        for way, run in ways.items():
            found[f"{name}/{way}"] = run(method, x, [0, 3, 1, 4]).numpy()
    return found


def compute_large_maps() -> Maps:
    """Maps of images so large that torch shares its work out among threads."""
    x = torch.randn(2, 3, 128, 128, generator=torch.Generator().manual_seed(2))
    return {f"{name}/large": whole(make_method(name, network()), x, [0, 3]).numpy() for name in LARGE}


def difference(one: Maps, two: Maps, ways: tuple[str, str] = ("batch", "batch")) -> dict[str, float]:
    """By method, the largest difference of two settings."""
    return {name: _distance(one, two, f"{name}/{ways[0]}", f"{name}/{ways[1]}") for name in METHODS}


def _distance(one: Maps, two: Maps, first: str, second: str) -> float:
    a, b = one[first], two[second]
    return float(np.abs(a - b).max() / max(np.abs(b).max(), 1e-300))


def compute_elsewhere(python: str, threads: int, folder: Path) -> tuple[Maps, dict[str, str]]:
    """The maps of another process, and the versions it has."""
    out = folder / "maps.npz"
    command = [python, "-m", "reliability.determinism", "--write", str(out)]
    environment = os.environ | {"OMP_NUM_THREADS": str(threads)}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(done.stderr[-2000:])
    with np.load(out, allow_pickle=False) as stored:
        return dict(stored), json.loads(done.stdout.strip().splitlines()[-1])


def write(out: str) -> None:
    maps = compute_maps({"batch": whole}) | compute_large_maps()
    np.savez(out, allow_pickle=False, **maps)
    every = sha256(b"".join(maps[name].tobytes() for name in sorted(maps))).hexdigest()
    print(json.dumps({"python": platform.python_version(), "torch": torch.__version__, "digest": every}))


def describe_row(what: str, gaps: dict[str, float], test: str, **more: Any) -> dict[str, Any]:
    """A line of the table: how many methods are the same, and the one that is farthest off."""
    worst = max(gaps, key=lambda name: gaps[name])
    same = sum(gap == 0 for gap in gaps.values())
    row = {"what": what, "methods": len(gaps), "same": same, "largest": gaps[worst], "method": worst, "test": test}
    print(json.dumps(row | more), flush=True)
    return row | more


def compare_here() -> list[dict[str, Any]]:
    """What differs in one process: company and chunks."""
    torch.set_num_threads(1)
    maps = compute_maps(WAYS)
    gaps = {way: difference(maps, maps, (way, "batch")) for way in list(WAYS)[1:]}
    return [describe_row(f"batch against {way}", each, f"{TEST}::{_law(way)}") for way, each in gaps.items()]


def _law(way: str) -> str:
    return "test_chunks_change_the_rounding_alone" if "chunks" in way else "test_company_changes_no_bit"


def compare_processes(pythons: Mapping[str, str]) -> list[dict[str, Any]]:
    """What differs between processes: nothing else, threads, versions."""
    with tempfile.TemporaryDirectory() as name:
        base, facts = compute_elsewhere(sys.executable, 1, Path(name))
        settings = {"another process": (sys.executable, 1), "2 threads of torch against 1": (sys.executable, 2)}
        settings |= {label: (path, 1) for label, path in pythons.items()}
        rows = []
        for label, (path, threads) in settings.items():
            found, other = compute_elsewhere(path, threads, Path(name))
            law = f"{TEST}::test_another_process_changes_no_bit" if path == sys.executable else "the stored result"
            more = {"against": facts, "versions": other}
            rows.append(describe_row(label, difference(found, base), law, **more))
            large = {name: _distance(found, base, f"{name}/large", f"{name}/large") for name in LARGE}
            rows.append(describe_row(f"{label}, images of 128 x 128", large, law, **more))
        return rows


def quote_gpu() -> dict[str, Any]:
    """What other benchmarks have measured on a GPU."""
    found: dict[str, Any] = {}
    for name in ("invariance", "precision"):
        stored = json.loads((STORED / f"{name}.json").read_text())
        found[name] = {key: stored[key] for key in stored if key not in ("versions", "command")}
    return found


def main() -> None:
    args = record.arguments(__doc__, data=False, pythons="", write="")
    if args.write:
        write(args.write)
        return
    pythons = dict(each.split("=", 1) for each in args.pythons.split(",") if each)
    sys.argv = [re.sub(r"=[^,]+", "=PATH", word) for word in sys.argv]  # where they lie is no part of the result
    rows = compare_here() + compare_processes(pythons)
    record.store("determinism", "cpu", {"table": rows, "gpu": quote_gpu()}, args.out)


if __name__ == "__main__":
    main()
