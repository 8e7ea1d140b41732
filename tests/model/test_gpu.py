"""What only a GPU can show: the same maps in other precisions, compiled, and in any company."""

import pytest
import torch
from prepared_networks import X, network, plain_gradient

import moreaugrad as mg
from moreaugrad.methods import base

pytestmark = [pytest.mark.gpu, pytest.mark.filterwarnings("ignore")]


def distance(one, two):
    return float((one - two).norm() / two.norm())


@pytest.mark.parametrize(
    ("precision", "near"), [("float32", 1e-5), ("tf32", 2e-2), ("float16", 2e-2), ("bfloat16", 1e-1)]
)
@pytest.mark.parametrize("compiled", [False, True], ids=["eager", "compiled"])
def test_every_precision_gives_the_map_of_the_cpu(precision, near, compiled):
    wanted = plain_gradient(network().double(), X.double(), 1)
    method = mg.Gradient(network().cuda(), precision=precision, compile=compiled)
    found = method.explain(X.cuda(), 1)
    assert (found.options["precision"], found.options["compile"]) == (precision, compiled)
    assert distance(found.map.cpu().double(), wanted) < near


def test_tf32_is_the_default_and_its_switches_are_left_as_they_were():
    before = torch.backends.cudnn.allow_tf32, torch.backends.cudnn.deterministic, torch.get_float32_matmul_precision()
    found = mg.SmoothGrad(network().cuda(), mg.Smoothing(samples=4)).explain(X.cuda(), 1)
    assert found.options["precision"] == "tf32"
    after = torch.backends.cudnn.allow_tf32, torch.backends.cudnn.deterministic, torch.get_float32_matmul_precision()
    assert after == before


@pytest.mark.parametrize("compiled", [False, True], ids=["eager", "compiled"])
def test_a_map_does_not_change_with_its_company(compiled):
    method = mg.SparseMoreauGrad(network().cuda(), sparsity=0.1, budget=160, compile=compiled)
    together = method.attribute(X.cuda(), 1)
    for row in range(len(X)):
        assert torch.equal(method.attribute(X[row : row + 1].cuda(), 1)[0], together[row])


def test_the_loop_never_waits_for_the_device():
    method = mg.SparseMoreauGrad(network().cuda(), eta=0.01, budget=160)
    x, target = X.cuda(), torch.tensor([0, 1, 2, 3, 0], device="cuda")
    method.attribute(x, target)
    waits = []

    def watch(step, total, info):
        # from the first step to the last a wait is an error; before and after, results are looked at
        torch.cuda.set_sync_debug_mode("error" if step < total - 2 else "default")
        waits.append(step)

    try:
        method.attribute(x, target, callback=watch)
    finally:
        torch.cuda.set_sync_debug_mode("default")
    assert len(waits) > 10


def test_memory_does_not_grow_with_the_images(monkeypatch):
    monkeypatch.setattr(base, "safe_block", lambda x: 64)
    net = network().cuda()
    x = torch.randn(512, 3, 12, 12, device="cuda")
    method = mg.SparseMoreauGrad(net, eta=0.01, budget=32)

    def working(images):
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()
        before = torch.cuda.memory_allocated()
        found = method.explain(x[:images], 0)
        kept = torch.cuda.memory_allocated() - before
        assert len(found) == images
        return torch.cuda.max_memory_allocated() - before - kept

    few, many = working(128), working(512)
    assert many - few <= 2 * (512 - 128) * x[0].numel() * 4  # the packed copy of the inputs, and room to round
