"""Changed copies of a model, and the original untouched."""

import copy

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import moreaugrad as mg
from moreaugrad.model.surgery import has_kinks


class Shared(nn.Module):
    """One ReLU used twice, in place."""

    def __init__(self):
        super().__init__()
        self.first, self.second, self.act = nn.Linear(5, 5), nn.Linear(5, 2), nn.ReLU(inplace=True)

    def forward(self, x):
        return self.second(self.act(self.first(self.act(x.clone()))))


class Functional(nn.Module):
    def forward(self, x):
        return F.relu(x)


def net():
    return nn.Sequential(nn.Linear(5, 8), nn.ReLU(), nn.Linear(8, 8), nn.ReLU6(), nn.Linear(8, 2)).double().eval()


def test_softplus_approaches_relu_and_has_second_derivatives():
    original, x = net().requires_grad_(False), 3 * torch.randn(50, 5, dtype=torch.float64)
    state = copy.deepcopy(original.state_dict())
    gaps = [float((mg.with_softplus(original, beta)(x) - original(x)).abs().max()) for beta in (10, 100, 1000)]
    assert gaps[0] > gaps[1] > gaps[2]
    assert gaps[2] < 5e-3
    assert isinstance(original[1], nn.ReLU)
    assert all(torch.equal(state[k], v) for k, v in original.state_dict().items())
    hessian = torch.autograd.functional.hessian(lambda v: mg.with_softplus(original, 5.0)(v)[:, 0].sum(), x[:1])
    assert hessian.abs().max() > 1e-3


def test_softplus_finds_a_module_that_is_used_twice():
    twice = nn.ReLU()
    copy = mg.with_softplus(nn.Sequential(nn.Linear(3, 3), twice, nn.Linear(3, 3), twice))
    assert not any(isinstance(module, nn.ReLU) for module in copy)


@pytest.mark.parametrize("kink", [nn.ReLU(), nn.ReLU6(), nn.LeakyReLU(0.2)])
def test_smooth_twins_approach_their_kinks(kink):
    x = torch.linspace(-3, 9, 101, dtype=torch.float64)
    gaps = [float((mg.with_softplus(kink, beta)(x) - kink(x)).abs().max()) for beta in (10, 100, 1000)]
    assert gaps[0] > gaps[1] > gaps[2] > 0
    assert gaps[2] <= 2 * 0.6932 / 1000  # log 2 / beta at each kink
    assert has_kinks(kink)
    assert not has_kinks(mg.with_softplus(kink))


def test_softplus_refuses_functional_relu():
    with pytest.raises(ValueError, match=r"got relu\(.*in the forward of Functional.*use nn\.ReLU"):
        mg.with_softplus(nn.Sequential(nn.Linear(5, 5), Functional()))


def test_a_model_that_is_an_activation():
    assert isinstance(mg.with_softplus(nn.ReLU(), 2.0), nn.Softplus)
