"""A classifier in other units: the same function of pictures, of an input that is normalised otherwise."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float
from PIL import Image
from torch import Tensor, nn

from moreaugrad import limits
from moreaugrad.model.lipschitz_bounds import LipschitzBounds
from moreaugrad.models.classifier import IMAGENET_MEAN, IMAGENET_STD, Classifier, Values, View, per_channel
from moreaugrad.source import Region


@dataclass(frozen=True, slots=True)
class RescaledView:
    """Another view with another normalisation."""

    view: View
    size: tuple[int, int]
    mean: Values
    std: Values

    def apply(self, picture: Image.Image) -> tuple[Float[Tensor, "c h w"], Image.Image]:
        """Normalisation is undone rather than left out: any view may be inside, and borders may have its mean."""
        x, crop = self.view.apply(picture)
        given = self.view.mean, self.view.std, self.mean, self.std
        mean, std, new_mean, new_std = (per_channel(each).to(x.device, torch.float64) for each in given)
        return ((x.double() * std + mean - new_mean) / new_std).to(x.dtype), crop

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


def to_units(
    classifier: Classifier, *, mean: Sequence[float] = IMAGENET_MEAN, std: Sequence[float] = IMAGENET_STD
) -> Classifier:
    """Express a classifier in other units: its input becomes (v - mean)/std of pixels v in [0, 1], its outputs stay.

    Lengths and parameters of a paper mean the same only where inputs are normalised as there. A change that is epsilon
    long here is epsilon * std/std' long in units std', so epsilon and sigma scale with 1/std, gradients and eta with
    std, and rho with 1/std^2. In the units of a paper its own numbers hold for every method, attack and certificate:
    nothing is converted by hand, and a std that differs between channels is exact too.

    Args:
        classifier: from `mg.load_model`; it is left unchanged.
        mean: what the inputs of the result have subtracted from each channel, on the scale 0..1; one value for grey
            images. Default: ImageNet's.
        std: what they are divided by; default: ImageNet's.

    Returns:
        A classifier that shares the weights; `classifier` itself where it has these units already.

    Raises:
        TypeError: for a network that does not know how its inputs are normalised.
        ValueError: for a std that is not positive, or another number of channels.

    Example:
        >>> model = mg.load_model("resnet18_softplus", weights="random")
        >>> there = mg.to_units(model, std=(0.229, 0.224, 0.225))
        >>> found = mg.MoreauGrad(there, rho=1.0, noise_level=0.1, budget=32)  # rho as in that paper
        >>> there.std.flatten()
        tensor([0.2290, 0.2240, 0.2250])
    """
    _check(classifier, mean, std)
    view = classifier.view
    wanted = tuple(map(float, mean)), tuple(map(float, std))
    if (tuple(view.mean), tuple(view.std)) == wanted:
        return classifier
    if isinstance(view, RescaledView):  # from the network's own units, so that layers do not pile up
        inner: Any = classifier.network
        own = Classifier(inner[1], view.view, classifier.name, classifier.labels)
        return to_units(own, mean=mean, std=std)
    like = classifier._any_tensor()  # a network without parameters would otherwise get the precision of this layer
    layer = Normalise(*(each.to(like.device, like.dtype) for each in _change_of_units(view, *wanted)))
    both = nn.Sequential(layer, classifier.network)
    for each in (both, layer):  # by hand: train() would reach into the network
        each.training = classifier.training
    return Classifier(both, RescaledView(view, view.size, *wanted), classifier.name, classifier.labels)


def in_pixels(classifier: Classifier) -> Classifier:
    """Move the normalisation of a classifier into its network, so that its input is pixels in [0, 1].

    `to_units` with mean 0 and std 1. l2 lengths (epsilon, sigma, the change of a map) are then those of pixels, which
    makes certificates of different models comparable.

    Args:
        classifier: from `mg.load_model`; it is left unchanged.

    Returns:
        A classifier that shares the weights; `classifier` itself where it takes pixels already.

    Example:
        >>> model = mg.in_pixels(mg.load_model("resnet18_softplus", weights="random"))
        >>> model.std.flatten()
        tensor([1., 1., 1.])
    """
    _check_knows_units(classifier)
    channels = len(classifier.view.std)
    return to_units(classifier, mean=(0.0,) * channels, std=(1.0,) * channels)


def _change_of_units(view: View, mean: Values, std: Values) -> tuple[Tensor, Tensor]:
    """Mean and std of the layer that leads from inputs in other units to those of the view.

    (v - m)/s = (y - (m - m')/s') / (s/s') for y = (v - m')/s'.
    """
    old_mean, old_std, new_mean, new_std = (
        torch.tensor(each, dtype=torch.float64).view(-1, 1, 1) for each in (view.mean, view.std, mean, std)
    )
    return (old_mean - new_mean) / new_std, old_std / new_std


def _check(classifier: object, mean: Sequence[float], std: Sequence[float]) -> None:
    _check_knows_units(classifier)
    limits.view(None, mean, std)
    channels = len(classifier.view.std)  # type: ignore[attr-defined]
    if not len(mean) == len(std) == channels:
        raise ValueError(
            f"mean and std must have one value for each of the {channels} channels of the model, got {len(mean)} and "
            f"{len(std)}; give both"
        )


def _check_knows_units(classifier: object) -> None:
    if not isinstance(classifier, Classifier):
        raise TypeError(
            "classifier must know how its inputs are normalised, which a Classifier does, got "
            f"{type(classifier).__name__}; load it by mg.load_model(name, mean=..., std=...), or wrap it: "
            "mg.Classifier(network, view, name) with the mean and std of its preprocessing in the view"
        )
