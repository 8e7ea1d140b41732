"""Attacks that follow the slope of another statistic than the one they attack."""

import pytest
import torch
from torch import nn

import moreaugrad as mg

X = torch.rand(4, 3, 8, 8, generator=torch.Generator().manual_seed(1))


def network():
    generator = torch.Generator().manual_seed(0)
    net = nn.Sequential(nn.Conv2d(3, 8, 3), nn.Softplus(), nn.Flatten(), nn.Linear(8 * 36, 5)).eval()
    for each in net.parameters():
        each.data = torch.randn(each.shape, generator=generator) / 4
    return net.requires_grad_(False)


def smooth(statistic, samples=16):
    return mg.SmoothGrad(network(), statistic=statistic, sigma=0.3, samples=samples, seed=2)


def attack(method, **options):
    return mg.TopK(method, 1.5, steps=4, seed=3, **options).perturb(X, 1)


def test_votes_follow_the_mean_square_by_themselves():
    alone, told = attack(smooth("votes")), attack(smooth("votes"), slope="square")
    assert torch.equal(alone.x, told.x)
    assert (alone.objective < alone.trace[0]).all()


@pytest.mark.parametrize("slope", ["mean", "square", "log_square"])
def test_a_slope_leads_and_the_map_decides(slope):
    """The objective reported is that of the attacked map at the point, whatever led there."""
    method = smooth("rms")
    found = attack(method, slope=slope)
    clean = method.attribute(X, 1)
    size = clean.abs().flatten(1)
    top = torch.zeros_like(size).scatter(1, size.topk(int(0.4 * size.shape[1])).indices, 1.0)
    there = method.attribute(found.x, 1).abs().flatten(1)
    torch.testing.assert_close(found.objective, (there * top).sum(1) / there.sum(1))
    assert (found.objective <= found.trace[0]).all()


@pytest.mark.parametrize("method", ["basic", "relaxed", "moreau"])
def test_every_method_with_votes_can_be_attacked(method):
    if method == "moreau":
        attacked = mg.MoreauGrad(network(), 0.2, statistic="votes", sigma=0.3, budget=64, seed=2)
    else:
        attacked = mg.SparsifiedSmoothGrad(network(), variant=method, sigma=0.3, samples=16, seed=2)
    found = attack(attacked, slope="square")
    assert (found.objective < found.trace[0]).any()
    assert (found.l2 <= 1.5 * (1 + 1e-6)).all()


def test_points_travel_between_statistics():
    led = attack(smooth("square"))
    taken = mg.TopK(smooth("votes"), 1.5, seed=3).transfer(X, [led.x], 1)
    assert (taken.objective <= taken.trace[0]).all()
    assert (taken.objective < taken.trace[0]).any()


def test_methods_without_statistics_have_no_other_slope():
    with pytest.raises(ValueError, match="slope='square' needs a method that averages gradients"):
        attack(mg.Gradient(network()), slope="square")
    with pytest.raises(ValueError, match=r"statistic.*sqare"):
        attack(smooth("votes"), slope="sqare")
