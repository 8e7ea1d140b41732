"""Models by name. Listing them imports neither torch nor a model library."""

from __future__ import annotations

from collections.abc import Sequence
from inspect import signature
from pathlib import Path
from typing import TYPE_CHECKING, Any

from moreaugrad.registry import Entry, Table, UnknownNameError, unknown
from moreaugrad.threads import initial_weights

if TYPE_CHECKING:
    import torch

    from moreaugrad.models.classifier import Classifier, ViewChange

INCLUDED = frozenset({"included"})  # the weights are installed: no download
NOISY = "1-Lipschitz network trained on CIFAR-10 with noise {} on pixels 0..1, weights included: for certificates"

MODELS = Table(
    "model",
    efficientnet_lite0=Entry(
        "moreaugrad.models.embedded:efficientnet_lite0",
        "EfficientNet-Lite0 for 224 x 224 photos, ImageNet weights included: needs no download",
        INCLUDED,
    ),
    efficientnet_lite0_tiny_imagenet=Entry(
        "moreaugrad.models.embedded:efficientnet_lite0_tiny_imagenet",
        "EfficientNet-Lite0 with Tiny-ImageNet's 200 classes; ImageNet weights included, or --weights: trained ones",
        INCLUDED,
    ),
    resnet18_softplus=Entry(
        "moreaugrad.models.resnet:resnet18_softplus",
        "ResNet-18 with softplus for 32 x 32 images; random weights unless a file is given",
    ),
    resnet18_softplus_cifar10=Entry(
        "moreaugrad.models.resnet:resnet18_softplus",
        "ResNet-18 with softplus, trained on CIFAR-10 by `moreaugrad train cifar10`",
        INCLUDED,
    ),
    lipschitz=Entry(
        "moreaugrad.models.lipschitz:lipschitz",
        "1-Lipschitz network for 32 x 32 images; random weights unless a file is given",
    ),
    lipschitz_cifar10=Entry("moreaugrad.models.lipschitz:lipschitz", NOISY.format(0.25), INCLUDED),
    lipschitz_cifar10_noise50=Entry("moreaugrad.models.lipschitz:lipschitz", NOISY.format(0.5), INCLUDED),
    lipschitz_cifar10_noise100=Entry("moreaugrad.models.lipschitz:lipschitz", NOISY.format(1), INCLUDED),
    **{
        "timm/NAME": Entry("moreaugrad.models.hubs:timm_model", "any classifier of timm, e.g. timm/resnet50"),
        "torchvision/NAME": Entry(
            "moreaugrad.models.hubs:torchvision_model", "any classifier of torchvision, e.g. torchvision/resnet50"
        ),
        "hf/ORG/NAME": Entry(
            "moreaugrad.models.hubs:hugging_face_model",
            "an image classifier of the Hugging Face hub, e.g. hf/google/vit-base-patch16-224 (extra: hf)",
        ),
        "package.module:factory": Entry(
            "moreaugrad.models.custom:custom_model", "your own code: a function or class that makes the network"
        ),
    },
)


def load_model(
    name: str,
    weights: str | Path | None = None,
    labels: str | Path | Sequence[str] | None = None,
    device: str | torch.device = "cpu",
    *,
    size: int | Sequence[int] | None = None,
    mean: Sequence[float] | None = None,
    std: Sequence[float] | None = None,
) -> Classifier:
    """Load a classifier with its preprocessing: in evaluation mode, frozen, on `device`.

    `moreaugrad models` lists the names. `mg.register("model", name)` adds a function that returns a module or a
    `Classifier`; it is called with those of `name`, `weights` and `labels` that it has as parameters.

    Args:
        name: an installed model ("efficientnet_lite0"), one of a hub ("timm/resnet50", "torchvision/resnet50",
            "hf/google/vit-base-patch16-224"), or your own code ("package.module:factory").
        weights: None for the pretrained ones, "random", or a checkpoint file (.safetensors or a saved state dict).
        labels: class names, or a file with one per line, a JSON list, or a JSON object from index to name.
        device: where the weights go, such as "cuda".
        size: side of the network's input in pixels, or (height, width), for a model that does not know its own.
        mean: what preprocessing subtracts from each channel, on the scale 0..1; None takes the model's own.
        std: what it divides each channel by; None takes the model's own.

    Returns:
        The classifier: call it with preprocessed images; `model.preprocess(picture)` makes one.

    Raises:
        UnknownNameError: no model has this name; a ValueError that suggests the nearest one.
        WeightsUnavailableError: the pretrained weights are not installed and cannot be downloaded.

    Example:
        >>> from PIL import Image
        >>> model = mg.load_model("resnet18_softplus", weights="random")
        >>> model.preprocess(Image.open(photo)).shape
        torch.Size([3, 32, 32])
    """

    from moreaugrad import validate
    from moreaugrad.models.classifier import ViewChange
    from moreaugrad.models.labels import read_labels

    entry = find_entry(name)
    change = ViewChange(size, mean, std)
    place = validate.device(device)
    names = None if labels is None else read_labels(labels)
    with initial_weights(0):  # building a network draws them: the same in every process
        model = _make_classifier(entry, {"name": name, "weights": weights, "labels": names}, change)
    model.eval().requires_grad_(False).to(place)
    if names is not None or change:
        model.check()
    return model


def _make_classifier(entry: Entry, given: dict[str, Any], change: ViewChange) -> Classifier:
    """Call a function of the table; wrap and fill what one from outside returns where it does not do so itself."""
    from torch import nn

    from moreaugrad.models.checkpoint import load_weights
    from moreaugrad.models.classifier import Classifier
    from moreaugrad.models.custom import as_classifier

    make = entry.load()
    options = {key: value for key, value in given.items() if key in signature(make).parameters}
    made = make(**options)
    if isinstance(made, Classifier) and options.keys() == given.keys():
        return as_classifier(made, name=given["name"], change=change)
    if not isinstance(made, nn.Module):
        raise TypeError(f"model {given['name']!r} must make a torch.nn.Module, got {type(made).__name__}")
    model = as_classifier(made, name=given["name"], labels=given["labels"], change=change)
    if "weights" not in options:
        load_weights(model.network, given["weights"])
    return model


def find_entry(name: str) -> Entry:
    """The entry of a model by name, by the hub it comes from, or by the code that makes it."""
    if not isinstance(name, str):
        raise TypeError(f"model must be a name, got {type(name).__name__}; a module is explained without load_model")
    if name in MODELS:
        return MODELS[name]
    source, slash, rest = name.partition("/")
    hub = {"timm": "timm/NAME", "torchvision": "torchvision/NAME", "hf": "hf/ORG/NAME"}.get(source)
    if hub and rest:
        return MODELS[hub]
    if ":" in name:
        return MODELS["package.module:factory"]
    error = unknown("model", name, list(MODELS))
    if slash or "Did you mean" in str(error):
        raise error
    raise UnknownNameError(f"{error} A network of timm or torchvision is 'timm/{name}' or 'torchvision/{name}'.")
