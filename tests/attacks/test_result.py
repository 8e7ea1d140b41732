"""The strongest of several attacks on the same images."""

import pytest
import torch
from attacked_networks import convolutional, pictures

import moreaugrad as mg
from moreaugrad.attacks.topk import TopK


def test_strongest_chooses_for_each_image_among_what_is_valid():
    net, x = convolutional().double(), pictures(6)
    found = [TopK(mg.Gradient(net), 1.0, k=20, steps=3, seed=seed).perturb(x) for seed in range(3)]
    best, which = mg.strongest_attack(found)
    table = torch.stack([each.objective for each in found])
    assert torch.equal(which, table.argmin(0))
    assert len(which.unique()) > 1
    assert torch.equal(best.objective, table.amin(0))
    for row, number in enumerate(which.tolist()):
        for name in ("x", "l2", "linf", "success", "kept"):
            assert torch.equal(getattr(best, name)[row], getattr(found[number], name)[row])
    assert torch.equal(best.gradients, found[0].gradients * 3)
    assert torch.equal(best.trace[-1], best.objective)
    assert (best.trace.diff(dim=0) <= 0).all()
    _, longest = mg.strongest_attack(found, by=[-each.l2 for each in found])
    assert torch.equal(longest, torch.stack([each.l2 for each in found]).argmax(0))


def test_strongest_never_takes_an_attack_that_failed():
    net, x = convolutional().double(), pictures(2)
    good = TopK(mg.Gradient(net), 0.5, k=20, steps=5).perturb(x)
    flat = TopK(mg.Gradient(net), 1e-9, k=20, steps=5, surrogate=None).perturb(x)
    best, which = mg.strongest_attack([flat, good], by=[torch.zeros(2), torch.ones(2)])
    assert which.tolist() == [1, 1]
    assert torch.equal(best.x, good.x)
    none, _ = mg.strongest_attack([flat, flat])
    assert torch.equal(none.x, x)
    assert not none.success.any()
    alone, _ = mg.strongest_attack([good])
    assert torch.equal(alone.x, good.x)


def test_a_printed_result_tells_successes_and_sizes_instead_of_tensors():
    x = torch.zeros(3, 1, 2, 2)
    numbers = torch.tensor([0.25, 0.5, 0.75])
    found = mg.AttackResult(
        *(x, torch.tensor([True, False, True]), torch.tensor([True, True, True]), numbers),
        *(torch.stack([numbers + 1, numbers]), torch.tensor([1200, 1200, 1200]), torch.zeros(3).long()),
        *(2 * numbers, numbers, 255 * numbers, torch.full((3,), 8.0)),
    )
    for words in ("success on 2 of 3", "kept for 3", "1 (0.5 to 1.5)", "8-bit steps 128 (63.8 to 191) and 8"):
        assert words in str(found)
    assert "1,200 gradients" in str(found)
    assert "tensor" not in str(found) + repr(found)
    assert len(repr(found).splitlines()) == 1


def test_results_that_do_not_belong_together_are_refused():
    net = convolutional().double()
    two, three = (mg.RandomNoise(mg.Gradient(net), 0.5, tries=2).perturb(pictures(n)) for n in (2, 3))
    for found in ([], two, [two, None], [torch.zeros(2)]):
        with pytest.raises(TypeError, match="found must be a list of at least one AttackResult"):
            mg.strongest_attack(found)
    with pytest.raises(ValueError, match="on the same images"):
        mg.strongest_attack([two, three])
    for by in ([torch.zeros(3)], [torch.zeros(2)] * 2):
        with pytest.raises(ValueError, match="by must hold 1 tensors of 2 figures"):
            mg.strongest_attack([two], by=by)
