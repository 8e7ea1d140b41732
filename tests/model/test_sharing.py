"""Methods that share a network made ready: once for all, no longer than the block, and never for another map."""

import csv
import gc
import weakref
from contextlib import suppress

import pytest
import torch
from attacked_networks import assert_same, convolutional, pictures, snapshot
from torch import nn

import moreaugrad as mg
from moreaugrad.attacks.map_attack import without_weight_gradients
from moreaugrad.model import surgery
from moreaugrad.model.sharing import engines_of, shared_engines
from moreaugrad.studies import run as robustness
from moreaugrad.studies import runner as arena
from moreaugrad.studies.plan import Study
from moreaugrad.studies.run import run_study

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
READIED = [name for name in MAKERS if name != "gradient"]  # one gradient does not pay for making a network ready


def network(seed=0):
    return convolutional(nn.Softplus, seed=seed)


@pytest.fixture
def folds(monkeypatch):
    """The networks that were made ready, one entry each time."""
    found, plain = [], surgery.folded

    def spy(model, run):
        found.append(model)
        return plain(model, run)

    monkeypatch.setattr(surgery, "folded", spy)
    return found


def maps(net, names=tuple(MAKERS)):
    return {name: MAKERS[name](net).attribute(X, target=1) for name in names}


@pytest.mark.parametrize("order", [1, -1], ids=["forth", "back"])
def test_maps_are_bit_for_bit_those_of_methods_on_their_own(order):
    """In either order: which method makes the network ready must not matter to the others."""
    net, names = network(), [*MAKERS][::order]
    alone = maps(net, names)
    with shared_engines(net):
        together = maps(net, names)
    assert [name for name in names if not torch.equal(alone[name], together[name])] == []


def test_a_network_is_made_ready_once_for_all_methods_of_a_block(folds):
    net = network()
    maps(net, READIED)
    assert folds == [net] * len(READIED)
    folds.clear()
    with shared_engines(net):
        maps(net, READIED)
        maps(net, READIED)
    assert folds == [net]


def test_what_is_run_in_another_way_is_made_ready_apart(folds):
    net = network()
    ways = [{}, {"precision": "bfloat16"}, {"apart": 0.5}, {"apart": 1.0}]
    with shared_engines(net):
        methods = [MAKERS[name](net, **way) for way in ways for name in ("smoothgrad", "moreau")]
        found = [method.attribute(X, target=1) for method in methods]
        keys = set(engines_of(net))
    assert folds == [net] * len(ways)
    assert keys == {
        ("float32", False, None),
        ("bfloat16", False, None),
        ("float32", False, 0.5),
        ("float32", False, 1.0),
    }
    wanted = [MAKERS[name](net, **way).attribute(X, target=1) for way in ways for name in ("smoothgrad", "moreau")]
    assert all(map(torch.equal, found, wanted))


def test_another_network_keeps_to_itself(folds):
    net, other = network(), network(1)
    wanted = maps(other, READIED)
    folds.clear()
    with shared_engines(net):
        found = {}
        for name in READIED:
            MAKERS[name](net).attribute(X, target=1)
            found[name] = MAKERS[name](other).attribute(X, target=1)
        assert engines_of(other) == {}
        assert engines_of(other) is not engines_of(other)
    assert [each is net for each in folds] == [True, *[False] * len(READIED)]
    assert all(torch.equal(found[name], wanted[name]) for name in READIED)


def test_blocks_inside_a_block(folds):
    net, other = network(), network(1)
    with shared_engines(net):
        outer = engines_of(net)
        maps(net, READIED)
        with shared_engines(net):
            assert engines_of(net) is outer
            maps(net, READIED)
        with shared_engines(other):
            assert engines_of(net) is outer
            assert engines_of(other) is engines_of(other)
            maps(other, READIED)
            maps(net, READIED)
        assert engines_of(other) is not engines_of(other)
        assert engines_of(net) is outer
    assert [each is net for each in folds] == [True, False]


def test_a_method_that_was_used_before_goes_on_with_what_it_has(folds):
    net = network()
    before = MAKERS["smoothgrad"](net)
    before.attribute(X, target=1)
    with shared_engines(net):
        before.attribute(X, target=1)
        assert folds == [net]
        assert engines_of(net) == {}


def used(net, fails):
    """Methods and their engines, used in a block that ends well or not."""
    methods = [MAKERS[name](net) for name in READIED]
    with suppress(KeyError), shared_engines(net):
        for each in methods:
            each.attribute(X, target=1)
        if fails:
            raise KeyError
    return methods, methods[0]._engines


@pytest.mark.parametrize("fails", [False, True])
def test_after_the_block_nothing_is_shared(fails, folds):
    net = network()
    methods, inside = used(net, fails)
    assert all(each._engines is inside for each in methods)
    assert engines_of(net) == {}
    assert engines_of(net) is not engines_of(net)
    maps(net, READIED)
    assert folds == [net] * (1 + len(READIED))


@pytest.mark.parametrize("fails", [False, True])
def test_after_the_block_nothing_is_kept_alive(fails):
    net = network()
    methods, engines = used(net, fails)
    left = [weakref.ref(net), *map(weakref.ref, engines.values())]
    del net, engines
    gc.collect()
    assert all(each() is not None for each in left)  # held by the methods alone
    del methods
    gc.collect()
    assert [each() for each in left] == [None] * len(left)


@pytest.mark.parametrize("name", MAKERS)
def test_weights_that_change_inside_the_block_are_seen(name):
    net = network()
    with shared_engines(net):
        kept = MAKERS[name](net)
        before = kept.attribute(X, target=1)
        MAKERS["smoothgrad"](net).attribute(X, target=1)
        with torch.no_grad():
            net[0].weight.mul_(1.5)
            net[1].running_var.mul_(2.0)
        found = [kept.attribute(X, target=1), MAKERS[name](net).attribute(X, target=1)]
    wanted = MAKERS[name](net).attribute(X, target=1)
    assert not torch.allclose(wanted, before, rtol=1e-2)
    for each in found:
        torch.testing.assert_close(each, wanted, rtol=1e-4, atol=1e-6)


def study():
    methods = {name: {"method": name} for name in ("gradient", "smoothgrad", "moreau", "sparsified_smoothgrad")}
    methods["sparsified_smoothgrad"]["variant"] = "relaxed"
    far = {f"far_{name}": {"method": name, "apart": 0.5} for name in ("smoothgrad", "moreau")}
    terms = {"budget": 8, "attack_budget": 8, "epsilons": (1.0,), "modes": ("implicit:1x4",)}
    return Study(methods | far, {"topk": {"steps": 1}}, metrics=("normalised_distance",), **terms)


@pytest.fixture
def _small(monkeypatch):
    """Two blocks of images, and no picture, which costs more time than these studies."""
    monkeypatch.setattr(arena, "TOGETHER", (2, 2))
    monkeypatch.setattr(robustness, "curves", lambda *args, **options: None)
    monkeypatch.setattr(robustness.pictures, "write", lambda figure, path: path.touch())


@pytest.mark.usefixtures("_small")
def test_a_study_makes_its_network_ready_once_for_each_way_of_running_it(folds, tmp_path):
    net = network().requires_grad_(False)
    assert run_study(study(), net, X, tmp_path).finished
    distances = {options.get("apart") for options in study().methods.values()}
    assert folds == [net] * len(distances)
    assert engines_of(net) == {}


@pytest.mark.usefixtures("_small")
def test_a_study_that_is_gone_on_with_shares_no_less_exactly(tmp_path):
    net, tables = network().requires_grad_(False), []
    assert run_study(study(), net, X, tmp_path / "whole").finished
    while not run_study(study(), net, X, tmp_path / "parts", minutes=0).finished:
        pass
    for part in ("whole", "parts"):
        rows = list(csv.DictReader((tmp_path / part / "rows.csv").read_text().splitlines()))
        tables.append([{name: value for name, value in row.items() if name != "seconds"} for row in rows])
    assert tables[0] == tables[1]


def test_a_network_that_asks_for_no_derivative_by_its_weights_is_attacked_itself():
    free, asking, part = network().requires_grad_(False), network(), network().requires_grad_(False)
    part[0].bias.requires_grad_()
    assert without_weight_gradients(free) is free
    assert without_weight_gradients(free.forward) == free.forward
    for net in (asking, part):
        copy = without_weight_gradients(net)
        assert copy is not net
        for mine, theirs in zip(copy.parameters(), net.parameters(), strict=True):
            assert not mine.requires_grad
            assert mine.data_ptr() == theirs.data_ptr()
    assert all(parameter.requires_grad for parameter in asking.parameters())
    assert [name for name, each in part.named_parameters() if each.requires_grad] == ["0.bias"]


@pytest.mark.parametrize("name", ["smoothgrad", "moreau", "gradient"])
def test_an_attack_finds_the_same_through_the_network_and_through_its_copy(name):
    net = network()
    copied = mg.ATTACKS["topk"](MAKERS[name](net), 1.0, steps=2).perturb(X)
    before = snapshot(net.requires_grad_(False), X)
    itself = mg.ATTACKS["topk"](MAKERS[name](net), 1.0, steps=2).perturb(X)
    assert torch.equal(copied.x, itself.x)
    assert_same(before, snapshot(net, X))
