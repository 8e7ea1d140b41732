"""A network for 32 x 32 images whose Lipschitz constant is known: every layer keeps lengths, or shortens them.

Its input is in pixels, values 0..1 less 0.5, so that l2 lengths are those of pixels.
"""

from __future__ import annotations

import math
from collections import OrderedDict
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from moreaugrad import validate
from moreaugrad.model.lipschitz_bounds import ISOMETRY, LipschitzBounds
from moreaugrad.models.checkpoint import build_network, shipped_weights
from moreaugrad.models.classifier import CentreCrop, Classifier
from moreaugrad.models.labels import cifar10_labels

SIZE = 32  # height and width of an image
VIEW = CentreCrop((SIZE, SIZE), (SIZE, SIZE), (0.5,) * 3, (1.0,) * 3)
PATCHES = (2, 4, 8)
PATCH, WIDTHS, DEPTH, TAU = 8, (64,), 1, 0.05
ROUNDNESS = 1e-12, 1e12  # of tau: its square and its inverse are float32 numbers


class SmoothAbs(nn.Module):
    """sqrt(v^2 + tau^2) - tau on the last half of the channels; the first half passes.

    Slopes lie in (-1, 1) and are near their ends for |v| >> tau: there gradients keep their length.
    """

    def __init__(self, tau: float) -> None:
        super().__init__()
        validate.positive("tau", tau)
        if not ROUNDNESS[0] <= tau <= ROUNDNESS[1]:
            raise ValueError(f"tau must be from {ROUNDNESS[0]:g} to {ROUNDNESS[1]:g}, got {tau:g}; {TAU} is usual")
        self.tau = tau

    def forward(self, x: Float[Tensor, "n c h w"]) -> Float[Tensor, "n c h w"]:
        half = x.shape[1] // 2
        bent = (x[:, half:].square() + self.tau**2).sqrt() - self.tau
        return torch.cat([x[:, :half], bent], 1)

    def lipschitz_bounds(self) -> LipschitzBounds:
        return LipschitzBounds(1.0, 1 / self.tau)


class Shift(nn.Module):
    """Every image moved by so many pixels down and to the right, around its edges."""

    def __init__(self, by: int) -> None:
        super().__init__()
        self.by = by

    def forward(self, x: Float[Tensor, "n c h w"]) -> Float[Tensor, "n c h w"]:
        return x.roll((self.by, self.by), (2, 3))

    def lipschitz_bounds(self) -> LipschitzBounds:
        return ISOMETRY


class LipschitzNetwork(nn.Sequential):
    """Stages: patches (of `patch` x `patch` pixels, later of 2 x 2) -> channels, then `depth` orthogonal maps of
    patches of 2 x 2, in turn of the image and of the image shifted by one, with SmoothAbs before and between; last a
    linear layer. A large first patch averages noise away before anything bends.

    All matrices have orthonormal rows or columns and the last one rows of length 1: every logit is 1-Lipschitz.
    """

    def __init__(
        self,
        num_classes: int = 10,
        widths: Sequence[int] = WIDTHS,  # channels of the stages
        depth: int = DEPTH,
        tau: float = TAU,
        patch: int = PATCH,  # pixels along the first patches
    ) -> None:
        validate.at_least("num_classes", num_classes, 1)
        validate.at_least("depth", depth, 0)
        check_widths(widths, patch)
        layers: OrderedDict[str, nn.Module] = OrderedDict()
        for number, (before, width) in enumerate(zip((3, *widths), widths, strict=False), 1):
            layers[f"stage{number}"] = _stage(before, width, depth, tau, patch if number == 1 else 2)
        layers["flatten"] = nn.Flatten()
        layers["fc"] = nn.Linear(widths[-1] * (SIZE // patch >> len(widths) - 1) ** 2, num_classes)
        super().__init__(layers)
        for layer in matrices(self):
            nn.init.zeros_(layer.bias)
            nn.init.orthogonal_(layer.weight)  # the last one, if not the others
        if not matrices(self)[-1].weight.is_meta:  # otherwise only its shapes are asked for
            _init_waves(self)


def _stage(before: int, width: int, depth: int, tau: float, patch: int) -> nn.Sequential:
    layers: list[nn.Module] = [nn.PixelUnshuffle(patch), nn.Conv2d(patch**2 * before, width, 1)]
    for number in range(depth):
        mix = nn.Conv2d(width, 4 * width, 2, 2)
        layers += [SmoothAbs(tau), mix, nn.PixelShuffle(2), Shift(-1 if number % 2 else 1)]
    return nn.Sequential(*layers, SmoothAbs(tau))


def _init_waves(network: nn.Module) -> None:
    """Initial weights: patches become their cosine waves, the longest first, and maps of patches change nothing.

    Low frequencies, in which images differ most and noise least, then pass all stages and gradients keep their length.
    """
    with torch.no_grad():
        for number, layer in enumerate(matrices(network)[:-1]):
            size, before = layer.out_channels, layer.in_channels
            found = torch.eye(size)
            if layer.kernel_size == (1, 1):
                channels = before // 4 if number else 3
                found = _cosines(channels, math.isqrt(before // channels))
                found = found[:size] if size <= before else layer.weight.flatten(1) @ found
            layer.weight.copy_(found.view_as(layer.weight))


def _cosines(channels: int, patch: int) -> Float[Tensor, "n n"]:
    """From patches as PixelUnshuffle lays them out: waves of all channels, ordered by the sum of their frequencies."""
    at = torch.arange(patch, dtype=torch.float64)
    waves = torch.cos(torch.pi / patch * at[:, None] * (at[None] + 0.5)) * math.sqrt(2 / patch)
    waves[0] /= math.sqrt(2)
    order = (at[:, None] + at[None]).flatten().argsort(stable=True)
    plane = torch.kron(waves, waves)[order]
    return torch.kron(plane[:, None], torch.eye(channels)[:, :, None]).view(channels * patch**2, -1).float()


def matrices(network: nn.Module) -> list[Any]:
    """The layers that multiply by a matrix, in their order."""
    return [each for each in network.modules() if isinstance(each, nn.Conv2d | nn.Linear)]


def check_widths(widths: Sequence[int], patch: int) -> None:
    for width in widths:
        validate.at_least("widths", width, 2)
    if patch not in PATCHES:
        raise ValueError(f"patch must be one of {PATCHES}, got {patch!r}")
    stages = PATCHES[::-1].index(patch) + 2  # down to 2 x 2 pixels, the least that a patch needs
    if not 1 <= len(widths) <= stages:
        raise ValueError(
            f"widths must name the channels of 1 to {stages} stages for patch={patch}, got {list(widths)}: "
            "each further stage halves the image"
        )


def lipschitz(name: str, weights: str | Path | None, labels: list[str] | None) -> Classifier:
    """Random weights, those of the package, or those of a file, which may state its widths, depth, tau and patch."""
    if weights is None and name != "lipschitz":
        weights = shipped_weights(name, "moreaugrad train cifar10 --network lipschitz --data FOLDER --out FILE")
    options: dict[str, Any] = {"widths": read_widths, "depth": int, "tau": float, "patch": int}
    network = build_network(LipschitzNetwork, weights, labels, options)
    return Classifier(network, VIEW, name, labels or cifar10_labels(len(matrices(network)[-1].weight)))


def read_widths(text: str) -> tuple[int, ...]:
    """Whole numbers with commas between."""
    try:
        return tuple(int(each) for each in text.split(","))
    except ValueError:
        raise ValueError(f"widths must be whole numbers with commas between, such as 32,64, got {text!r}") from None
