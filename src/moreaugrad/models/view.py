"""What a network sees of a picture: its size, its crop and its normalisation. Knows no network."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import torch
from jaxtyping import Float
from PIL import Image
from torch import Tensor

Values = tuple[float, ...]  # one per channel

FILTERS = {
    "nearest": Image.Resampling.NEAREST,
    "bilinear": Image.Resampling.BILINEAR,
    "bicubic": Image.Resampling.BICUBIC,
    "lanczos": Image.Resampling.LANCZOS,
}


class View(Protocol):
    """The way from an upright RGB picture to the tensor of a network: (v - mean) / std, v in [0, 1]."""

    @property
    def size(self) -> tuple[int, int]: ...  # height, width

    @property
    def mean(self) -> Values: ...

    @property
    def std(self) -> Values: ...

    def crop(self, picture: Image.Image) -> Image.Image:
        """The part of the picture that the network sees, at its size: 8-bit RGB."""
        ...

    def tensor(self, picture: Image.Image) -> Float[Tensor, "c h w"]: ...


@dataclass(frozen=True, slots=True)
class CentreCrop:
    """Resize to a box, cut out the centre, normalise: what nearly all published weights expect.

    `fit`: cover fills the box and keeps the proportions, squash ignores them, contain adds borders.
    """

    size: tuple[int, int] = (224, 224)
    box: tuple[int, int] = (256, 256)  # height and width before the cut
    mean: Values = (0.485, 0.456, 0.406)
    std: Values = (0.229, 0.224, 0.225)
    filter: Image.Resampling = Image.Resampling.BICUBIC
    fit: str = "cover"

    def crop(self, picture: Image.Image) -> Image.Image:
        width, height = self._scaled(*picture.size)
        small = picture.resize((width, height), self.filter)
        top, left = _start(height, self.size[0]), _start(width, self.size[1])
        return self._cut(small, left, top)

    def tensor(self, picture: Image.Image) -> Float[Tensor, "c h w"]:
        seen = self.crop(picture)
        pixels = np.asarray(seen.convert("L") if len(self.mean) == 1 else seen)
        values = torch.tensor(pixels).view(*self.size, -1).permute(2, 0, 1).float() / 255
        return ((values - per_channel(self.mean)) / per_channel(self.std)).contiguous()

    def _scaled(self, width: int, height: int) -> tuple[int, int]:
        if self.fit == "squash":
            return self.box[1], self.box[0]
        if self.fit == "contain":
            factor = min(self.box[0] / height, self.box[1] / width)
            return round(width * factor), round(height * factor)
        if self.box[0] * width <= self.box[1] * height:  # whole numbers, rounded down: as torchvision does
            return self.box[1], max(self.box[0], self.box[1] * height // width)
        return max(self.box[1], self.box[0] * width // height), self.box[0]

    def _cut(self, small: Image.Image, left: int, top: int) -> Image.Image:
        fill = tuple(round(255 * value) for value in self.mean) if self.fit == "contain" else (0, 0, 0)
        canvas = Image.new("RGB", (self.size[1], self.size[0]), fill if len(fill) == 3 else fill * 3)
        canvas.paste(small, (-left, -top))
        return canvas


@dataclass(frozen=True, slots=True)
class OwnView:
    """The user's own function from picture to tensor, used as it is.

    Its mean and std are read off the tensors of a black and of a white picture.
    """

    function: Callable[[Image.Image], Any]
    size: tuple[int, int]
    mean: Values
    std: Values

    def crop(self, picture: Image.Image) -> Image.Image:
        values = self.tensor(picture).cpu() * per_channel(self.std) + per_channel(self.mean)
        pixels = (values * 255).round().clamp(0, 255).byte().permute(1, 2, 0).numpy()
        return Image.fromarray(np.repeat(pixels, 3, axis=2) if pixels.shape[2] == 1 else pixels[:, :, :3].copy())

    def tensor(self, picture: Image.Image) -> Float[Tensor, "c h w"]:
        return _as_tensor(self.function(picture))


def per_channel(values: Values) -> Float[Tensor, "c 1 1"]:
    return torch.tensor(values, dtype=torch.float32).view(-1, 1, 1)


def view_of(function: Callable[[Image.Image], Any]) -> View:
    """The view that a preprocessing function amounts to."""
    if all(hasattr(function, name) for name in ("crop_size", "resize_size", "mean", "std", "interpolation")):
        return of_torchvision(function)
    low, high = (_as_tensor(function(Image.new("RGB", (256, 256), colour))) for colour in ("black", "white"))
    height, width = low.shape[1:]
    span = (high - low)[:, height // 2, width // 2].double()
    if not bool((span > 0).all()):
        raise ValueError(
            "preprocess must be v -> (v - mean) / std in every channel, got one that does not map white above "
            "black; leave standardisation by each image's own statistics out of it"
        )
    mean = (-low[:, height // 2, width // 2].double() / span).tolist()
    return OwnView(function, (height, width), tuple(mean), tuple((1 / span).tolist()))


def of_torchvision(preset: Any) -> CentreCrop:
    """torchvision's own preset for a set of weights."""
    size, box = (tuple(preset.crop_size * 2)[:2], tuple(preset.resize_size * 2)[:2])
    chosen = FILTERS[preset.interpolation.value]
    return CentreCrop(size, box, tuple(preset.mean), tuple(preset.std), chosen)


def of_timm(config: Mapping[str, Any]) -> CentreCrop:
    """timm's `pretrained_cfg`."""
    height, width = config["input_size"][1:]
    share = config.get("crop_pct") or 0.875
    fits = {"squash": "squash", "border": "contain"}
    return CentreCrop(
        (height, width),
        (int(height / share), int(width / share)),
        tuple(config["mean"]),
        tuple(config["std"]),
        FILTERS.get(config.get("interpolation", "bicubic"), Image.Resampling.BICUBIC),
        fits.get(config.get("crop_mode") or "center", "cover"),
    )


def _start(length: int, wanted: int) -> int:
    """Where the centre begins; negative where it must be padded. Rounded as torchvision does."""
    return round((length - wanted) / 2) if length >= wanted else -((wanted - length) // 2)


def _as_tensor(found: Any) -> Tensor:
    if isinstance(found, Tensor) and found.ndim == 4 and len(found) == 1:
        found = found[0]
    if not isinstance(found, Tensor) or found.ndim != 3 or not found.is_floating_point():
        came = f"shape {tuple(found.shape)}, {found.dtype}" if isinstance(found, Tensor) else type(found).__name__
        raise TypeError(f"preprocess must turn a PIL image into a float tensor (C, H, W), got {came}")
    return found.detach()
