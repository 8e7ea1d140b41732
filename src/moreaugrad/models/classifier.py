"""A network together with the preprocessing of its pictures and the names of its classes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from typing import Any, Protocol

import numpy as np
import torch
from jaxtyping import Float
from PIL import Image
from torch import Tensor, nn

from moreaugrad import limits, validate
from moreaugrad.files import first_line
from moreaugrad.source import Region

Values = tuple[float, ...]  # one per channel
IMAGENET_MEAN: Values = (0.485, 0.456, 0.406)
IMAGENET_STD: Values = (0.229, 0.224, 0.225)


class View(Protocol):
    """The way from an upright RGB picture to the input of a network: (v - mean) / std, v in [0, 1]."""

    @property
    def size(self) -> tuple[int, int]: ...  # height, width

    @property
    def mean(self) -> Values: ...

    @property
    def std(self) -> Values: ...

    def apply(self, picture: Image.Image) -> tuple[Float[Tensor, "c h w"], Image.Image]:
        """The input of the network, and the same part of the picture as 8-bit RGB of that size."""
        ...

    def region(self, size: tuple[int, int]) -> Region | None:
        """The part of a picture of this width and height that the network sees, in its pixels; None: not known.

        It reaches beyond the picture where borders are added.
        """
        ...


MOST_AROUND = 64  # a picture whose resized whole is so many times as large as its cut is cut before it is resized


@dataclass(frozen=True, slots=True)
class CentreCrop:
    """Resize to a box, cut out the centre, normalise: what nearly all published weights expect.

    `fit`: cover fills the box and keeps the proportions, squash ignores them, contain adds borders.
    """

    size: tuple[int, int] = (224, 224)
    box: tuple[int, int] = (256, 256)  # height and width before the cut
    mean: Values = IMAGENET_MEAN
    std: Values = IMAGENET_STD
    filter: Image.Resampling = Image.Resampling.BICUBIC
    fit: str = "cover"

    def apply(self, picture: Image.Image) -> tuple[Float[Tensor, "c h w"], Image.Image]:
        crop = self._crop(picture)
        pixels = np.asarray(crop.convert("L") if len(self.mean) == 1 else crop)
        values = torch.tensor(pixels).view(*self.size, -1).permute(2, 0, 1).float() / 255
        return ((values - per_channel(self.mean)) / per_channel(self.std)).contiguous(), crop

    def region(self, size: tuple[int, int]) -> Region:
        scaled = self._scaled_size(*size)
        starts = [_centre_start(whole, part) for whole, part in zip(scaled, self.size[::-1], strict=True)]
        ends = [start + part for start, part in zip(starts, self.size[::-1], strict=True)]
        across, down = (whole / found for whole, found in zip(size, scaled, strict=True))
        return starts[0] * across, starts[1] * down, ends[0] * across, ends[1] * down

    def _crop(self, picture: Image.Image) -> Image.Image:
        width, height = self._scaled_size(*picture.size)
        fill = tuple(round(255 * value) for value in self.mean) if self.fit == "contain" else (0, 0, 0)
        canvas = Image.new("RGB", (self.size[1], self.size[0]), fill if len(fill) == 3 else fill * 3)
        if self.fit == "cover" and width * height > MOST_AROUND * self.size[0] * self.size[1]:
            return picture.resize(canvas.size, self.filter, self.region(picture.size))  # nothing around the cut
        left, top = _centre_start(width, self.size[1]), _centre_start(height, self.size[0])
        canvas.paste(picture.resize((width, height), self.filter), (-left, -top))
        return canvas

    def _scaled_size(self, width: int, height: int) -> tuple[int, int]:
        if self.fit == "squash":
            return self.box[1], self.box[0]
        if self.fit == "contain":
            factor = min(self.box[0] / height, self.box[1] / width)
            return round(width * factor), round(height * factor)
        if self.box[0] * width <= self.box[1] * height:  # whole numbers, rounded down: as torchvision does
            return self.box[1], max(self.box[0], self.box[1] * height // width)
        return max(self.box[1], self.box[0] * width // height), self.box[0]


@dataclass(frozen=True, slots=True)
class ViewChange:
    """What a user wants otherwise in the preprocessing of a model; None keeps what it has."""

    size: int | Sequence[int] | None = None
    mean: Sequence[float] | None = None
    std: Sequence[float] | None = None

    def __post_init__(self) -> None:
        limits.view(self.size, self.mean, self.std)

    def __bool__(self) -> bool:
        return any(each is not None for each in (self.size, self.mean, self.std))

    @property
    def height_width(self) -> tuple[int, int] | None:
        size = (self.size, self.size) if isinstance(self.size, int) else self.size
        return None if size is None else (int(size[0]), int(size[-1]))

    def apply(self, view: View) -> View:
        """The view with these changes; the box before the cut grows with the size."""
        if not self:
            return view
        if not isinstance(view, CentreCrop):
            raise ValueError(
                "size, mean and std must be left out where the model has a preprocess function of its own, got "
                f"{self}; change that function"
            )
        mean, std = self.mean or view.mean, self.std or view.std
        if len(mean) != len(std):
            raise ValueError(f"mean and std must have one value per channel each, got {mean} and {std}; give both")
        size = self.height_width or view.size
        height, width = (round(box * new / old) for box, new, old in zip(view.box, size, view.size, strict=True))
        return replace(view, size=size, box=(height, width), mean=tuple(mean), std=tuple(std))


@dataclass(frozen=True, slots=True)
class FunctionView:
    """A user's function from picture to tensor; mean and std describe what it does to black and white."""

    function: Callable[[Image.Image], Any]
    size: tuple[int, int]
    mean: Values
    std: Values

    def apply(self, picture: Image.Image) -> tuple[Float[Tensor, "c h w"], Image.Image]:
        x = check_preprocessed(self.function(picture))
        values = x.cpu() * per_channel(self.std) + per_channel(self.mean)
        pixels = (values * 255).round().clamp(0, 255).byte().permute(1, 2, 0).numpy()
        colours = pixels[:, :, :3].copy() if pixels.shape[2] >= 3 else np.repeat(pixels[:, :, :1], 3, axis=2)
        return x, Image.fromarray(colours)

    def region(self, size: tuple[int, int]) -> None:
        """A function does not tell."""


class Classifier(nn.Module):
    """A network that knows how to preprocess pictures and what its classes are called.

    The call gives logits for inputs in the network's own, normalised space:
    `preprocess(picture) = (crop(picture) / 255 - mean) / std`. `mg.load_model` makes one.

    Args:
        network: module from images (N, C, H, W) to logits (N, classes), or to an object with `.logits`; anything else
            that it returns is for methods with `output=` or a `score` function.
        view: resizing, cropping and normalisation of pictures, such as `CentreCrop(size=(224, 224))`.
        name: what reports call the model.
        labels: name of each class, in the order of the outputs.

    Example:
        >>> model = mg.load_model("resnet18_softplus", weights="random")
        >>> model.size, model.label(3)
        ((32, 32), 'cat')
        >>> model(torch.rand(2, 3, 32, 32)).shape
        torch.Size([2, 10])
    """

    def __init__(self, network: nn.Module, view: View, name: str, labels: Sequence[str] | None = None) -> None:
        super().__init__()
        if not isinstance(network, nn.Module):
            raise TypeError(f"network must be a torch.nn.Module, got {network!r}")
        if not callable(getattr(view, "apply", None)):
            raise TypeError(f"view must prepare pictures, as CentreCrop(size=(224, 224)) does, got {view!r}")
        if labels is not None and (not isinstance(labels, Sequence) or isinstance(labels, str)):
            raise TypeError(f"labels must be a list with the name of each class, got {labels!r}")
        self.network = network
        self.view = view
        self.name = name
        self.labels = None if labels is None else list(labels)
        self.training = network.training

    def forward(self, x: Float[Tensor, "n c h w"]) -> Any:
        """Logits (N, classes); of a network with neither a tensor nor `.logits`, what it returns."""
        found = self.network(x)
        return found if validate.find_logits(found) is None else validate.output(found, len(x))

    def preprocess(self, picture: Image.Image) -> Float[Tensor, "c h w"]:
        """An upright RGB picture of any size as the network's input (C, H, W), on its device and in its precision."""
        return self.preprocess_and_crop(picture)[0].to(self.device)

    def crop(self, picture: Image.Image) -> Image.Image:
        """What the network sees of an RGB picture, as 8-bit RGB of its input size."""
        return self.view.apply(picture)[1]

    def preprocess_and_crop(self, picture: Image.Image) -> tuple[Float[Tensor, "c h w"], Image.Image]:
        """Both `preprocess(picture)` and `crop(picture)`, resizing the picture once; on the CPU, where threads may
        prepare pictures while a GPU is at work."""
        x, crop = self.view.apply(picture)
        return x.to(dtype=self._any_tensor().dtype), crop

    @property
    def size(self) -> tuple[int, int]:
        """Height and width of the input, in pixels."""
        return self.view.size

    @property
    def mean(self) -> Float[Tensor, "c 1 1"]:
        """Mean that preprocessing subtracts from each channel, on the scale 0..1."""
        return per_channel(self.view.mean).to(self.device)

    @property
    def std(self) -> Float[Tensor, "c 1 1"]:
        """Standard deviation that preprocessing divides each channel by, on the scale 0..1."""
        return per_channel(self.view.std).to(self.device)

    @property
    def box(self) -> tuple[Float[Tensor, "c 1 1"], Float[Tensor, "c 1 1"]]:
        """Lowest and highest value that a picture can give to each channel."""
        return -self.mean / self.std, (1 - self.mean) / self.std

    @property
    def device(self) -> torch.device:
        """Device of the weights."""
        return self._any_tensor().device

    def label(self, target: int) -> str | None:
        """Name of class `target`, or None where the classes have no names."""
        return self.labels[target] if self.labels and -len(self.labels) <= target < len(self.labels) else None

    def check(self) -> None:
        """Raise unless the network takes its view of a picture, a grey one, and every output has a name."""
        x = self.preprocess(Image.new("RGB", self.size[::-1], "grey"))[None]
        try:
            with torch.no_grad():
                found = validate.find_logits(self(x))
        except (RuntimeError, ValueError, AssertionError) as error:
            raise ValueError(
                f"the network must take what its preprocessing makes, got a failure on images {tuple(x.shape[1:])}: "
                f"{first_line(error)}"
            ) from error
        if found is None:
            return  # which part has the classes is for the method to say
        outputs = found.shape[1]
        if self.labels is not None and len(self.labels) != outputs:
            raise ValueError(
                f"labels must name every class of the model, got {len(self.labels)} labels for {outputs} outputs"
            )

    def _any_tensor(self) -> Tensor:
        """A tensor that has the network's device and precision."""
        every = chain(self.network.parameters(), self.network.buffers())  # asked often: no list of a whole network
        return next((tensor for tensor in every if tensor.is_floating_point()), torch.empty(0))


def per_channel(values: Values) -> Float[Tensor, "c 1 1"]:
    return torch.tensor(values, dtype=torch.float32).view(-1, 1, 1)


def check_preprocessed(found: Any) -> Float[Tensor, "c h w"]:
    """What a user's preprocessing returned, without a batch axis of one."""
    if isinstance(found, Tensor) and found.ndim == 4 and len(found) == 1:
        found = found[0]
    if not isinstance(found, Tensor) or found.ndim != 3 or not found.is_floating_point():
        came = f"shape {tuple(found.shape)}, {found.dtype}" if isinstance(found, Tensor) else type(found).__name__
        raise TypeError(f"preprocess must turn a PIL image into a float tensor (C, H, W), got {came}")
    return found.detach()


def _centre_start(length: int, wanted: int) -> int:
    """Where the centre begins; negative where it must be padded. Rounded as torchvision does."""
    return round((length - wanted) / 2) if length >= wanted else -((wanted - length) // 2)
