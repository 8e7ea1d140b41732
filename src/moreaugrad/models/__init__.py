"""Models by name. Listing them imports neither torch nor a model library; `load_model` does."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from moreaugrad.registry import Entry, Table, UnknownNameError, unknown

if TYPE_CHECKING:
    import torch

    from moreaugrad.models.classifier import Classifier

MODELS = Table(
    "model",
    efficientnet_lite0=Entry(
        "moreaugrad.models.embedded:efficientnet_lite0",
        "EfficientNet-Lite0 for 224 x 224 photos, ImageNet weights included: needs no download",
        frozenset({"included"}),
    ),
    efficientnet_lite0_tiny_imagenet=Entry(
        "moreaugrad.models.embedded:efficientnet_lite0_tiny_imagenet",
        "EfficientNet-Lite0 with Tiny-ImageNet's 200 classes; ImageNet weights included, or --weights: trained ones",
        frozenset({"included"}),
    ),
    resnet18_softplus=Entry(
        "moreaugrad.models.resnet:resnet18_softplus",
        "ResNet-18 with softplus for 32 x 32 images; random weights unless a file is given",
    ),
    resnet18_softplus_cifar10=Entry(
        "moreaugrad.models.resnet:resnet18_softplus_cifar10",
        "ResNet-18 with softplus, trained on CIFAR-10 by `moreaugrad train cifar10`",
        frozenset({"included"}),
    ),
    lipschitz=Entry(
        "moreaugrad.models.lipschitz:lipschitz",
        "1-Lipschitz network for 32 x 32 images; random weights unless a file is given",
    ),
    lipschitz_cifar10=Entry(
        "moreaugrad.models.lipschitz:lipschitz_cifar10",
        "1-Lipschitz network trained on CIFAR-10 with noise 0.25 on pixels 0..1, weights included: for certificates",
        frozenset({"included"}),
    ),
    lipschitz_cifar10_noise50=Entry(
        "moreaugrad.models.lipschitz:lipschitz_cifar10",
        "1-Lipschitz network trained on CIFAR-10 with noise 0.5 on pixels 0..1, weights included: for certificates",
        frozenset({"included"}),
    ),
    lipschitz_cifar10_noise100=Entry(
        "moreaugrad.models.lipschitz:lipschitz_cifar10",
        "1-Lipschitz network trained on CIFAR-10 with noise 1 on pixels 0..1, weights included: for certificates",
        frozenset({"included"}),
    ),
    **{
        "timm/NAME": Entry("moreaugrad.models.named:timm_model", "any classifier of timm, e.g. timm/resnet50"),
        "torchvision/NAME": Entry(
            "moreaugrad.models.named:torchvision_model", "any classifier of torchvision, e.g. torchvision/resnet50"
        ),
        "hf/ORG/NAME": Entry(
            "moreaugrad.models.hugging_face:hugging_face_model",
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
) -> Classifier:
    """A classifier with its own preprocessing: in eval mode, frozen, on `device`.

    `weights`: None for the pretrained ones, "random", or a checkpoint file. `labels`: the class names,
    or a file with one per line, a JSON list, or a JSON object from index to name.
    """
    import torch

    from moreaugrad import validate
    from moreaugrad.models.labels import read_labels

    entry = _entry(name)
    place = validate.device(device)
    names = None if labels is None else read_labels(labels)
    with torch.random.fork_rng(devices=[]):  # building a network draws initial weights: the same in every process
        torch.default_generator.manual_seed(0)
        model: Classifier = entry(name, weights, names)
    model.eval().requires_grad_(False).to(place)
    if names is not None:
        model.check_labels()
    return model


def _entry(name: str) -> Entry:
    if not isinstance(name, str):
        raise TypeError(f"model must be a name, got {type(name).__name__}; a module is explained without load_model")
    if name in MODELS:
        return MODELS[name]
    source, slash, rest = name.partition("/")
    for known, entry in MODELS.items():
        if slash and rest and known.startswith(f"{source}/"):
            return entry
    if ":" in name:
        return MODELS["package.module:factory"]
    error = unknown("model", name, list(MODELS))
    if slash or "Did you mean" in str(error):
        raise error
    raise UnknownNameError(f"{error} A network of timm or torchvision is 'timm/{name}' or 'torchvision/{name}'.")
