"""The user's own code: `package.module:factory`, or a module that is already there."""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import Any

from torch import nn

from moreaugrad.models.checkpoint import RANDOM, fill
from moreaugrad.models.classifier import Classifier
from moreaugrad.models.view import CentreCrop, View, of_timm, view_of

log = logging.getLogger("moreaugrad")


class Function(nn.Module):
    """A plain callable as a module."""

    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__()
        self.function = function

    def forward(self, *inputs: Any) -> Any:
        return self.function(*inputs)


def custom_model(name: str, weights: str | Path | None = None, labels: list[str] | None = None) -> Classifier:
    model = as_classifier(_made(name), name=name, labels=labels)
    if weights is not None and weights != RANDOM:
        fill(model.network, weights)
    return model


def as_classifier(
    model: Any,
    preprocess: Callable[..., Any] | None = None,
    name: str | None = None,
    labels: list[str] | None = None,
) -> Classifier:
    """A network or callable with a way in for pictures: `preprocess`, its own, or ImageNet's. Changes nothing in it."""
    if isinstance(model, Classifier) and preprocess is None and labels is None:
        return model
    network = model.network if isinstance(model, Classifier) else model
    view = model.view if isinstance(model, Classifier) and preprocess is None else _view(network, preprocess)
    names = labels if labels is not None else getattr(model, "labels", None)
    wrapped = network if isinstance(network, nn.Module) else Function(network)
    return Classifier(wrapped, view, name or type(network).__name__, names)


def _view(network: Any, preprocess: Callable[..., Any] | None) -> View:
    function = preprocess or getattr(network, "preprocess", None)
    if function is not None:
        if not callable(function):
            raise TypeError(
                f"preprocess must be a function from a PIL image to a tensor, got {type(function).__name__}"
            )
        return view_of(function)
    config = getattr(network, "pretrained_cfg", None)
    if config:
        return of_timm(config)
    log.warning(
        "the model says nothing about its input: taking ImageNet's (224 x 224, its mean and std); "
        "give the model an attribute `preprocess`, or pass preprocess="
    )
    return CentreCrop()


def _made(name: str) -> Any:
    """What the factory makes: a module, a Classifier, or a callable."""
    place, _, factory = name.partition(":")
    with _here_importable():
        try:
            found: Any = import_module(place)
            for part in factory.split("."):
                found = getattr(found, part)
            made: Any = found if isinstance(found, nn.Module) else found()
        except Exception as error:
            raise ValueError(
                f"model {name!r} must name a function of an importable module that makes the network, got "
                f"{type(error).__name__}: {error}; modules are looked for in the current directory as well"
            ) from error
    if not isinstance(made, nn.Module):
        raise TypeError(f"model {name!r} must make a torch.nn.Module, got {type(made).__name__}")
    return made


@contextmanager
def _here_importable() -> Iterator[None]:
    here = str(Path.cwd())
    sys.path.insert(0, here)
    try:
        yield
    finally:
        if here in sys.path:
            sys.path.remove(here)
