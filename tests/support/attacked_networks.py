"""Small classifiers to attack: closed forms, a convolutional one with kinks or without, and one that shows its rows."""

import copy
import math

import numpy as np
import torch
from torch import nn


class Quadratic(nn.Module):
    """Class 0 scores sum d x^2 / 2 + 1e6, class 1 zero: the map of class 0 is d * x, and the class never changes."""

    def __init__(self, d):
        super().__init__()
        self.d = nn.Parameter(d)

    def forward(self, x):
        score = (self.d * x.square()).flatten(1).sum(1) / 2
        return torch.stack([score + 1e6, torch.zeros_like(score)], 1)


class Seeing(nn.Module):
    """A model that shows its rows to a function before it goes on; copies of it show them to the same."""

    def __init__(self, net, see):
        super().__init__()
        self.net, self.see, self.training = net, see, net.training

    def forward(self, v):
        self.see(v)
        return self.net(v)


class Boxed(nn.Module):
    """A model that knows the box of its pictures."""

    def __init__(self, net, low, high):
        super().__init__()
        self.net, self.box, self.training = net, (low, high), net.training

    def forward(self, v):
        return self.net(v)


def convolutional(act=nn.ReLU, classes=5, seed=0):
    """For images of 3 x 8 x 8; every weight random, so that no two entries of a map tie."""
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        net = nn.Sequential(
            nn.Conv2d(3, 6, 3, padding=1), nn.BatchNorm2d(6), act(), nn.Conv2d(6, 6, 3, stride=2, padding=1), act(),
            nn.Flatten(), nn.Linear(6 * 16, classes),
        )  # fmt: skip
        nn.init.normal_(net[1].running_mean, std=0.1)
        nn.init.uniform_(net[1].running_var, 0.5, 1.5)
    return net.eval()


def pictures(count=3, dtype=torch.float64, seed=1, size=8):
    return torch.randn(count, 3, size, size, dtype=torch.float64, generator=torch.Generator().manual_seed(seed)).to(
        dtype
    )


def gradient(net, x, target):
    """The map by plain autograd, row by row."""
    rows = []
    for row, label in zip(x, target, strict=True):
        leaf = row[None].clone().requires_grad_()
        rows.append(torch.autograd.grad(net(leaf)[0, int(label)], leaf)[0])
    return torch.cat(rows)


def least_share(weight, size, top, epsilon):
    """min of D = N/(N + M), N and M the sums of weight * size on `top` and elsewhere, when size moves by epsilon in l2
    and stays positive.

    D = r/(1 + r), r = N/M; r* is where the least N - r M, N0 - r M0 - epsilon |(w_top, r w_rest)|, is zero.
    """
    inner, outer = weight[top], weight[~top]
    n0, m0 = float(inner @ size[top]), float(outer @ size[~top])
    a = m0**2 - epsilon**2 * float(outer @ outer)
    b = -2 * n0 * m0
    c = n0**2 - epsilon**2 * float(inner @ inner)
    r = (-b - math.sqrt(b * b - 4 * a * c)) / (2 * a)
    return r / (1 + r)


def snapshot(net, x):
    """All that a call must leave as it was."""
    hooks = [len(m._forward_hooks) + len(m._forward_pre_hooks) + len(m._backward_hooks) for m in net.modules()]
    return {
        "plain": ([m.training for m in net.modules()], [p.requires_grad for p in net.parameters()], hooks),
        "mode": (torch.is_grad_enabled(), x.requires_grad, x.grad),
        "grads": [None if p.grad is None else p.grad.clone() for p in net.parameters()],
        "state": copy.deepcopy(net.state_dict()),
        "x": x.detach().clone(),
        "rng": torch.get_rng_state(),
        "numpy": np.random.get_state()[1].copy(),  # noqa: NPY002
    }


def assert_same(before, after):
    assert before["plain"] == after["plain"]
    assert before["mode"] == after["mode"]
    for one, two in zip(before["grads"], after["grads"], strict=True):
        assert (one is None and two is None) or torch.equal(one, two)
    assert all(torch.equal(before["state"][key], after["state"][key]) for key in before["state"])
    assert torch.equal(before["x"], after["x"])
    assert torch.equal(before["rng"], after["rng"])
    assert (before["numpy"] == after["numpy"]).all()
