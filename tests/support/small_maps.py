"""Maps and a network that the tests of metrics share."""

import torch
from torch import nn


def maps(seed, shape=(3, 2, 12, 14)):
    return torch.randn(shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


class Net(nn.Module):
    """A small classifier of pictures of two channels."""

    def __init__(self):
        super().__init__()
        self.first = nn.Conv2d(2, 4, 3, padding=1)
        self.norm = nn.BatchNorm2d(4)
        self.last = nn.Linear(4, 3)

    def forward(self, x):
        return self.last(nn.functional.softplus(self.norm(self.first(x))).mean((2, 3)))


def net():
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return Net().double().eval()
