"""The network whose gradient leads an attack on a map: a copy without gradients of its weights, or a softplus copy."""

import pytest
import torch
from attacked_networks import Boxed, assert_same, convolutional, pictures, snapshot

import moreaugrad as mg
from moreaugrad.attacks.map_attack import without_weight_gradients

X = pictures(3, torch.float32)
MAKERS = {"gradient": mg.Gradient, "smoothgrad": lambda net: mg.SmoothGrad(net, mg.Smoothing(sigma=0.3, samples=6))}


def test_a_network_whose_weights_have_no_gradients_is_attacked_itself():
    free, asking, part = convolutional().requires_grad_(False), convolutional(), convolutional().requires_grad_(False)
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


@pytest.mark.parametrize("name", MAKERS)
def test_an_attack_finds_the_same_through_the_network_and_through_its_copy(name):
    net = convolutional()
    copied = mg.TopK(MAKERS[name](net), 1.0, steps=2).perturb(X)
    before = snapshot(net.requires_grad_(False), X)
    itself = mg.TopK(MAKERS[name](net), 1.0, steps=2).perturb(X)
    assert torch.equal(copied.x, itself.x)
    assert_same(before, snapshot(net, X))


@pytest.mark.parametrize("name", MAKERS)
def test_a_prepared_network_is_attacked_as_the_network_itself(name):
    """Its kinks are found and its box is known."""
    net, x = Boxed(convolutional(), torch.tensor(-1.0), torch.tensor(1.0)), X.clamp(-1, 1)
    wanted, found = (mg.TopK(MAKERS[name](each), 1.0, steps=2).perturb(x) for each in (net, mg.prepare(net)))
    torch.testing.assert_close(found.x, wanted.x)
    torch.testing.assert_close(found.pixels_l2, wanted.pixels_l2)
    assert mg.Pgd(mg.prepare(net), 0.1).perturb(x).pixels_linf is not None
