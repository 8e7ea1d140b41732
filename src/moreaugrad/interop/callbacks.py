"""Callbacks of trainers: the base class of each is imported when its callback is made."""

from __future__ import annotations

import os
import sys
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from moreaugrad import limits
from moreaugrad.interop.method_factory import MakeMethod
from moreaugrad.interop.training_maps import TrainingMaps

LIGHTNING = ("lightning.pytorch", "pytorch_lightning")  # one library under two names, with classes of their own


def LightningMaps(
    batch: Any,
    method: MakeMethod = "sparse_moreau",
    *,
    every_n_epochs: int = 1,
    target: Any = None,
    network: str | None = None,
    folder: str | os.PathLike[str] | None = None,
    **options: Any,
) -> Any:
    """Makes a Lightning callback that logs the maps of a fixed batch as the training goes on.

    The picture goes to every TensorBoard and W&B logger of the trainer; where there is none, as a PNG into a folder.
    The training is not changed by it: maps are made in evaluation mode, the modes of the modules, the gradients and the
    random numbers are as before, and an error is logged once instead of raised. Only the first process draws; a model
    whose weights are spread over several processes is not drawn.

    Args:
        batch: images (N, C, H, W), preprocessed; or (images, labels), or a dictionary, as a data loader gives it.
        method: a key of `METHODS`, or a class of methods.
        every_n_epochs: how many epochs pass between two pictures.
        target: the classes to explain; None: the labels of the batch, else the predicted classes.
        network: name of the submodule that returns the scores; None: the whole LightningModule.
        folder: where to write PNGs in any case; None: `maps` in the trainer's folder, where no logger takes pictures.
        **options: options of the method.

    Returns:
        A callback for `Trainer(callbacks=[...])`, of `lightning` or of `pytorch_lightning`, whichever is imported.

    Raises:
        ImportError: Lightning is not installed.
        ValueError: the batch holds no images, or an option is unknown.

    Example:
        >>> callback = mg.LightningMaps(x, "smoothgrad", samples=8)  # doctest: +SKIP
        >>> trainer = lightning.Trainer(max_epochs=2, callbacks=[callback])  # doctest: +SKIP
    """
    maps = TrainingMaps(batch, method, options, every_n_epochs, target, network, _path(folder))
    return _lightning_class(_lightning_bases())(maps)


def TrainerMaps(
    batch: Any,
    method: MakeMethod = "sparse_moreau",
    *,
    every_n_epochs: int = 1,
    target: Any = None,
    network: str | None = None,
    folder: str | os.PathLike[str] | None = None,
    **options: Any,
) -> Any:
    """Makes a callback of Hugging Face's Trainer that logs the maps of a fixed batch as the training goes on.

    As `LightningMaps`: the picture goes to TensorBoard (as the run `maps` beside the trainer's own) and to W&B where
    `report_to` names them, else as a PNG into a folder, and the training is not changed by it.

    Args:
        batch: images (N, C, H, W), preprocessed; or (images, labels), or a dictionary with `pixel_values`.
        method: a key of `METHODS`, or a class of methods.
        every_n_epochs: how many epochs pass between two pictures.
        target: the classes to explain; None: the labels of the batch, else the predicted classes.
        network: name of the submodule that returns the scores; None: the whole model.
        folder: where to write PNGs in any case; None: `maps` in the output folder, where nothing else takes pictures.
        **options: options of the method.

    Returns:
        A callback for `Trainer(callbacks=[...])`.

    Raises:
        ImportError: transformers is not installed.
        ValueError: the batch holds no images, or an option is unknown.

    Example:
        >>> callback = mg.TrainerMaps({"pixel_values": x}, "smoothgrad", samples=8)  # doctest: +SKIP
        >>> trainer = transformers.Trainer(model, args, train_dataset=data, callbacks=[callback])  # doctest: +SKIP
    """
    maps = TrainingMaps(batch, method, options, every_n_epochs, target, network, _path(folder))
    return _trainer_class()(maps)


@cache
def _lightning_class(bases: tuple[type[Any], ...]) -> Any:
    class LightningMapsCallback(*bases):  # type: ignore[misc]
        """Logs the maps of a fixed batch at the end of an epoch."""

        def __init__(self, maps: TrainingMaps) -> None:
            super().__init__()
            self.maps = maps

        def __reduce__(self) -> Any:  # for trainers that start processes: the class has no name to import
            return _make_lightning_callback, (self.maps,)

        def on_train_epoch_end(self, trainer: Any, pl_module: Any) -> None:
            if not trainer.is_global_zero or not self.maps.due(trainer.current_epoch + 1):
                return

            def send(picture: NDArray[np.uint8]) -> bool:
                taken = [_send_to_logger(each, self.maps.tag, picture, trainer.global_step) for each in trainer.loggers]
                return any(taken)

            self.maps.record(pl_module, trainer.current_epoch + 1, send, Path(trainer.default_root_dir))

    return LightningMapsCallback


def _make_lightning_callback(maps: TrainingMaps) -> Any:
    return _lightning_class(_lightning_bases())(maps)


def _lightning_bases() -> tuple[type[Any], ...]:
    """The base class of callbacks in the library that the caller has imported; of both, if both are."""
    loaded = tuple(sys.modules[name].Callback for name in LIGHTNING if name in sys.modules)
    if loaded:
        return loaded
    for name in LIGHTNING:
        if find_spec(name.partition(".")[0]) is not None:
            return (import_module(name).Callback,)
    raise ImportError("LightningMaps needs Lightning, which is not installed; pip install 'moreaugrad[lightning]'")


def _send_to_logger(logger: Any, tag: str, picture: NDArray[np.uint8], step: int) -> bool:
    """Whether a logger of Lightning takes pictures: W&B's by its own method, TensorBoard's by its writer."""
    if hasattr(logger, "log_image"):
        logger.log_image(tag, [picture], step=step)
        return True
    writer: Any = getattr(logger, "experiment", None)
    if hasattr(writer, "add_image"):
        writer.add_image(tag, picture, step, dataformats="HWC")
        return True
    return False


@cache
def _trainer_class() -> Any:
    try:
        from transformers import TrainerCallback
    except ImportError:
        raise ImportError(
            "TrainerMaps needs transformers, which is not installed; pip install 'moreaugrad[hf]'"
        ) from None

    base: Any = TrainerCallback

    class TrainerMapsCallback(base):  # type: ignore[misc]
        """Logs the maps of a fixed batch at the end of an epoch."""

        def __init__(self, maps: TrainingMaps) -> None:
            self.maps = maps

        def on_epoch_end(self, args: Any, state: Any, control: Any, model: Any = None, **others: Any) -> None:
            epoch = round(state.epoch or 0)
            if not state.is_world_process_zero or not self.maps.due(epoch):
                return

            def send(picture: NDArray[np.uint8]) -> bool:
                return _send_to_reports(args, self.maps.tag, picture, state.global_step)

            self.maps.record(model, epoch, send, Path(args.output_dir))

    return TrainerMapsCallback


def _send_to_reports(args: Any, tag: str, picture: NDArray[np.uint8], step: int) -> bool:
    """Whether one of the services that the trainer reports to takes pictures."""
    asked = args.report_to if isinstance(args.report_to, list) else [args.report_to]
    taken = False
    if "tensorboard" in asked and find_spec("tensorboard") is not None:
        from torch.utils.tensorboard import SummaryWriter

        folder = os.environ.get("TENSORBOARD_LOGGING_DIR") or str(Path(args.output_dir) / "runs")
        with SummaryWriter(str(Path(folder).expanduser() / tag)) as writer:
            writer.add_image(tag, picture, step, dataformats="HWC")
        taken = True
    wandb = sys.modules.get("wandb")
    if "wandb" in asked and wandb is not None and wandb.run is not None:
        wandb.log({tag: [wandb.Image(picture)], "train/global_step": step})
        taken = True
    return taken


def _path(folder: str | os.PathLike[str] | None) -> Path | None:
    if folder is None:
        return None
    limits.path("folder", folder)
    return Path(folder)
