"""A network so small that thousands of maps take seconds, with its preprocessing; made once for each process."""

from __future__ import annotations

from functools import cache

import torch
from torch import Tensor, nn

import moreaugrad as mg

SIZE, CLASSES = 8, 3
LABELS = ["cat", "dog", "bird"]
NAME = "reliability.fuzz.tiny_network:make_network"


class TinyNetwork(nn.Module):
    """Two layers for pictures of 8 x 8 pixels, always with the same weights."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(3, 4, 3, padding=1)
        self.norm = nn.BatchNorm2d(4)
        self.fc = nn.Linear(4 * SIZE * SIZE, CLASSES)
        values = torch.Generator().manual_seed(5)
        for each in (self.conv.weight, self.fc.weight):
            each.data.copy_(torch.randn(each.shape, generator=values) / 5)

    def forward(self, x: Tensor) -> Tensor:
        found: Tensor = self.fc(nn.functional.softplus(self.norm(self.conv(x))).flatten(1))
        return found


def make_network() -> mg.Classifier:
    """The network with its preprocessing, as `load_model` takes it."""
    from moreaugrad.models.classifier import CentreCrop

    view = CentreCrop((SIZE, SIZE), (SIZE + 1, SIZE + 1), (0.5,) * 3, (0.25,) * 3)
    with torch.random.fork_rng(devices=[]):
        network = TinyNetwork().eval().requires_grad_(False)
    return mg.Classifier(network, view, "tiny", LABELS)


@cache
def shared_network() -> mg.Classifier:
    """One for all cases of a process."""
    return make_network()


def find_fault(found: mg.Explanation, images: int | None = None) -> str | None:
    """What is wrong with the maps of the network, or None."""
    shape = tuple(found.map.shape)
    if shape[1:] != (3, SIZE, SIZE) or (images is not None and shape[0] != images) or not shape[0]:
        return f"maps of shape {shape}"
    return None if bool(found.finite.all()) else "maps that are not finite"
