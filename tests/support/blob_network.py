"""A small network, trained on coloured blobs in noise: what its maps should show is known."""

import copy
from functools import lru_cache

import torch
from torch import nn
from torch.nn import functional as F

SIZE, CLASSES, WIDE = 16, 3, 5


def blobs(n, seed=0):
    """Noise with one blob each; its colour is the class."""
    generator = torch.Generator().manual_seed(seed)
    y = torch.arange(n) % CLASSES
    x = 0.3 * torch.randn(n, 3, SIZE, SIZE, dtype=torch.float64, generator=generator)
    corners = torch.randint(3, SIZE - WIDE - 3, (n, 2), generator=generator).tolist()
    for image, label, (row, column) in zip(x, y.tolist(), corners, strict=True):
        image[label, row : row + WIDE, column : column + WIDE] += 1
    return x.clamp(-1, 2), y


def averaging(act=nn.ReLU):
    """Ends in an average and a linear layer; Grad-CAM reads module 4, of 8 x 8 positions."""
    layers = [nn.Conv2d(3, 8, 3, padding=1), act(), nn.Conv2d(8, 12, 3, 2, 1), nn.BatchNorm2d(12), act()]
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(12, CLASSES)).double()


def flattening(act=nn.ReLU):
    """Ends in two linear layers that see every position, as the networks do on which patches were published."""
    layers = [nn.Conv2d(3, 8, 3, 2, 1), act(), nn.Conv2d(8, 12, 3, 1, 1), act(), nn.Flatten()]
    return nn.Sequential(*layers, nn.Linear(12 * 64, 24), act(), nn.Linear(24, CLASSES)).double()


@lru_cache
def _trained(make, act):
    with torch.random.fork_rng():
        torch.manual_seed(0)
        net = make(act)
        optimiser, (x, y) = torch.optim.Adam(net.parameters(), 0.01), blobs(120, seed=1)
        for _ in range(60):
            optimiser.zero_grad()
            F.cross_entropy(net(x), y).backward()
            optimiser.step()
    return net.eval()


def trained(make=averaging, act=nn.ReLU):
    """A network of one's own, in evaluation mode."""
    net = copy.deepcopy(_trained(make, act))
    net.zero_grad(set_to_none=True)
    return net


def state(net):
    """All that a call could have left in a network."""
    flags = [(p.requires_grad, p.grad is None) for p in net.parameters()]
    hooks = [(len(m._forward_hooks), len(m._forward_pre_hooks), len(m._backward_hooks)) for m in net.modules()]
    values = {name: value.clone() for name, value in net.state_dict().items()}
    return flags, hooks, [m.training for m in net.modules()], values


def same(one, other):
    return one[:3] == other[:3] and all(torch.equal(one[3][name], other[3][name]) for name in one[3])
