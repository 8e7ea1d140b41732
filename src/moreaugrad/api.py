"""Items -> Records: the one path of the function, the command line and every other front end.

A bad item becomes a record with an error, and the others go on. Writes no file.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from time import perf_counter
from typing import Any

import torch
from PIL import Image
from torch import Tensor, nn

from moreaugrad import validate
from moreaugrad.cli.method_options import make_method
from moreaugrad.data.images import read_image
from moreaugrad.methods.base import Method
from moreaugrad.models import load_model
from moreaugrad.models.classifier import Classifier
from moreaugrad.models.custom import as_classifier
from moreaugrad.results import Explanation
from moreaugrad.types import Item, Target, Watch, ignore_progress


@dataclass(frozen=True, slots=True)
class Record:
    """What became of one item: an explanation of one image, or an error."""

    key: str
    target: int | None = None
    label: str | None = None
    explanation: Explanation | None = None  # on the CPU
    error: str | None = None
    pixels: Image.Image | None = None  # what the network saw, 8-bit RGB, of the map's size
    seconds: float = 0.0
    lengths: dict[str, float] = field(default_factory=dict)  # in the network's units, and in 8-bit pixel values


@dataclass(frozen=True, eq=False)
class ExplainBatch:
    """Explains pictures with one model and one method. The device is the classifier's."""

    classifier: Classifier
    name: str = "sparse_moreau"
    options: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        _ = self.method  # wrong options are found here, before the first image

    @cached_property
    def method(self) -> Method:
        return make_method(self.name, self.classifier, self.options)

    def __call__(self, items: Sequence[Item], watch: Watch = ignore_progress) -> list[Record]:
        """One record per item, in their order. Images of one size are explained together."""
        found: dict[int, Record] = {}
        groups: dict[Any, list[tuple[int, Item, Tensor]]] = {}
        for place, item in enumerate(items):
            try:
                x = self.classifier.preprocess(item.pixels)
                groups.setdefault((x.shape, item.target is None), []).append((place, item, x))
            except Exception as error:
                found[place] = Record(item.key, error=said(error))
        for members in groups.values():
            places, alike, xs = zip(*members, strict=True)
            found |= zip(places, self._together(alike, xs, watch), strict=True)
        return [found[place] for place in range(len(items))]

    def read_and_explain(
        self, sources: Sequence[tuple[str, Any]], target: int | None = None, watch: Watch = ignore_progress
    ) -> list[Record]:
        """The same from keys and files (or PIL images, or arrays)."""
        found: dict[str, Record] = {}
        items = []
        for key, source in sources:
            try:
                items.append(Item(key, read_image(source), target))
            except Exception as error:
                found[key] = Record(key, error=said(error))
        found |= {record.key: record for record in self(items, watch)}
        return [found[key] for key, _ in sources]

    def _together(self, items: Sequence[Item], xs: Sequence[Tensor], watch: Watch) -> list[Record]:
        try:
            return self._explained(items, torch.stack(list(xs)), watch)
        except Exception as error:
            if len(items) == 1:
                return [Record(items[0].key, error=said(error))]
        # one of them spoiled it for all: find out which
        return [self._together([item], [x], watch)[0] for item, x in zip(items, xs, strict=True)]

    def _explained(self, items: Sequence[Item], x: Tensor, watch: Watch) -> list[Record]:
        start = perf_counter()
        targets = None if items[0].target is None else [int(item.target or 0) for item in items]
        whole = self.method.explain(x, targets, callback=watch).cpu()
        seconds = (perf_counter() - start) / len(items)
        records = []
        for item, one, row in zip(items, whole, x, strict=True):
            target = int(one.target[0]) if isinstance(one.target, Tensor) else None
            label = None if target is None else self.classifier.label(target)
            seen = self.classifier.crop(item.pixels)
            lengths = self._lengths(row[None], one)
            records.append(Record(item.key, target, label, one, None, seen, seconds, lengths))
        return records

    def _lengths(self, x: Tensor, one: Explanation) -> dict[str, float]:
        """Noise and displacement in the network's units, and as differences of 8-bit pixel values."""
        pixel = 255 * self.classifier.std.cpu()
        found: dict[str, float] = {}
        if self.method.noise is not None:
            sigma = float(self.method.noise.scale(x).max())
            found |= {"sigma": sigma, "sigma_8bit": sigma * float(pixel.mean())}
        if isinstance(one.delta, Tensor):
            delta = one.delta[0]
            found |= {"delta_norm": float(delta.norm()), "delta_norm_8bit": float((delta * pixel).norm())}
        return found


def explain(
    model: str | nn.Module | Callable[..., Any],
    image: Any,
    method: str = "sparse_moreau",
    *,
    target: Target = None,
    device: str | torch.device | None = None,
    preprocess: Callable[[Image.Image], Tensor] | None = None,
    show_progress: bool = False,
    **options: Any,
) -> Any:
    """The Explanation of one image or of a list of them; without a target of the predicted class of each.

    `model`: a name for `load_model`, a module, or a callable. `image`: a path, a PIL image, an array, or a
    tensor (C, H, W) or (N, C, H, W) that is preprocessed already. `options`: those of the method, and
    `noise_level`, `sigma`, `samples` of its smoothing.
    """
    ready = isinstance(image, Tensor)
    network = load_model(model, device=best_device(device)) if isinstance(model, str) else model
    if not ready:
        network = as_classifier(network, preprocess)
    made = make_method(method, network, options)
    place = _place(network, device)
    x = _batched(image) if ready else _stacked(network, image)
    return made.explain(x if place is None else x.to(place), target, show_progress=show_progress)


def best_device(asked: str | torch.device | None) -> torch.device:
    """As asked; else the GPU where there is one."""
    return validate.device(("cuda" if torch.cuda.is_available() else "cpu") if asked in (None, "auto") else asked)


def said(error: BaseException) -> str:
    """An exception in one line."""
    text = " ".join(str(error).split()) or type(error).__name__
    return text if isinstance(error, ValueError | TypeError | OSError) else f"{type(error).__name__}: {text}"


def _stacked(classifier: Any, image: Any) -> Tensor:
    sources = list(image) if isinstance(image, list | tuple) else [image]
    if not sources:
        raise ValueError("image must be an image or a list of at least one, got an empty list")
    rows = [classifier.preprocess(read_image(source)) for source in sources]
    if len({row.shape for row in rows}) > 1:
        raise ValueError(
            f"the images of a list must have one size after preprocess, got {sorted({tuple(r.shape) for r in rows})}; "
            "explain them one by one"
        )
    return torch.stack(rows)


def _batched(image: Tensor) -> Tensor:
    return image[None] if image.ndim == 3 else image


def _place(network: Any, asked: str | torch.device | None) -> torch.device | None:
    """Where the network is. It is the caller's, and stays there."""
    tensor = next(network.parameters(), next(network.buffers(), None)) if isinstance(network, nn.Module) else None
    if tensor is None:
        return None if asked is None else validate.device(asked)
    if asked is not None and validate.device(asked).type != tensor.device.type:
        raise ValueError(
            f"device must be where the model is, {tensor.device}, got {str(asked)!r}; move it: model.to(...)"
        )
    return tensor.device
