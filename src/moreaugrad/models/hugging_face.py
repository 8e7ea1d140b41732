"""Image classifiers of the Hugging Face hub, or of a local folder in its format (`hf/./folder`)."""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast

from PIL import Image
from torch import nn

from moreaugrad.models.checkpoint import RANDOM, from_afar, hub, read_state
from moreaugrad.models.classifier import Classifier
from moreaugrad.models.view import CentreCrop


def hugging_face_model(name: str, weights: str | Path | None = None, labels: list[str] | None = None) -> Classifier:
    try:
        from transformers import AutoConfig, AutoImageProcessor, AutoModelForImageClassification
    except ImportError:
        raise ValueError(
            f"model {name!r} needs the package transformers, got an installation without it; pip install moreaugrad[hf]"
        ) from None
    short = name.removeprefix("hf/")
    with from_afar(name, hub(), cached=Path(short).is_dir()):
        config = AutoConfig.from_pretrained(short)
        view = of_processor(AutoImageProcessor.from_pretrained(short))
        if weights is None:
            network: nn.Module = AutoModelForImageClassification.from_pretrained(short)
    if weights is not None:
        if labels:
            config.num_labels = len(labels)
        network = _filled(AutoModelForImageClassification.from_config(config), config, weights)
    names = [str(config.id2label[index]) for index in range(len(config.id2label))]
    return Classifier(network, view, name, labels or (None if weights == RANDOM else names))


def _filled(network: Any, config: Any, weights: str | Path) -> nn.Module:
    """By the library's own loader, which knows the names that files of older versions use."""
    if weights == RANDOM:
        return cast(nn.Module, network)
    found, told = type(network).from_pretrained(
        None, config=config, state_dict=read_state(weights), output_loading_info=True
    )
    wrong = {what: [str(name) for name in list(names)[:3]] for what, names in told.items() if names}
    if wrong:
        raise ValueError(
            f"weights must fit the model, got {str(weights)!r} with {wrong}; give the model that was trained"
        )
    return cast(nn.Module, found)


def of_processor(processor: Any) -> CentreCrop:
    """The view that a Hugging Face image processor describes."""
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
    if known.get("shortest_edge"):
        return int(known["shortest_edge"]), int(known["shortest_edge"])
    return int(known["height"]), int(known["width"])
