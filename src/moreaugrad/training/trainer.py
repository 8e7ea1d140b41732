"""Training that can be stopped and resumed: the checkpoint, the log, and what all trainers share."""

from __future__ import annotations

import json
import math
import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from importlib.metadata import version
from io import BytesIO
from pathlib import Path
from typing import Any, Protocol, TypeVar

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.optim import Optimizer

from moreaugrad.files import append_whole, first_line, make_folder, replacing, with_ending
from moreaugrad.locks import hold
from moreaugrad.types import Watch

DONE, NOT_FINISHED = 0, 1  # exit codes
SAVE_EVERY = 20.0  # seconds between checkpoints, at the least


class Reporter(Protocol):
    """Where a training reports its progress: the terminal of the command line."""

    def say(self, text: str) -> None: ...
    def hear_warnings(self) -> None: ...
    def busy(self, title: str) -> AbstractContextManager[None]: ...
    def bar(self, title: str) -> AbstractContextManager[Watch]: ...


@dataclass(frozen=True, slots=True)
class TrainingJob:
    """What a command asks for besides the recipe."""

    data: Path
    out: Path | None = None  # None: named after the network
    device: str = "auto"
    compile: bool | None = None  # None: on a GPU
    restart: bool = False  # from the beginning, even where there is a checkpoint
    limit_seconds: float | None = None  # stop at the first line of the log after that time


class Trainer(ABC):
    """A network in training. `state` is everything that changes from one line of the log to the next."""

    network: nn.Module
    optimiser: Optimizer
    identity: dict[str, Any]  # what must be the same for a checkpoint to fit

    def __init__(self, device: torch.device, seed: int) -> None:
        self.device, self.on_gpu = device, device.type == "cuda"
        self.generator = torch.Generator(device).manual_seed(seed)  # order, augmentation and noise
        self.history: list[dict[str, Any]] = []  # the lines of the log

    @property
    @abstractmethod
    def finished(self) -> bool: ...

    @property
    @abstractmethod
    def progress(self) -> str:
        """Such as "epoch 3 of 20"."""

    @abstractmethod
    def advance(self, watch: Watch) -> dict[str, Any]:
        """Train for one line of the log, which is added to the history and returned."""

    def describe(self, line: dict[str, Any]) -> str:
        """A line of the log, for people."""
        return json.dumps(line)

    def state(self) -> dict[str, Any]:
        return {
            "options": self.identity,
            "network": self.network.state_dict(),
            "optimiser": self.optimiser.state_dict(),
            "generator": self.generator.get_state(),
            "history": list(self.history),
        }

    def load(self, state: dict[str, Any]) -> None:
        """Continue where `state` was taken, by a training with the same options."""
        self.network.load_state_dict(state["network"])
        self.optimiser.load_state_dict(state["optimiser"])
        self.generator.set_state(state["generator"].cpu())
        self.history = list(state["history"])

    def _descend(self, loss: Float[Tensor, ""]) -> None:
        self.optimiser.zero_grad(set_to_none=True)
        loss.backward()
        self.optimiser.step()

    def _set_rate(self, rate: float) -> None:
        for group in self.optimiser.param_groups:
            group["lr"] = rate

    def _precision(self) -> AbstractContextManager[Any]:
        return torch.autocast("cuda", torch.bfloat16) if self.on_gpu else nullcontext()

    def _add_line(self, line: dict[str, Any], loss: float, began: float, rate: float) -> dict[str, Any]:
        if not math.isfinite(loss):
            raise RuntimeError(
                f"the loss must stay finite, got {loss} after {self.progress}; restart with a lower --lr than {rate:g}"
            )
        line["seconds"] = round(time.perf_counter() - began, 3)
        self.history.append(line)
        return line


def training_files(out: Path) -> tuple[Path, Path, Path]:
    """The weights, and beside them the checkpoint and the log."""
    found = with_ending(out, ".safetensors")
    if found.is_dir():
        raise ValueError(f"--out must be a file, got the folder {str(found)!r}; name a file in it")
    make_folder(found.parent)
    return found, found.with_suffix(".checkpoint.pt"), found.with_suffix(".log.jsonl")


TrainerType = TypeVar("TrainerType", bound=Trainer)


def train_to_file(
    make: Callable[[], TrainerType],
    write: Callable[[TrainerType, Path], str],
    job: TrainingJob,
    name: str,
    reporter: Reporter,
) -> int:
    """Train from the checkpoint, if there is one, to the end or the time limit; the exit code.

    `write` puts the result into a file, which is called `name` unless the job says otherwise, and describes it.
    """
    began = time.monotonic()
    reporter.hear_warnings()
    weights, checkpoint, log = training_files(job.out or Path(name))
    with hold(weights.with_name(f".{weights.name}.lock"), str(weights)):
        trainer = make()
        if not _train(trainer, job, began, reporter, (checkpoint, log)):
            return NOT_FINISHED
        reporter.say(f"{write(trainer, weights)} -> {weights}")
    return DONE


def _train(trainer: Trainer, job: TrainingJob, began: float, reporter: Reporter, files: tuple[Path, Path]) -> bool:
    """Train from the checkpoint; whether the end was reached."""
    checkpoint, log = files
    if job.restart:
        checkpoint.unlink(missing_ok=True)  # else a restart that is killed early would resume from the old one
    if checkpoint.is_file():
        trainer.load(_read_checkpoint(checkpoint, trainer.identity, trainer.device))
        reporter.say(f"resuming after {trainer.progress}: {checkpoint}")
    with replacing(log) as handle:  # the log agrees with the checkpoint
        handle.write("".join(json.dumps(line) + "\n" for line in trainer.history).encode())
    saved = time.monotonic()
    while not trainer.finished:
        with reporter.bar(f"after {trainer.progress}") as watch:
            line = trainer.advance(watch)
        with log.open("ab", buffering=0) as file:
            append_whole(file, json.dumps(line).encode() + b"\n")
        reporter.say(trainer.describe(line))
        late = job.limit_seconds is not None and time.monotonic() - began >= job.limit_seconds
        if trainer.finished or late or time.monotonic() - saved >= SAVE_EVERY:
            torch.save(trainer.state(), stored := BytesIO())  # whose own file says odd things of one that fails
            with replacing(checkpoint) as handle:
                handle.write(stored.getbuffer())
            saved = time.monotonic()
        if late and not trainer.finished:
            reporter.say(f"stopped after {trainer.progress}; the same command continues from {checkpoint}")
            return False
    return True


def write_weights(path: Path, tensors: dict[str, Tensor], notes: dict[str, Any]) -> None:
    """A .safetensors file whose metadata say how the weights were made."""
    from safetensors.torch import save

    notes = {"torch": torch.__version__, "moreaugrad": version("moreaugrad")} | notes
    lists = {name: ",".join(map(str, value)) for name, value in notes.items() if isinstance(value, tuple)}
    with replacing(path) as file:
        file.write(save(tensors, {name: str(value) for name, value in (notes | lists).items()}))


def _read_checkpoint(path: Path, identity: dict[str, Any], device: torch.device) -> dict[str, Any]:
    """The state of a training with these very options."""
    try:
        state: dict[str, Any] = torch.load(path, map_location=device, weights_only=True)
        made = dict(state["options"])
    except Exception as error:
        raise ValueError(
            f"the checkpoint must be one of this command, got {str(path)!r}: {first_line(error)}; start over with "
            "--restart"
        ) from error
    for name in identity | made:
        if made.get(name) != identity.get(name):
            raise ValueError(
                f"the checkpoint must be made with the same options, got {str(path)!r} with {name} "
                f"{made.get(name)!r} instead of {identity.get(name)!r}; take that, start over with --restart, "
                "or name another --out"
            )
    return state
