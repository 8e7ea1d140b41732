"""Every benchmark runs from end to end on little work, and stores its results with the command and the hardware."""

import json
import shutil
import sys
from importlib import import_module
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SMALL = {
    "throughput": "--images 2 --budget 24 --models lite0 --size 64",
    "quality": "--photos 1 --budgets 24 --paper-steps 2 --reference 32 --fresh 4 --no-compile",
    "scaling": "--budget 16 --images 1,2 --sizes 64 --groups 4 --photos 1 --no-compile",
    "memory": "--rows 0 --budget 16",
    "baselines": "--samples 4 --batches 2,4 --repeats 1",
    "precision": "--photos 1 --budget 16 --precisions bfloat16",
    "path": "--photos 1 --budget 32 --fresh 2 --shares 0.05,0.2",
    "invariance": "--photos 1 --budget 24 --rows 2",
    "sparsity": "--photos 1 --budget 24 --shares 0.05",
    "cost": "--images 1 --repeats 1 --methods gradient,gradcam",
    "derivative": "--photos 1 --steps 2 --modes frozen --reference 1x2",
    "waiting": "--qualities fast --budget-of fast=16",
    "seeds": "--photos 1 --qualities fast --budget 24",
    "statistic_cost": "--budget 24 --repeats 1",
    "bulk": "--small 0 --photos 1 --maps 4 --rows 100",
    "bulk_gpu": "--images 2 --engine 2 --budget 16 --precision float32 --model lipschitz_cifar10",
    "page": "--visitors 2 --seconds 5 --uploads 20 --model lipschitz_cifar10",
    "vote_violations": "--attempts 100 --repetitions 50",
}
DATA = {
    "quality",
    "scaling",
    "baselines",
    "precision",
    "path",
    "invariance",
    "sparsity",
    "waiting",
    "cost",
    "derivative",
    "seeds",
    "statistic_cost",
    "bulk",
    "bulk_gpu",
}

SLOW = {
    "bulk",
    "bulk_gpu",
    "derivative",
    "quality",
}  # several processes, or many gradients


def test_every_benchmark_has_a_small_version():
    known = {path.stem for path in (ROOT / "benchmarks").glob("*.py") if "\ndef main()" in path.read_text()}
    tested_elsewhere = {
        "__main__",
        "plots",
        "mask_network",
        "certificates",
        "vote_sampling",
        "vote_certificates",
        "matrix",
    }
    assert known - tested_elsewhere == set(SMALL)


CASES = [pytest.param(name, marks=pytest.mark.slow if name in SLOW else ()) for name in SMALL]


@pytest.mark.parametrize("name", CASES)
def test_a_benchmark_runs_and_stores_its_results(name, tmp_path, monkeypatch):
    (tmp_path / "photos").mkdir()
    shutil.copy(ROOT / "docs" / "chelsea.jpg", tmp_path / "photos")
    data = ["--data", str(tmp_path / "photos")] if name in DATA else []
    given = [*data, "--device", "cpu", "--out", str(tmp_path), *SMALL[name].split()]
    monkeypatch.setattr(sys, "argv", [f"benchmarks/{name}.py", *given])
    import_module(f"benchmarks.{name}").main()
    stored = json.loads((tmp_path / f"{name}_cpu.json").read_text())
    assert {"command", "date", "hardware", "versions"} <= set(stored)
    assert str(tmp_path) not in json.dumps(stored)
