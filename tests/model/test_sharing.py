"""Methods that share a prepared network: it is made ready once for all, and their maps are those of methods alone."""

import copy
import gc
import pickle
import weakref
from dataclasses import replace

import pytest
import torch
from attacked_networks import assert_same, convolutional, pictures, snapshot
from torch import nn

import moreaugrad as mg
from moreaugrad.model import surgery

X = pictures(3, torch.float32)
NOISE = mg.Smoothing(sigma=0.3, samples=6)
MAKERS = {
    "smoothgrad": lambda net, **options: mg.SmoothGrad(net, NOISE, **options),
    "sparsified": lambda net, **options: mg.SparsifiedSmoothGrad(net, tau=0.3, smoothing=NOISE, **options),
    "moreau": lambda net, **options: mg.MoreauGrad(net, 0.5, smoothing=NOISE, budget=24, **options),
    "sparse": lambda net, **options: mg.SparseMoreauGrad(net, smoothing=None, sparsity=0.2, budget=8, **options),
    "integrated": mg.IntegratedGradients,
    "gradient": mg.Gradient,
}
PREPARED = [name for name in MAKERS if name != "gradient"]  # one gradient does not pay for preparing a network


def network(seed=0):
    return convolutional(nn.Softplus, seed=seed)


@pytest.fixture
def folds(monkeypatch):
    """The networks that were prepared, one entry each time."""
    found, plain = [], surgery.fold_batch_norms

    def spy(model, run):
        found.append(model)
        return plain(model, run)

    monkeypatch.setattr(surgery, "fold_batch_norms", spy)
    return found


def maps(net, names=tuple(MAKERS)):
    return {name: MAKERS[name](net).attribute(X, target=1) for name in names}


@pytest.mark.parametrize("order", [1, -1], ids=["forth", "back"])
def test_maps_are_bit_for_bit_those_of_methods_on_their_own(order):
    """In either order: which method prepares the network must not matter to the others."""
    net, names = network(), [*MAKERS][::order]
    alone, together = maps(net, names), maps(mg.prepare(net), names)
    assert [name for name in names if not torch.equal(alone[name], together[name])] == []


def test_a_network_is_prepared_once_for_all_methods_that_share_it(folds):
    net = network()
    maps(net, PREPARED)
    assert folds == [net] * len(PREPARED)
    folds.clear()
    ready = mg.prepare(net, X)
    assert folds == [net]  # at once, where inputs are given
    maps(ready, PREPARED)
    maps(ready, PREPARED)
    assert folds == [net]


def test_copies_of_a_method_share_what_it_prepared(folds):
    net = network()
    method = MAKERS["smoothgrad"](net)
    method.attribute(X, target=1)
    replace(method, seed=1).attribute(X, target=1)
    assert folds == [net]
    other = network(1)
    replace(method, forward_func=other).attribute(X, target=1)
    assert folds == [net, other]


def test_each_way_of_running_is_prepared_by_itself(folds):
    net = network()
    ready = mg.prepare(net)
    ways = [{}, {"precision": "bfloat16"}, {"hessian_step": 0.5}, {"hessian_step": 1.0}]
    found = [MAKERS[name](ready, **way).attribute(X, target=1) for way in ways for name in ("smoothgrad", "moreau")]
    assert folds == [net] * len(ways)
    wanted = [MAKERS[name](net, **way).attribute(X, target=1) for way in ways for name in ("smoothgrad", "moreau")]
    assert all(map(torch.equal, found, wanted))


def test_options_of_the_prepared_network_are_the_methods_unless_it_has_its_own():
    ready = mg.prepare(network(), precision="bfloat16")
    assert mg.SmoothGrad(ready).precision == "bfloat16"
    assert mg.SmoothGrad(ready, precision="float32").precision == "float32"
    assert mg.SmoothGrad(ready, NOISE).explain(X, 1).options["precision"] == "bfloat16"


def test_nothing_is_kept_alive():
    net = network()
    method = MAKERS["smoothgrad"](net)
    method.attribute(X, target=1)
    left = [weakref.ref(net), weakref.ref(method.prepared)]
    del net
    gc.collect()
    assert all(each() is not None for each in left)  # held by the method alone
    del method
    gc.collect()
    assert [each() for each in left] == [None, None]


def test_a_prepared_network_can_be_stored_and_copied():
    ready = mg.prepare(network(), X)
    wanted = mg.SmoothGrad(ready, NOISE).attribute(X, target=1)
    for other in (pickle.loads(pickle.dumps(ready)), copy.deepcopy(ready)):
        assert torch.equal(mg.SmoothGrad(other, NOISE).attribute(X, target=1), wanted)


@pytest.mark.parametrize("name", MAKERS)
def test_weights_that_change_are_noticed(name):
    net = network()
    ready = mg.prepare(net)
    kept = MAKERS[name](ready)
    before = kept.attribute(X, target=1)
    with torch.no_grad():
        net[0].weight.mul_(1.5)
        net[1].running_var.mul_(2.0)
    found = [kept.attribute(X, target=1), MAKERS[name](ready).attribute(X, target=1)]
    wanted = MAKERS[name](net).attribute(X, target=1)
    assert not torch.allclose(wanted, before, rtol=1e-2)
    for each in found:
        torch.testing.assert_close(each, wanted, rtol=1e-4, atol=1e-6)


class Counting(nn.Module):
    def __init__(self, net):
        super().__init__()
        self.net, self.rows = net, []

    def forward(self, x):
        self.rows.append(len(x))
        return self.net(x)


@pytest.mark.parametrize(("norms", "before"), [(False, 0), (True, 2)])
def test_few_forward_passes_come_before_the_first_gradient(norms, before):
    """None without batch norm; with it one on the plain copy and one on the folded."""
    layers = [nn.Conv2d(3, 4, 3), *([nn.BatchNorm2d(4)] if norms else []), nn.Softplus(), nn.Flatten()]
    model = Counting(nn.Sequential(*layers, nn.LazyLinear(3)))
    model(X)
    model.eval().rows.clear()
    rows = model.rows  # shared by the copies
    method = mg.SmoothGrad(model, mg.Smoothing(samples=4))
    copied = copy.deepcopy
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(surgery.copy, "deepcopy", lambda each, memo=None: copied(each, {**(memo or {}), id(rows): rows}))
        method.attribute(X[:1], target=1)
    assert len(rows) == before + 1


@pytest.mark.parametrize("samples", [8, 64, 65, 100])
def test_chunks_divide_the_samples(samples):
    """No more rows than samples, but for what an even share leaves over."""
    rows = []
    net = nn.Sequential(nn.Flatten(), nn.Linear(3 * 64 * 64, 2)).eval()

    def forward(x):
        rows.append(len(x))
        return net(x)

    mg.SmoothGrad(forward, mg.Smoothing(samples=samples)).attribute(torch.rand(1, 3, 64, 64), target=1)
    spent = sum(rows[1:]) if rows[0] != rows[-1] else sum(rows)
    assert samples <= spent < samples + len(rows)
    assert len(set(rows)) == 1


@pytest.mark.parametrize("name", ["smoothgrad", "moreau", "gradient"])
def test_an_attack_finds_the_same_through_the_network_and_through_its_copy(name):
    net = network()
    copied = mg.ATTACKS["topk"](MAKERS[name](net), 1.0, steps=2).perturb(X)
    before = snapshot(net.requires_grad_(False), X)
    itself = mg.ATTACKS["topk"](MAKERS[name](net), 1.0, steps=2).perturb(X)
    assert torch.equal(copied.x, itself.x)
    assert_same(before, snapshot(net, X))


def test_a_call_keeps_its_chunks_while_others_use_the_network():
    ready = mg.prepare(network(), X)
    (shared,) = ready._engines.values()
    mine, other = shared.for_call(3), shared.for_call(7)
    assert (mine.rows, other.rows) == (3, 7)
    mine.halve_rows(3, torch.OutOfMemoryError("no room"))
    mine.spoiled = torch.tensor(True)
    assert (mine.rows, other.rows) == (1, 7)
    assert other.spoiled is None
    mine.learn(tangents=False)
    assert not shared.tangents


def test_what_a_call_learns_of_an_older_network_is_not_kept():
    net = network()
    ready = mg.prepare(net, X)
    (shared,) = ready._engines.values()
    mine = shared.for_call(3)
    with torch.no_grad():
        net[0].weight.mul_(2)
    shared.for_call(3).prepare((X,))
    body = shared.body
    mine.learn(body=None)
    assert shared.body is body


def test_preparing_goes_on_after_the_memory_ran_out():
    """The second attempt prepares; it once took the first for done."""
    net, calls = network(), []

    class Failing(nn.Module):
        def __init__(self):
            super().__init__()
            self.net, self.training = net, False

        def forward(self, x):
            calls.append(len(x))
            if len(calls) == 1:
                raise torch.OutOfMemoryError("no room")
            return self.net(x)

        def __deepcopy__(self, memo):
            return self

    ready = mg.prepare(Failing())
    mg.SmoothGrad(ready, NOISE, precision="bfloat16").attribute(X, target=1)
    (shared,) = ready._engines.values()
    assert shared.made_of is not None
    assert torch.bfloat16 in (shared.cast, shared.auto)
