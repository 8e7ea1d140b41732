"""Published classifiers of timm, torchvision and the Hugging Face hub, each with its own preprocessing."""

from __future__ import annotations

from collections.abc import Mapping
from difflib import get_close_matches
from functools import partial
from pathlib import Path
from typing import Any, cast

import torch
from PIL import Image
from torch import nn

from moreaugrad.models.checkpoint import RANDOM, WeightsUnavailableError, build_network, downloading, read_state
from moreaugrad.models.classifier import CentreCrop, Classifier
from moreaugrad.models.labels import imagenet_labels
from moreaugrad.registry import UnknownNameError

WITHOUT_CODE = {"trust_remote_code": False}  # of a repository; without it transformers asks whoever sits there


def timm_model(name: str, weights: str | Path | None = None, labels: list[str] | None = None) -> Classifier:
    import timm

    short = name.removeprefix("timm/")
    if not timm.is_model(short.partition(".")[0]):
        raise _unknown_model(name, [f"timm/{known}" for known in timm.list_models()])
    network: Any
    if weights is None:
        if not timm.is_model_pretrained(short):
            raise WeightsUnavailableError(name, "timm has none for it")
        with downloading(name):
            network = timm.create_model(short, pretrained=True)
    else:
        network = build_network(partial(timm.create_model, short), weights, labels)
    classes = network.num_classes if weights != RANDOM else 0
    return Classifier(network, timm_view(network.pretrained_cfg), name, labels or imagenet_labels(classes))


def torchvision_model(name: str, weights: str | Path | None = None, labels: list[str] | None = None) -> Classifier:
    from torchvision import models

    short = name.removeprefix("torchvision/")
    known = models.list_models(module=models)
    if short not in known:
        raise _unknown_model(name, [f"torchvision/{each}" for each in known])
    published = models.get_model_weights(short).DEFAULT
    network: nn.Module
    if weights is None:
        stored = Path(torch.hub.get_dir(), "checkpoints", published.url.rpartition("/")[2]).is_file()
        with downloading(name, published.url, cached=stored):
            published.get_state_dict(progress=True, check_hash=True, weights_only=True)  # the next line would unpickle
            network = models.get_model(short, weights=published)
    else:  # two networks warn about their slow initial weights unless asked for them
        quiet = {"init_weights": True} if short in ("googlenet", "inception_v3") else {}
        network = build_network(partial(models.get_model, short, **quiet), weights, labels)
    names = labels or (list(published.meta["categories"]) if weights is None else None)
    return Classifier(network, torchvision_view(published.transforms()), name, names)


def hugging_face_model(name: str, weights: str | Path | None = None, labels: list[str] | None = None) -> Classifier:
    """A classifier of the hub, or of a local folder in its format (`hf/./folder`)."""
    try:
        from transformers import AutoConfig, AutoImageProcessor, AutoModelForImageClassification
    except ImportError:
        raise ValueError(
            f"model {name!r} needs the package transformers, got an installation without it; pip install moreaugrad[hf]"
        ) from None
    short = name.removeprefix("hf/")
    with downloading(name, cached=Path(short).is_dir()):
        config = AutoConfig.from_pretrained(short, **WITHOUT_CODE)
        view = processor_view(AutoImageProcessor.from_pretrained(short, **WITHOUT_CODE))
        if weights is None:
            network: nn.Module = AutoModelForImageClassification.from_pretrained(short, **WITHOUT_CODE)
    if weights is not None:
        if labels:
            config.num_labels = len(labels)
        made = AutoModelForImageClassification.from_config(config)
        network = made if weights == RANDOM else _load_hugging_face(made, config, weights)
    names = [str(config.id2label[index]) for index in range(len(config.id2label))]
    return Classifier(network, view, name, labels or (None if weights == RANDOM else names))


def timm_view(config: Mapping[str, Any]) -> CentreCrop:
    """The preprocessing that timm's `pretrained_cfg` describes."""
    height, width = config["input_size"][1:]
    share = config.get("crop_pct") or 0.875
    box = int(height / share), int(width / share)
    chosen = getattr(Image.Resampling, config.get("interpolation", "bicubic").upper(), Image.Resampling.BICUBIC)
    fit = {"squash": "squash", "border": "contain"}.get(config.get("crop_mode") or "center", "cover")
    return CentreCrop((height, width), box, tuple(config["mean"]), tuple(config["std"]), chosen, fit)


def torchvision_view(preset: Any) -> CentreCrop:
    """The preprocessing of torchvision's preset for a set of weights."""
    size, box = (tuple(preset.crop_size * 2)[:2], tuple(preset.resize_size * 2)[:2])
    chosen = Image.Resampling[preset.interpolation.name]
    return CentreCrop(size, box, tuple(preset.mean), tuple(preset.std), chosen)


def processor_view(processor: Any) -> CentreCrop:
    """The preprocessing that a Hugging Face image processor describes."""
    box = size = _height_width(processor.size)
    fit = "cover" if "shortest_edge" in dict(processor.size) else "squash"
    if getattr(processor, "do_center_crop", False):
        size = _height_width(processor.crop_size)
    share = getattr(processor, "crop_pct", None)
    if share and box[0] < 384:  # ConvNeXt: enlarge and cut; from 384 on: squash
        box = (int(box[0] / share), int(box[1] / share))
    elif share:
        fit = "squash"
    plain = not getattr(processor, "do_normalize", True)
    mean, std = ((0.0,) * 3, (1.0,) * 3) if plain else (tuple(processor.image_mean), tuple(processor.image_std))
    return CentreCrop(size, box, mean, std, Image.Resampling(int(processor.resample)), fit)


def _height_width(size: Any) -> tuple[int, int]:
    """{"height", "width"} or {"shortest_edge"}."""
    known = dict(size)
    edge = known.get("shortest_edge")
    return (int(edge), int(edge)) if edge else (int(known["height"]), int(known["width"]))


def _load_hugging_face(network: Any, config: Any, weights: str | Path) -> nn.Module:
    """By the library's own loader, which knows the names that files of older versions use."""
    found, report = type(network).from_pretrained(
        None, config=config, state_dict=read_state(weights), output_loading_info=True
    )
    wrong = {what: [str(name) for name in list(names)[:3]] for what, names in report.items() if names}
    if wrong:
        raise ValueError(
            f"weights must fit the model, got {str(weights)!r} with {wrong}; give the model that was trained"
        )
    return cast(nn.Module, found)


def _unknown_model(name: str, known: list[str]) -> UnknownNameError:
    """Without the list of known names: it has hundreds."""
    close = get_close_matches(name, known, n=3)
    hint = f" Did you mean {' or '.join(map(repr, close))}?" if close else ""
    every = f"the {len(known)} classifiers of {name.partition('/')[0]}"
    return UnknownNameError(f"model must be one of {every}, got {name!r}.{hint}")
