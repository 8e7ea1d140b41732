"""The same classifier in units of pixels: normalisation moves from the picture's way in into the network."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from jaxtyping import Float
from PIL import Image
from torch import Tensor, nn

from moreaugrad.model.lipschitz_bounds import LipschitzBounds
from moreaugrad.models.classifier import Classifier
from moreaugrad.models.view import Values, View, per_channel


@dataclass(frozen=True, slots=True)
class PixelView:
    """What another view sees, as values in [0, 1]."""

    view: View

    @property
    def size(self) -> tuple[int, int]:
        return self.view.size

    @property
    def mean(self) -> Values:
        return (0.0,) * len(self.view.mean)

    @property
    def std(self) -> Values:
        return (1.0,) * len(self.view.std)

    def crop(self, picture: Image.Image) -> Image.Image:
        return self.view.crop(picture)

    def tensor(self, picture: Image.Image) -> Float[Tensor, "c h w"]:
        """Undone rather than left out: the way of a view may be anybody's, and borders may have its mean."""
        seen = self.view.tensor(picture)
        std, mean = (per_channel(each).to(seen.device, torch.float64) for each in (self.view.std, self.view.mean))
        return (seen.double() * std + mean).to(seen.dtype)


class Normalise(nn.Module):
    """(x - mean)/std, channel by channel: a layer of the network, so that maps and lengths are those of x."""

    mean: Tensor
    std: Tensor

    def __init__(self, mean: Float[Tensor, "c 1 1"], std: Float[Tensor, "c 1 1"]) -> None:
        super().__init__()
        self.register_buffer("mean", mean, persistent=False)
        self.register_buffer("std", std, persistent=False)

    def forward(self, x: Float[Tensor, "n c h w"]) -> Float[Tensor, "n c h w"]:
        return (x - self.mean) / self.std

    def lipschitz_bounds(self) -> LipschitzBounds:
        return LipschitzBounds(float((1 / self.std.double()).max()) * (1 + 1e-12))

    def extra_repr(self) -> str:
        return f"mean={self.mean.flatten().tolist()}, std={self.std.flatten().tolist()}"


def in_pixels(classifier: Classifier) -> Classifier:
    """The same network taking pixels in [0, 1], so that l2 lengths (epsilon, sigma, a map's change) are those of
    pixels. It shares the weights; one that takes pixels already is returned as it is."""
    view = classifier.view
    if set(view.mean) == {0.0} and set(view.std) == {1.0}:
        return classifier
    like = classifier._anchor()  # its precision, which a network without parameters would else take from this layer
    mean, std = (each.to(like.dtype) for each in (classifier.mean, classifier.std))
    both = nn.Sequential(Normalise(mean, std), classifier.network)
    for each in (both, both[0]):  # by hand: train() would reach into the network
        each.training = classifier.training
    return Classifier(both, PixelView(view), classifier.name, classifier.labels)
