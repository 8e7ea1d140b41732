"""Models from outside the package: `package.module:factory`, or a module or callable that is already there."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from PIL import Image
from torch import nn

from moreaugrad import validate
from moreaugrad.model.devices import Device, best_device
from moreaugrad.model.prepared import Prepared
from moreaugrad.models.classifier import (
    CentreCrop,
    Classifier,
    FunctionView,
    View,
    ViewChange,
    check_preprocessed,
)
from moreaugrad.models.hubs import timm_view, torchvision_view
from moreaugrad.models.labels import read_labels
from moreaugrad.registry import call_named

log = logging.getLogger("moreaugrad")

Model = str | nn.Module | Callable[..., Any]
Labels = str | Path | Sequence[str]
AS_IT_IS = ViewChange()


class Function(nn.Module):
    """A plain callable as a module."""

    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__()
        self.function = function

    def forward(self, *inputs: Any) -> Any:
        return self.function(*inputs)


def open_model(
    model: Model, weights: str | Path | None, labels: Labels | None, device: Device
) -> tuple[Any, list[str] | None]:
    """The network, loaded where it is a name, and the names of its classes."""
    if isinstance(model, str):
        from moreaugrad.models import load_model

        loaded = load_model(model, weights, labels, best_device(device))
        return loaded, loaded.labels
    if weights is not None:
        raise ValueError(
            f"weights must be left out where the model is not a name, got weights={str(weights)!r} and "
            f"{type(model).__name__}; load them: model.load_state_dict(...)"
        )
    network = model.forward if isinstance(model, Prepared) else model
    validate.runnable(network)
    return model, getattr(network, "labels", None) if labels is None else read_labels(labels)


def custom_model(name: str) -> nn.Module:
    """Call the function `package.module:factory`, which must make a module."""
    try:
        made: nn.Module = call_named(name, Path.cwd(), nn.Module)
    except Exception as error:
        raise ValueError(
            f"model {name!r} must name a function of an importable module that makes the network, got "
            f"{type(error).__name__}: {error}; modules are looked for in the current directory as well"
        ) from error
    return made


def as_classifier(
    model: Any,
    preprocess: Callable[..., Any] | None = None,
    name: str | None = None,
    labels: list[str] | None = None,
    change: ViewChange = AS_IT_IS,
) -> Classifier:
    """Give a network or callable a preprocessing: `preprocess`, its own, or ImageNet's; and change that where asked.

    The network stays unchanged.
    """
    known = isinstance(model, Classifier)
    if known and preprocess is None and labels is None and not change:
        return model  # type: ignore[no-any-return]
    network = model.network if known else model
    view = change.apply(model.view) if known and preprocess is None else _find_view(network, preprocess, change)
    names = labels if labels is not None else getattr(model, "labels", None)
    wrapped = network if isinstance(network, nn.Module) else Function(network)
    return Classifier(wrapped, view, name or type(network).__name__, names)


def _find_view(network: Any, preprocess: Callable[..., Any] | None, change: ViewChange) -> View:
    function = getattr(network, "preprocess", None) if preprocess is None else preprocess
    if function is not None:
        if not callable(function):
            raise TypeError(
                f"preprocess must be a function from a PIL image to a tensor, got {type(function).__name__}"
            )
        return change.apply(view_from_function(function))
    config = getattr(network, "pretrained_cfg", None)
    return change.apply(timm_view(config)) if config else _guess_view(network, change)


def _guess_view(network: Any, change: ViewChange) -> View:
    """As given, as a Hugging Face configuration says, or ImageNet's; a warning names what was guessed."""
    size = getattr(getattr(network, "config", None), "image_size", None)
    told = change.height_width or ViewChange(size if isinstance(size, int | list | tuple) else None).height_width
    guessed = [] if told else ["size (224 x 224)"]
    guessed += [name for name in ("mean", "std") if getattr(change, name) is None]
    if guessed:
        log.warning(
            "the model does not say what its input is: taking ImageNet's %s; tell it by preprocess=, by an attribute "
            "`preprocess` of the model, or on the command line by --size, --mean and --std",
            ", ".join(guessed),
        )
    base = CentreCrop(told, told) if told else CentreCrop()
    return ViewChange(mean=change.mean, std=change.std).apply(base)


def view_from_function(function: Callable[[Image.Image], Any]) -> View:
    """The view that a preprocessing function amounts to; mean and std are read off a black and a white picture."""
    if all(hasattr(function, name) for name in ("crop_size", "resize_size", "mean", "std", "interpolation")):
        return torchvision_view(function)
    low, high = (check_preprocessed(function(Image.new("RGB", (256, 256), colour))) for colour in ("black", "white"))
    height, width = low.shape[1:]
    span = (high - low)[:, height // 2, width // 2].double()
    if not bool((span > 0).all()):
        raise ValueError(
            "preprocess must be v -> (v - mean) / std in every channel, got one that does not map white above "
            "black; leave standardisation by each image's own statistics out of it"
        )
    mean = (-low[:, height // 2, width // 2].double() / span).tolist()
    return FunctionView(function, (height, width), tuple(mean), tuple((1 / span).tolist()))
