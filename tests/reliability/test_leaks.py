"""Calls leave nothing behind, and what would be left is found."""

import os
import subprocess
import sys

import pytest
import torch

from reliability import leaks, workloads

pytest.importorskip("resource", reason="memory is read as Linux tells it")


@pytest.mark.parametrize(("kind", "name"), list(workloads.every_member()))
def test_a_model_is_freed_after_use(kind, name):
    assert leaks.is_freed(lambda net: workloads.make_work(kind, name, net)(workloads.images()))


def test_a_model_is_freed_after_it_was_certified():
    assert leaks.is_freed(leaks.certify)


CALLS = """
import json
from reliability import leaks, workloads

found = {}
for name in ("gradient", "smoothgrad", "gradcam", "sparse_moreau"):
    net, x = workloads.network(), workloads.images()
    work = workloads.make_work("method", name, net)
    left = leaks.measure(lambda: work(x), net, 30)["left"]
    found |= {f"{name} {key}": count for key, count in left.items() if count > leaks.allowance(key, 30)}
print(json.dumps(found))
"""


def test_calls_leave_no_objects_hooks_threads_or_handles(request):
    """In a process of its own: the tests' checks of shapes keep something for every function that is wrapped."""
    root = request.config.rootpath
    paths = os.pathsep.join(map(str, [root / "src", root]))
    done = subprocess.run(
        [sys.executable, "-c", CALLS],
        capture_output=True,
        text=True,
        check=False,
        env=os.environ | {"PYTHONPATH": paths},
    )
    assert done.stdout.strip() == "{}", done.stderr


def test_planted_leaks_are_found():
    net, kept = workloads.network(), []

    def leaky():
        kept.append([{} for _ in range(10)])
        net.register_forward_hook(lambda *given: None)

    found = leaks.measure(leaky, net, 30)
    assert {fault.split(":")[0] for fault in found["faults"]} >= {"objects", "hooks"}
    assert not leaks.is_freed(kept.append)


def test_the_slope_is_that_of_the_second_half():
    flat_then_steep = [0] * 100 + [7 * step for step in range(100)]
    rate, error = leaks.slope(flat_then_steep)
    assert rate == pytest.approx(7)
    assert error == pytest.approx(0, abs=1e-9)
    assert torch.isfinite(torch.tensor(leaks.slope([5, 5, 5, 5]))).all()
