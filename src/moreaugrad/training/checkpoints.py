"""Any training with files: a checkpoint to go on from, a log of one line per stretch. Knows no network and no data."""

from __future__ import annotations

import json
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import torch

from moreaugrad.cli.terminal import Terminal
from moreaugrad.files import replacing, with_ending
from moreaugrad.types import Watch

DONE, NOT_FINISHED = 0, 1
EVERY = 20.0  # seconds between checkpoints, at the least


class Resumable(Protocol):
    """A training that goes on in stretches; `state` is everything that changes from one to the next."""

    identity: dict[str, Any]  # what must be the same for a checkpoint to fit
    device: torch.device
    history: list[dict[str, Any]]  # a line per stretch

    @property
    def finished(self) -> bool: ...

    @property
    def reached(self) -> str:
        """Where it is, in words."""
        ...

    def advance(self, watch: Watch) -> dict[str, Any]: ...

    def told(self, line: dict[str, Any]) -> str:
        """A line of the log, for people."""
        ...

    def state(self) -> dict[str, Any]: ...

    def load(self, state: dict[str, Any]) -> None: ...


@dataclass(frozen=True, slots=True)
class Files:
    """Where a training leaves what it makes: the weights, and beside them the checkpoint and the log."""

    weights: Path

    @classmethod
    def at(cls, out: Path) -> Files:
        found = with_ending(out, ".safetensors")
        if found.is_dir():
            raise ValueError(f"--out must be a file, got the folder {str(found)!r}; name a file in it")
        found.parent.mkdir(parents=True, exist_ok=True)
        return cls(found)

    @property
    def checkpoint(self) -> Path:
        return self.weights.with_suffix(".checkpoint.pt")

    @property
    def log(self) -> Path:
        return self.weights.with_suffix(".log.jsonl")


def resume(training: Resumable, files: Files, restart: bool, terminal: Terminal) -> None:
    """Loads the checkpoint, where there is one, and makes the log agree with it."""
    if restart:
        files.checkpoint.unlink(missing_ok=True)  # else a restart that is killed early would go on from the old one
    if files.checkpoint.is_file():
        training.load(read_checkpoint(files.checkpoint, training.identity, training.device))
        terminal.say(f"going on after {training.reached}: {files.checkpoint}")
    with replacing(files.log) as file:
        file.write("".join(json.dumps(line) + "\n" for line in training.history).encode())


def run(training: Resumable, files: Files, terminal: Terminal, began: float, limit: float | None = None) -> bool:
    """Stretch by stretch; whether the last one is done."""
    saved = time.monotonic()
    while not training.finished:
        with terminal.bar(f"after {training.reached}") as watch:
            line = training.advance(watch)
        with files.log.open("a", encoding="utf-8") as file:
            file.write(json.dumps(line) + "\n")
        terminal.say(training.told(line))
        stop = training.finished or (limit is not None and time.monotonic() - began >= limit)
        if stop or time.monotonic() - saved >= EVERY:
            with replacing(files.checkpoint) as handle:
                torch.save(training.state(), handle)
            saved = time.monotonic()
        if stop:
            break
    if not training.finished:
        terminal.say(f"stopped after {training.reached}; the same command goes on from {files.checkpoint}")
    return training.finished


def read_checkpoint(path: Path, identity: dict[str, Any], device: torch.device) -> dict[str, Any]:
    """The state of a training with these very options."""
    try:
        state: dict[str, Any] = torch.load(path, map_location=device, weights_only=True)
        made = dict(state["options"])
    except Exception as error:
        reason = (str(error).strip() or type(error).__name__).splitlines()[0]
        raise ValueError(
            f"the checkpoint must be one of this command, got {str(path)!r}: {reason}; begin anew with --restart"
        ) from error
    for name in identity | made:
        if made.get(name) != identity.get(name):
            raise ValueError(
                f"the checkpoint must be made with the same options, got {str(path)!r} with {name} "
                f"{made.get(name)!r} instead of {identity.get(name)!r}; take that, begin anew with --restart, "
                "or name another --out"
            )
    return state
