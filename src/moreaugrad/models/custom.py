"""Models from outside the package: `package.module:factory`, or a module or callable that is already there."""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable
from importlib import import_module
from operator import attrgetter
from pathlib import Path
from typing import Any

from PIL import Image
from torch import nn

from moreaugrad.models.classifier import CentreCrop, Classifier, FunctionView, View, check_preprocessed
from moreaugrad.models.hubs import timm_view, torchvision_view

log = logging.getLogger("moreaugrad")


class Function(nn.Module):
    """A plain callable as a module."""

    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__()
        self.function = function

    def forward(self, *inputs: Any) -> Any:
        return self.function(*inputs)


def custom_model(name: str) -> nn.Module:
    """Call the function `package.module:factory`, which must make a module."""
    place, _, factory = name.partition(":")
    here = str(Path.cwd())
    sys.path.insert(0, here)
    try:
        found: Any = attrgetter(factory)(import_module(place))
        made: nn.Module = found if isinstance(found, nn.Module) else found()
    except Exception as error:
        raise ValueError(
            f"model {name!r} must name a function of an importable module that makes the network, got "
            f"{type(error).__name__}: {error}; modules are looked for in the current directory as well"
        ) from error
    finally:
        if here in sys.path:
            sys.path.remove(here)
    return made


def as_classifier(
    model: Any,
    preprocess: Callable[..., Any] | None = None,
    name: str | None = None,
    labels: list[str] | None = None,
) -> Classifier:
    """Give a network or callable a preprocessing: `preprocess`, its own, or ImageNet's. The network stays unchanged."""
    known = isinstance(model, Classifier)
    if known and preprocess is None and labels is None:
        return model  # type: ignore[no-any-return]
    network = model.network if known else model
    view = model.view if known and preprocess is None else _find_view(network, preprocess)
    names = labels if labels is not None else getattr(model, "labels", None)
    wrapped = network if isinstance(network, nn.Module) else Function(network)
    return Classifier(wrapped, view, name or type(network).__name__, names)


def _find_view(network: Any, preprocess: Callable[..., Any] | None) -> View:
    function = preprocess or getattr(network, "preprocess", None)
    if function is not None:
        if not callable(function):
            raise TypeError(
                f"preprocess must be a function from a PIL image to a tensor, got {type(function).__name__}"
            )
        return view_from_function(function)
    config = getattr(network, "pretrained_cfg", None)
    if config:
        return timm_view(config)
    log.warning(
        "the model says nothing about its input: taking ImageNet's (224 x 224, its mean and std); "
        "give the model an attribute `preprocess`, or pass preprocess="
    )
    return CentreCrop()


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
