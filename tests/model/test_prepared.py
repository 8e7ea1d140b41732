"""The engine: whatever it does for speed, the maps stay those of the model, and the model stays as it was."""

import copy
import logging
import pickle
import shutil

import pytest
import torch
from prepared_networks import X, network, plain_gradient
from spoiled import Spoiled
from torch import nn

import moreaugrad as mg
from moreaugrad.methods import base
from moreaugrad.model import surgery
from moreaugrad.model.prepared import Engine


def many(model, **options):
    """Many gradients at almost one place: a method for which the network is made fast."""
    return mg.SmoothGrad(model, mg.Smoothing(sigma=1e-5, samples=2), **options)


def norms(model):
    return sum("BatchNorm" in type(module).__name__ for module in model.modules())


def test_folding_changes_neither_the_outputs_nor_the_gradients():
    net = network().double()
    before = copy.deepcopy(net.state_dict())
    changed, before_folding = surgery.fold_batch_norms(net, lambda model: model(X.double()))
    assert torch.equal(before_folding, net(X.double()))
    assert (norms(net), norms(changed)) == (4, 1)
    torch.testing.assert_close(changed(X.double()), net(X.double()), rtol=1e-11, atol=1e-12)
    wanted = plain_gradient(net, X.double(), 1)
    torch.testing.assert_close(plain_gradient(changed, X.double(), 1), wanted, rtol=1e-10, atol=1e-13)
    assert all(torch.equal(before[name], tensor) for name, tensor in net.state_dict().items())
    assert not any(module._forward_hooks for module in net.modules())
    assert all(parameter.requires_grad for parameter in net.parameters())
    assert not any(parameter.requires_grad for parameter in surgery.make_fast_in_reverse(changed).parameters())


def test_a_layer_that_is_used_twice_is_not_folded():
    class Twice(nn.Module):
        def __init__(self):
            super().__init__()
            self.conv, self.norm = nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4)

        def forward(self, x):
            return self.norm(self.conv(x)).flatten(1).sum(1, keepdim=True) + self.norm(self.conv(x + 1)).mean()

    net = Twice().eval()
    assert norms(surgery.fold_batch_norms(net, lambda model: model(X))[0]) == 1


def test_an_output_that_is_read_beside_the_norm_keeps_its_map():
    """The norm follows the layer, but the sum reads the layer too: only the outputs tell that folding is wrong."""

    class Beside(nn.Module):
        def __init__(self):
            super().__init__()
            self.conv, self.norm, self.head = nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.Linear(4, 2)
            self.norm.running_var.fill_(9.0)
            self.norm.running_mean.fill_(1.0)

        def forward(self, x):
            y = self.conv(x)
            return self.head((self.norm(y) * y).mean((2, 3)))

    net = Beside().eval()
    torch.testing.assert_close(many(net).attribute(X, 1), plain_gradient(net, X, 1), rtol=1e-3, atol=1e-6)


@pytest.mark.parametrize(
    "change", ["weights", "data", "swapped", "statistics", "layer", "attribute", "stride", "function"]
)
def test_a_model_that_changed_between_two_calls_is_seen_anew(change):
    class Scaled(nn.Module):
        def __init__(self):
            super().__init__()
            self.net, self.scale, self.act = network(), 1.0, torch.asinh

        def forward(self, x):
            return self.act(self.net(x)) * self.scale

    model = Scaled().eval()
    method = many(model)
    first = method.attribute(X, 1)
    if change == "weights":
        with torch.no_grad():
            model.net[0].weight.mul_(1.5)
    elif change == "data":
        model.net[9].weight.data.mul_(-1)
        model.net[0].weight.data.mul_(-1)
    elif change == "swapped":
        model.net[0].weight.data.copy_(model.net[0].weight.data.flip(0))
    elif change == "statistics":
        model.net[1].running_var.mul_(4.0)
    elif change == "layer":
        model.net[5] = nn.Tanh()
    elif change == "stride":
        model.net[3].stride = (2, 2)
    elif change == "function":
        model.act = torch.sin
    else:
        model.scale = 3.0
    second = method.attribute(X, 1)
    assert not torch.allclose(first, second)
    torch.testing.assert_close(second, plain_gradient(model, X, 1), rtol=1e-3, atol=1e-5)


def test_a_hook_of_the_caller_goes_on_seeing_every_call():
    net, seen = network(), []
    net[3].register_forward_hook(lambda module, given, output: seen.append(module))
    mg.SmoothGrad(net, mg.Smoothing(samples=4)).attribute(X, 1)
    assert len(seen) == len(X)  # once for the samples of each image
    assert all(module is net[3] for module in seen)


def test_a_model_that_cannot_be_copied_is_run_itself():
    class Stubborn(nn.Module):
        def __init__(self):
            super().__init__()
            self.net = network()

        def __deepcopy__(self, memo):
            raise TypeError("one of a kind")

        def forward(self, x):
            return self.net(x)

    torch.testing.assert_close(
        many(Stubborn().eval()).attribute(X, 1), plain_gradient(network(), X, 1), rtol=1e-3, atol=1e-5
    )


def test_a_method_can_travel_and_be_copied_after_use():
    method = mg.SmoothGrad(network(), mg.Smoothing(samples=4))
    wanted = method.attribute(X, 1)
    for other in (pickle.loads(pickle.dumps(method)), copy.deepcopy(method)):
        assert torch.equal(other.attribute(X, 1), wanted)


@pytest.mark.parametrize(
    ("precision", "x", "words"),
    [
        ("float16", X, "needs a GPU, got cpu; use 'bfloat16' or 'float32'"),
        ("tf32", X, "needs an NVIDIA GPU of 2020 or later, got cpu"),
        ("bfloat16", X.double(), "must be left out for inputs that are not float32"),
        ("bfloat1", X, "Did you mean 'bfloat16'"),
    ],
)
def test_a_precision_that_is_not_there(precision, x, words):
    with pytest.raises(ValueError, match=words):
        mg.Gradient(network().to(x.dtype), precision=precision).attribute(x, 1)


def test_a_flag_that_is_none():
    with pytest.raises(TypeError, match="compile must be True, False or None, got 'yes'"):
        mg.Gradient(network(), compile="yes")


def test_a_reduced_precision_is_near_and_told():
    wanted = mg.SmoothGrad(network(), mg.Smoothing(samples=16)).attribute(X, 1)
    found = mg.SmoothGrad(network(), mg.Smoothing(samples=16), precision="bfloat16").explain(X, 1)
    assert found.map.dtype == torch.float32
    assert found.options["precision"] == "bfloat16"
    distance = (found.map - wanted).norm() / wanted.norm()
    assert 1e-4 < distance < 0.05


class Half(nn.Module):
    """Betrays itself in reduced precision: by its outputs, or by its gradients."""

    def __init__(self, bad):
        super().__init__()
        self.net, self.bad = network(), bad

    def forward(self, x):
        if x.dtype == torch.float32:
            return self.net(x)
        if self.bad == "error":
            raise RuntimeError("this kernel has no half precision")
        found = self.net(x)
        return found * 2 if self.bad == "outputs" else Spoiled.apply(found)


def test_a_precision_that_changes_the_outputs_is_given_up(caplog):
    wanted = mg.Gradient(network()).attribute(X, 1)
    found = mg.Gradient(Half("outputs").eval(), precision="bfloat16").explain(X, 1)
    # the cast copy is wrong; autocast, which leaves the input in float32, is not
    assert found.options["precision"] == "bfloat16"
    assert (found.map - wanted).norm() < 0.1 * wanted.norm()
    lying = lambda x: network()(x) * (1 if not torch.is_autocast_enabled("cpu") else 2)  # noqa: E731
    found = mg.Gradient(lying, precision="bfloat16").explain(X, 1)
    assert found.options["precision"] == "float32"
    torch.testing.assert_close(found.map, wanted, rtol=1e-4, atol=1e-6)
    assert caplog.text.count("continuing in float32") == 1


def test_a_gradient_that_overflows_is_taken_again_in_float32(caplog):
    wanted = mg.SmoothGrad(network(), mg.Smoothing(samples=4)).attribute(X, 1)
    method = mg.SmoothGrad(Half("gradients").eval(), mg.Smoothing(samples=4), precision="bfloat16")
    torch.testing.assert_close(method.attribute(X, 1), wanted, rtol=1e-4, atol=1e-6)
    torch.testing.assert_close(method.attribute(X, 1), wanted, rtol=1e-4, atol=1e-6)
    assert caplog.text.count("bfloat16 overflows in this model; continuing in float32") == 1


@pytest.mark.parametrize("when", ["at once", "in reverse"])
def test_a_model_that_cannot_be_compiled_is_run_as_it_is_with_one_warning(when, monkeypatch, caplog):
    class Broken(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            if when == "at once":
                raise RuntimeError("no compiler here")
            return x.clone()

        @staticmethod
        def backward(ctx, grad):
            raise RuntimeError("no compiler here")

    monkeypatch.setattr(torch, "compile", lambda model, dynamic: lambda *x: Broken.apply(model(*x)))
    wanted = mg.SmoothGrad(network(), mg.Smoothing(samples=4)).attribute(X, 1)
    method = mg.SmoothGrad(network(), mg.Smoothing(samples=4), compile=True)
    torch.testing.assert_close(method.attribute(X, 1), wanted, rtol=1e-4, atol=1e-6)
    method.attribute(X, 1)
    assert caplog.text.count("cannot be compiled") == 1
    assert "no compiler here" in caplog.text


def test_an_error_of_the_model_is_not_taken_for_the_compilers(monkeypatch):
    calls = []

    def late(model):
        def run(*x):
            calls.append(1)
            if len(calls) > 4:
                raise RuntimeError("the model's own")
            return model(*x)

        return run

    monkeypatch.setattr(torch, "compile", lambda model, dynamic: late(model))
    with pytest.raises(RuntimeError, match="the model's own"):
        mg.SmoothGrad(network(), mg.Smoothing(samples=64), compile=True).attribute(X, 1, internal_batch_size=8)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")  # the compiler's own
@pytest.mark.skipif(shutil.which("g++") is None, reason="compiling for a CPU needs a C++ compiler")
def test_a_compiled_map_is_the_same_map():
    wanted = mg.SmoothGrad(network(), mg.Smoothing(samples=16)).attribute(X, 1)
    method = mg.SmoothGrad(network(), mg.Smoothing(samples=16), compile=True)
    found = method.attribute(X, 1)
    assert next(iter(method.prepared._engines.values())).compiled
    torch.testing.assert_close(found, wanted, rtol=1e-4, atol=1e-6)
    assert torch.equal(method.attribute(X, 1), found)


def test_no_room_for_a_single_image_is_one_clear_sentence():
    def hopeless(v):
        raise torch.OutOfMemoryError("no room at all")

    with pytest.raises(torch.OutOfMemoryError, match=r"must hold the gradient of one image.*no room at all"):
        mg.Gradient(hopeless).attribute(X, 1)


def test_memory_that_runs_out_early_stays_halved_in_every_block(monkeypatch, caplog):
    monkeypatch.setattr(base, "safe_block", lambda x: 2)
    caplog.set_level(logging.WARNING)
    net = network()

    def small(v):
        if len(v) > 2:
            raise torch.OutOfMemoryError("no room")
        return net(v)

    found = mg.SmoothGrad(small, mg.Smoothing(samples=8)).attribute(X, 1, internal_batch_size=8)
    torch.testing.assert_close(found, mg.SmoothGrad(net, mg.Smoothing(samples=8)).attribute(X, 1), rtol=1e-4, atol=1e-6)
    assert caplog.text.count("continuing with") == 2  # 8 to 4 to 2: it is remembered from block to block


@pytest.mark.parametrize("size", [1, 2, 3])
def test_a_batch_in_blocks_is_the_same_batch(size, monkeypatch):
    labels = torch.stack([(torch.arange(144).view(12, 12) + i) % (3 + i) for i in range(5)])
    eta = torch.tensor([0.01, 0.02, 0.03, 0.04, 0.05])
    targets = [0, 1, 2, 3, 0]
    methods = [
        mg.SmoothGrad(network(), mg.Smoothing(samples=4)),
        mg.SparseMoreauGrad(network(), eta=eta, budget=64),
        mg.GroupSparseMoreauGrad(network(), sparsity=0.5, groups=labels, budget=64),
        mg.SparseMoreauGrad(network(), sparsity=0.1, smoothing=None, budget=20),
    ]
    whole = [method.explain(X, targets) for method in methods]
    monkeypatch.setattr(base, "safe_block", lambda x: size)
    steps = []
    for method, wanted in zip(methods, whole, strict=True):
        found = method.explain(X, targets, callback=lambda step, total, info: steps.append((step, total)))
        for name in ("map", "score", "eta", "residual", "converged", "gradients", "stderr", "target"):
            one, two = getattr(found, name), getattr(wanted, name)
            assert (one is None and two is None) or torch.equal(one, two), name
        assert steps[-1][0] == steps[-1][1]


def test_an_engine_on_its_own_runs_the_model():
    net = network()
    assert torch.equal(Engine(net)([X]), net(X.contiguous(memory_format=torch.channels_last)))


def test_a_single_gradient_runs_the_model_no_more_than_it_must():
    net, rows = network(), []

    class Counting(nn.Module):
        def __init__(self):
            super().__init__()
            self.net = net

        def forward(self, x):
            rows.append(len(x))
            return self.net(x)

    mg.Gradient(Counting().eval()).attribute(X[:4], 1)
    assert rows == [1, 1, 1, 1]
    rows.clear()
    mg.Gradient(Counting().eval()).attribute(X[:4], 1, internal_batch_size=4)
    assert rows == [4]
