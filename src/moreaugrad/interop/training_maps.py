"""Maps of a fixed batch while a model is trained: one drawing for all trainers, which never disturbs the training."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from numpy.typing import NDArray
from torch import Tensor, nn

from moreaugrad import validate
from moreaugrad.interop.method_factory import MakeMethod, check_method, make_any_method
from moreaugrad.plotting import pictures
from moreaugrad.threads import ignore_warnings

log = logging.getLogger("moreaugrad")
INPUTS = ("pixel_values", "inputs", "x", "image", "images")  # of a batch that is a dictionary
LABELS = ("labels", "label", "target", "targets", "y")


@dataclass(eq=False)
class TrainingMaps:
    """Draws a fixed batch and its maps, by whatever the model has learnt so far.

    An error is logged once, and the training goes on.
    """

    batch: Any
    method: MakeMethod
    options: dict[str, Any]
    every_n_epochs: int = 1
    target: Any = None
    network: str | None = None
    folder: Path | None = None
    tag: str = "maps"
    failed: bool = field(default=False, init=False)

    def __post_init__(self) -> None:
        validate.at_least("every_n_epochs", self.every_n_epochs, 1)
        check_method(self.method, self.options)
        found, labels = split_batch(self.batch)
        if not isinstance(found, Tensor) or found.ndim != 4:
            what = tuple(found.shape) if isinstance(found, Tensor) else type(found).__name__
            raise ValueError(f"batch must hold images (N, C, H, W), got {what}; give a tensor, or (images, labels)")
        self.batch = validate.one_input(found.detach()).clone()
        self.target = labels if self.target is None else self.target
        self.folder = None if self.folder is None else Path(self.folder)

    def due(self, epoch: int) -> bool:
        """Whether maps are drawn after this epoch, counted from 1."""
        return epoch % self.every_n_epochs == 0

    def record(self, model: nn.Module, epoch: int, send: Callable[[NDArray[np.uint8]], bool], place: Path) -> None:
        """Draws the maps and sends the picture to loggers; to a folder where one is given, or no logger takes it."""
        try:
            figure = self.draw(model)
            taken = send(to_pixels(figure))
            if self.folder is not None or not taken:
                folder = place / self.tag if self.folder is None else self.folder
                folder.mkdir(parents=True, exist_ok=True)
                pictures.write(figure, folder / f"epoch_{epoch:04d}.png")
        except Exception as error:  # whatever it is, a training of days must not end by a picture
            if not self.failed:
                log.warning(
                    "maps cannot be drawn (%s: %s); the training goes on, and this is said once",
                    type(error).__name__,
                    error,
                )
            self.failed = True

    def draw(self, model: nn.Module) -> Figure:
        """Each image of the batch beside its map."""
        refuse_sharded(model)
        network = model if self.network is None else model.get_submodule(self.network)
        like = next((p for p in network.parameters() if p.is_floating_point()), self.batch)
        x = self.batch.to(like.device, like.dtype)
        with evaluation_mode(model):
            found = make_any_method(self.method, network, self.options).explain(x, self.target).cpu()
        tiles: list[tuple[str, Any]] = []
        for i, one in enumerate(found):
            if self.batch.shape[1] in (1, 3):
                tiles.append((f"image {i}", stretch(self.batch[i])))
            target = int(one.target) if isinstance(one.target, Tensor) else one.target
            tiles.append((f"class {target}, score {float(one.score):.3g}", one.map[0].float()))
        with ignore_warnings(UserWarning):  # an all-zero map says so in its title
            return pictures.grid(tiles, columns=4, title=found.method)


def split_batch(batch: Any) -> tuple[Any, Any]:
    """Images and labels of a batch as data loaders give it: a tensor, a pair or a dictionary."""
    if isinstance(batch, Mapping):
        images = next((batch[key] for key in INPUTS if key in batch), None)
        return images, next((batch[key] for key in LABELS if key in batch), None)
    if isinstance(batch, tuple | list) and len(batch) == 2:
        return batch[0], batch[1]
    return batch, None


@contextmanager
def evaluation_mode(model: nn.Module) -> Iterator[None]:
    """Every module in evaluation mode, and afterwards in the mode that it had itself."""
    modes = [(module, module.training) for module in model.modules()]
    try:
        for module, _ in modes:
            module.training = False  # not by eval(), which models override
        yield
    finally:
        for module, mode in modes:
            module.training = mode


def refuse_sharded(model: nn.Module) -> None:
    """One process cannot run a model whose weights lie on several."""
    for weight in model.parameters():
        if hasattr(weight, "placements") or hasattr(weight, "ds_id") or type(weight).__name__ == "FlatParameter":
            raise ValueError("the weights must lie on one device, got a model that is spread over several processes")


def stretch(image: Tensor) -> NDArray[np.float32]:
    """A normalised image as a picture (H, W, C) to look at: from its smallest value to its largest."""
    pixels: NDArray[np.float32] = image.float().permute(1, 2, 0).cpu().numpy()
    low, high = pixels.min(), pixels.max()
    scaled: NDArray[np.float32] = (pixels - low) / max(high - low, np.finfo(np.float32).tiny)
    return scaled


def to_pixels(figure: Figure) -> NDArray[np.uint8]:
    """A figure as (H, W, 3), 8-bit RGB."""
    canvas: Any = FigureCanvasAgg(figure)
    canvas.draw()
    return np.asarray(canvas.buffer_rgba())[..., :3].copy()
