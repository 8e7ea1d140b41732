"""Published classifiers of timm and torchvision by name, each with its own preprocessing."""

from __future__ import annotations

from collections.abc import Callable
from difflib import get_close_matches
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import nn

from moreaugrad.models.checkpoint import RANDOM, WeightsUnavailableError, built, from_afar, hub, unreachable
from moreaugrad.models.classifier import Classifier
from moreaugrad.models.labels import imagenet
from moreaugrad.models.view import of_timm, of_torchvision
from moreaugrad.registry import UnknownNameError


def timm_model(name: str, weights: str | Path | None = None, labels: list[str] | None = None) -> Classifier:
    import timm

    short = name.removeprefix("timm/")
    if not timm.is_model(short.partition(".")[0]):
        raise unknown_model(name, [f"timm/{known}" for known in timm.list_models()])
    network: Any
    if weights is None:
        if not timm.is_model_pretrained(short):
            raise WeightsUnavailableError(name, "timm has none for it")
        with from_afar(name, hub()):
            network = timm.create_model(short, pretrained=True)
    else:
        network = built(partial(timm.create_model, short), weights, labels)
    classes = network.num_classes if weights != RANDOM else 0
    return Classifier(network, of_timm(network.pretrained_cfg), name, labels or imagenet(classes))


def torchvision_model(name: str, weights: str | Path | None = None, labels: list[str] | None = None) -> Classifier:
    from torchvision import models

    short = name.removeprefix("torchvision/")
    known = models.list_models(module=models)
    if short not in known:
        raise unknown_model(name, [f"torchvision/{each}" for each in known])
    published = models.get_model_weights(short).DEFAULT
    make: Callable[..., nn.Module] = partial(models.get_model, short, **_quiet(short))
    if weights is None:
        network = _downloaded(name, published, partial(models.get_model, short))
    else:
        network = built(make, weights, labels)
    names = labels or (list(published.meta["categories"]) if weights is None else None)
    return Classifier(network, of_torchvision(published.transforms()), name, names)


def unknown_model(name: str, known: list[str]) -> UnknownNameError:
    """Without the list of known names: it has hundreds."""
    close = get_close_matches(name, known, n=3)
    hint = f" Did you mean {' or '.join(map(repr, close))}?" if close else ""
    source = name.partition("/")[0]
    return UnknownNameError(f"model must be one of the {len(known)} classifiers of {source}, got {name!r}.{hint}")


def _downloaded(name: str, published: Any, make: Callable[..., nn.Module]) -> nn.Module:
    file = Path(torch.hub.get_dir(), "checkpoints", published.url.rpartition("/")[2])
    why = None if file.is_file() else unreachable(published.url)
    if why:
        raise WeightsUnavailableError(name, why)
    with from_afar(name, published.url, cached=True):
        return make(weights=published)


def _quiet(short: str) -> dict[str, bool]:
    """Two networks warn about their slow initial weights unless told."""
    return {"init_weights": True} if short in ("googlenet", "inception_v3") else {}
