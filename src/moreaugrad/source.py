"""What was explained: the inputs, the photos they were made from, the names of the classes. Enough to draw a map."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image
from torch import Tensor

from moreaugrad.batch import join_rows

Region = tuple[float, float, float, float]  # left, top, right, bottom
Labels = Sequence[str] | Mapping[int, str]


@dataclass(frozen=True, eq=False, kw_only=True)
class Photo:
    """A photo that was explained, and the part of it that the network saw.

    The original is read again when it is drawn, so that a long list of large photos costs no memory.
    """

    size: tuple[int, int]  # width and height of the upright original
    region: Region | None = None  # what the network saw, in pixels of the original; None: not known
    crop: Image.Image | None = None  # the same as 8-bit RGB, of the size of the input
    read: Callable[[], Image.Image] | None = None  # the upright original
    file: Path | None = None  # where it is


@dataclass(frozen=True, eq=False, kw_only=True)
class InputSource:
    """The inputs of a batch of N, by reference, with what it takes to draw and name them."""

    inputs: tuple[Tensor, ...]  # (N, ...) each, as the network saw them; 8-bit RGB once they were stored
    photos: tuple[Photo, ...] = ()  # one per image, or none
    labels: Labels | None = None  # name of each class
    box: tuple[Tensor, Tensor] | None = None  # what black and white are in each channel, (C, 1, 1)
    view: Any = None  # from a photo to an input; not pickled: it may be a function of the user

    @classmethod
    def of(cls, inputs: tuple[Tensor, ...], model: Any) -> InputSource:
        """The inputs, and what the model says about them."""
        labels, box, view = (getattr(model, name, None) for name in ("labels", "box", "view"))
        return cls(
            inputs=tuple(each.detach() for each in inputs),
            labels=labels if isinstance(labels, list | tuple | Mapping) else None,
            box=box if isinstance(box, tuple) and all(isinstance(each, Tensor) for each in box) else None,
            view=view if hasattr(view, "region") else None,
        )

    def __getstate__(self) -> dict[str, Any]:
        return vars(self) | {"view": None}

    def label(self, target: Any) -> str | None:
        """The name of a class, where it has one."""
        if self.labels is None or not isinstance(target, int):
            return None
        if isinstance(self.labels, Mapping):
            return self.labels.get(target)
        return str(self.labels[target]) if -len(self.labels) <= target < len(self.labels) else None

    @classmethod
    def join(cls, parts: Sequence[InputSource]) -> InputSource:
        """The source of several batches; photos and names where all parts have them."""
        given, photos = parts, tuple(photo for each in parts for photo in each.photos)
        kinds = {tuple((each.shape[1:], each.dtype) for each in part.inputs) for part in parts}
        if len(kinds) > 1:  # of a file, in 8 bits, beside fresh ones
            parts = [cls.restore(each.store([])["source"], each.store([])["source_inputs"]) for each in parts]
            parts = [replace(part, labels=each.labels) for part, each in zip(parts, given, strict=True)]
        inputs = join_rows([each.inputs for each in parts])
        same = all(each.labels == parts[0].labels for each in parts)
        whole = len(photos) == len(inputs[0])
        return replace(
            parts[0], inputs=inputs, photos=photos if whole else (), labels=parts[0].labels if same else None
        )

    def take(self, rows: slice) -> InputSource:
        """The source of some of the images."""
        return replace(self, inputs=tuple(each[rows] for each in self.inputs), photos=self.photos[rows])

    def to(self, device: torch.device | str) -> InputSource:
        """A copy with the inputs on another device."""
        box = None if self.box is None else (self.box[0].to(device), self.box[1].to(device))
        return replace(self, inputs=tuple(each.to(device) for each in self.inputs), box=box)

    def picture(self, part: int, index: int) -> NDArray[Any]:
        """One image as RGB in [0, 1], (H, W, 3), or the frames of a film, (T, H, W, 3)."""
        if part == 0 and self.photos and (crop := self.photos[index].crop) is not None:
            return np.asarray(crop.convert("RGB")) / 255
        return to_rgb(self.inputs[part][index], self.box if len(self.inputs) == 1 else None)

    def store(self, targets: Sequence[Any]) -> dict[str, Any]:
        """For a file: pictures in 8 bits, other inputs as they are, and the names of the classes in `targets`."""
        labels = {target: name for target in targets if (name := self.label(target)) is not None}
        photos = [{"size": each.size, "region": each.region} for each in self.photos]
        pictures = tuple(self._store_part(i) for i in range(len(self.inputs)))
        return {"source": {"labels": labels, "photos": photos}, "source_inputs": pictures}

    def _store_part(self, part: int) -> Tensor:
        inputs = self.inputs[part]
        if inputs.ndim not in (4, 5):
            return inputs
        every = np.stack([self.picture(part, i) for i in range(len(inputs))])
        return torch.from_numpy(np.rint(255 * every).astype(np.uint8)).movedim(-1, 1)

    @classmethod
    def restore(cls, plain: Mapping[str, Any], inputs: tuple[Tensor, ...]) -> InputSource:
        """What `store` stored."""
        labels = {int(target): name for target, name in plain["labels"].items()}
        return cls(inputs=inputs, labels=labels, photos=tuple(Photo(**each) for each in plain["photos"]))


def to_rgb(values: Tensor, box: tuple[Tensor, Tensor] | None = None) -> NDArray[np.float64]:
    """An input (C, ...) as RGB (..., 3) in [0, 1]: by the model's box, else as it is or scaled to its own range.

    Four channels show their first three; two, or more than four, their mean.
    """
    found = values.detach().cpu().double()
    channels = len(found)
    fits = box is not None and {each.numel() for each in box} <= {1, channels}
    if values.dtype == torch.uint8:
        found = found / 255
    elif box is not None and fits:
        low, high = (each.detach().cpu().double().reshape(-1, *[1] * (found.ndim - 1)) for each in box)
        found = (found - low) / (high - low)
    found = found[:3] if channels in (3, 4) else found.mean(0, keepdim=True).expand(3, *found.shape[1:])
    low, high = found.min(), found.max()
    if not fits and not 0 <= float(low) <= float(high) <= 1:
        found = (found - low) / (high - low).clamp_min(1e-300)
    return np.asarray(found.movedim(0, -1).clamp(0, 1).numpy())


def describe_channels(channels: int) -> str:
    """Which channels of an input a picture shows, in words; nothing where it shows all."""
    if channels in (1, 3):
        return ""
    return "channels 1 to 3 of 4" if channels == 4 else f"mean of {channels} channels"
