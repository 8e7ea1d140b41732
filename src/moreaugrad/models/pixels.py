"""A classifier in units of pixels: normalisation moves from preprocessing into the network."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from jaxtyping import Float
from PIL import Image
from torch import Tensor, nn

from moreaugrad.model.lipschitz_bounds import LipschitzBounds
from moreaugrad.models.classifier import Classifier, Values, View, per_channel
from moreaugrad.source import Region


@dataclass(frozen=True, slots=True)
class PixelView:
    """Another view without its normalisation: values in [0, 1]."""

    view: View
    size: tuple[int, int]
    mean: Values
    std: Values

    def apply(self, picture: Image.Image) -> tuple[Float[Tensor, "c h w"], Image.Image]:
        """Normalisation is undone rather than left out: any view may be inside, and borders may have its mean."""
        x, crop = self.view.apply(picture)
        std, mean = (per_channel(each).to(x.device, torch.float64) for each in (self.view.std, self.view.mean))
        return (x.double() * std + mean).to(x.dtype), crop

    def region(self, size: tuple[int, int]) -> Region | None:
        return self.view.region(size)


class Normalise(nn.Module):
    """(x - mean)/std, channel by channel, as a layer of the network."""

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


def in_pixels(classifier: Classifier) -> Classifier:
    """Move the normalisation of a classifier into its network, so that its input is pixels in [0, 1].

    l2 lengths (epsilon, sigma, the change of a map) are then those of pixels, which makes certificates of
    different models comparable.

    Args:
        classifier: from `mg.load_model`; it is left unchanged.

    Returns:
        A classifier that shares the weights; `classifier` itself where it takes pixels already.

    Example:
        >>> model = mg.in_pixels(mg.load_model("resnet18_softplus", weights="random"))
        >>> model.std.flatten()
        tensor([1., 1., 1.])
    """
    view = classifier.view
    if set(view.mean) == {0.0} and set(view.std) == {1.0}:
        return classifier
    like = classifier._any_tensor()  # a network without parameters would otherwise get the precision of this layer
    mean, std = (each.to(like.dtype) for each in (classifier.mean, classifier.std))
    both = nn.Sequential(Normalise(mean, std), classifier.network)
    for each in (both, both[0]):  # by hand: train() would reach into the network
        each.training = classifier.training
    pixels = PixelView(view, view.size, (0.0,) * len(view.mean), (1.0,) * len(view.std))
    return Classifier(both, pixels, classifier.name, classifier.labels)
