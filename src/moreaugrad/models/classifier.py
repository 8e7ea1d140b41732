"""A network together with the way a picture enters it and the names of its classes."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from jaxtyping import Float
from PIL import Image
from torch import Tensor, nn

from moreaugrad import validate
from moreaugrad.models.view import View, per_channel


class Classifier(nn.Module):
    """Logits of a network in its own, normalised input space.

    `preprocess(picture)` is `(crop(picture) / 255 - mean) / std`, on the device and in the precision of the network.
    """

    def __init__(self, network: nn.Module, view: View, name: str, labels: Sequence[str] | None = None) -> None:
        super().__init__()
        self.network = network
        self.view = view
        self.name = name
        self.labels = None if labels is None else list(labels)
        self.training = network.training

    def forward(self, x: Float[Tensor, "n c h w"]) -> Float[Tensor, "n k"]:
        return validate.output(self.network(x), len(x))

    def crop(self, picture: Image.Image) -> Image.Image:
        """What the network sees of an RGB picture: 8 bits, at the network's size."""
        return self.view.crop(picture)

    def preprocess(self, picture: Image.Image) -> Float[Tensor, "c h w"]:
        tensor = self._anchor()
        return self.view.tensor(picture).to(tensor.device, tensor.dtype)

    @property
    def size(self) -> tuple[int, int]:
        """Height and width."""
        return self.view.size

    @property
    def mean(self) -> Float[Tensor, "c 1 1"]:
        return per_channel(self.view.mean).to(self.device)

    @property
    def std(self) -> Float[Tensor, "c 1 1"]:
        return per_channel(self.view.std).to(self.device)

    @property
    def box(self) -> tuple[Float[Tensor, "c 1 1"], Float[Tensor, "c 1 1"]]:
        """The lowest and highest value that a picture can give to each channel."""
        return -self.mean / self.std, (1 - self.mean) / self.std

    @property
    def device(self) -> torch.device:
        return self._anchor().device

    def label(self, target: int) -> str | None:
        """The name of a class, where the classes have names."""
        return self.labels[target] if self.labels and -len(self.labels) <= target < len(self.labels) else None

    def check_labels(self) -> None:
        """Every output must have a name. Runs the network once, on a grey picture."""
        with torch.no_grad():
            outputs = self(self.preprocess(Image.new("RGB", self.size[::-1], "grey"))[None]).shape[1]
        if self.labels is not None and len(self.labels) != outputs:
            raise ValueError(
                f"labels must name every class of the model, got {len(self.labels)} labels for {outputs} outputs"
            )

    def _anchor(self) -> Tensor:
        """A tensor that has the network's device and precision."""
        every = (*self.network.parameters(), *self.network.buffers())
        return next((tensor for tensor in every if tensor.is_floating_point()), torch.empty(0))
