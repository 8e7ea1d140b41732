"""The commands that write files, on tiny work; what their folders hold, and what may differ between two runs.

Every command works in a folder that `reliability.tiny.make_inputs` has filled.
"""

from __future__ import annotations

import csv
import hashlib
import io
import json
import os
import re
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

import torch
from PIL import Image
from safetensors import safe_open

MODEL = "reliability.tiny:Small"
ROOT = Path(__file__).parents[1]
VOLATILE = {"seconds", "date", "began", "command", "images_per_second", "gradients_per_second"}  # keys and columns
_NUMBER = re.compile(rb'"seconds": ?[0-9.e-]+')


@dataclass(frozen=True)
class Command:
    """A command line, as `python -m MODULE WORDS`.

    Attributes:
        words: after the module; MODEL in them stands for the network.
        out: the folder that it fills.
        module: of the command.
        before: another command, without whose results it cannot work.
    """

    words: str
    out: str
    module: str = "moreaugrad"
    before: str | None = None

    def arguments(self, model: str = MODEL, out: str | None = None) -> list[str]:
        """The words as a list; with another network, or another folder."""
        words = self.words.replace("MODEL", model).split()
        return [word.replace(self.out, out, 1) if out and word.startswith(self.out) else word for word in words]


COMMANDS = {
    "explain": Command("explain photos --model MODEL --method smoothgrad --samples 4 --out maps", "maps"),
    "compare": Command(
        "compare photos/photo000.png --model MODEL --methods gradient,smoothgrad,moreau --budget 32 --out sheet",
        "sheet",
    ),
    "robustness": Command(
        "robustness photos --images 2 --model MODEL --methods gradient,smoothgrad --attacks topk,noise --norms 1,3 "
        "--steps 2 --budget 8 --attack-budget 8 --out study",
        "study",
    ),
    "train": Command(
        "train cifar10 --data data/cifar10.npz --network resnet18 --width 2 --epochs 3 --batch 8 --device cpu "
        "--out trained/net.safetensors",
        "trained",
    ),
    "paper": Command(
        "--figure groups --data data --out figures --quick --device cpu --datasets cifar10,imagenet --model MODEL "
        "--model cifar10=MODEL",
        "figures",
        "paper",
    ),
    "bulk": Command(
        "bulk photos --model MODEL --method smoothgrad --samples 4 --engine serial --part-size 2 --out job", "job"
    ),
    "report": Command("report job", "job", before="bulk"),
    "certify": Command(
        "certify photos/photo000.png --model MODEL --json --method sparsified_smoothgrad --epsilon 0.1 --samples 100 "
        "--attack-steps 0 --seed 1 --out proof",
        "proof",
    ),
}


def start(
    command: Command, folder: Path, words: list[str] | None = None, said: Any = subprocess.PIPE
) -> subprocess.Popen[str]:
    """A command in a process of its own, in a group of its own, with one thread."""
    environment = os.environ | {"OMP_NUM_THREADS": "1", "PYTHONPATH": f"{ROOT / 'src'}{os.pathsep}{ROOT}"}
    return subprocess.Popen(
        [sys.executable, "-m", command.module, *(command.arguments() if words is None else words)],
        cwd=folder,
        text=True,
        stdout=said,
        stderr=said,
        start_new_session=True,
        env=environment | {"XDG_CACHE_HOME": str(folder / "cache")},
    )


def run(command: Command, words: list[str] | None = None) -> int:
    """A command in this process; its exit code."""
    given = command.arguments() if words is None else words
    if command.module == "paper":
        return int(import_module("paper.__main__").main(given))  # not typed strictly
    from moreaugrad.cli.app import main

    try:
        main(given)
    except SystemExit as stop:
        return int(stop.code or 0)


def read_contents(folder: Path) -> dict[str, Any]:
    """What the files say, by name, without what differs between two runs: times, dates, order of lines."""
    return {
        path.relative_to(folder).as_posix(): _read(path)
        for path in sorted(folder.rglob("*"))
        if path.is_file() and not _is_hidden(path, folder)
    }


def find_left(folder: Path) -> list[str]:
    """Hidden files: drafts and locks."""
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if _is_hidden(path, folder))


def _is_hidden(path: Path, folder: Path) -> bool:
    return any(part.startswith(".") for part in path.relative_to(folder).parts)


def _read(path: Path) -> Any:
    """Raises where a file is not whole."""
    if path.name.endswith("_compare.png"):  # which tells how long each method took
        with Image.open(path) as picture:
            picture.load()
            return picture.mode
    reader = _READERS.get(path.suffix)
    return hashlib.sha256(_NUMBER.sub(b"", path.read_bytes())).hexdigest() if reader is None else reader(path)


def _read_lines(path: Path) -> list[str]:
    content = path.read_bytes()
    if content and not content.endswith(b"\n"):
        raise ValueError(f"{path.name} ends within a line")
    return sorted(json.dumps(_settle(json.loads(line)), sort_keys=True) for line in content.splitlines())


def _read_table(path: Path) -> list[Any]:
    text = path.read_bytes().decode()
    rows = list(csv.DictReader(io.StringIO(text, newline=""), strict=True))
    if not text.endswith("\n") or any(None in row or None in row.values() for row in rows):
        raise ValueError(f"{path.name} has a torn row")
    return [_settle(row) for row in rows]


def _read_weights(path: Path) -> Any:
    with safe_open(path, "pt") as file:
        return _settle(file.metadata()), {name: _digest_state(file.get_tensor(name)) for name in sorted(file.keys())}


def _read_part(path: Path) -> list[Any]:
    from moreaugrad.bulk_jobs.parts import read_rows

    return [_digest_row(vars(row)) for row in read_rows(path)]


def _settle(value: Any) -> Any:
    """Without what differs between two runs; `runs` grow by one with each."""
    if isinstance(value, dict):
        return {key: _settle(each) for key, each in value.items() if key not in VOLATILE | {"runs"}}
    return [_settle(each) for each in value] if isinstance(value, list) else value


def _digest_state(value: Any) -> Any:
    if isinstance(value, torch.Tensor):
        return hashlib.sha256(value.numpy(force=True).tobytes()).hexdigest()
    if isinstance(value, dict):
        return {str(key): _digest_state(each) for key, each in value.items() if key not in VOLATILE}
    return [_digest_state(each) for each in value] if isinstance(value, list | tuple) else value


def _digest_row(row: dict[str, Any]) -> dict[str, Any]:
    known = {key: each for key, each in row.items() if key not in VOLATILE | {"map"}}
    return known | {"map": None if row["map"] is None else hashlib.sha256(row["map"]).hexdigest()}


_READERS: dict[str, Callable[[Path], Any]] = {
    ".jsonl": _read_lines,
    ".json": lambda path: _settle(json.loads(path.read_bytes())),
    ".csv": _read_table,
    ".pt": lambda path: _digest_state(torch.load(path, weights_only=True)),
    ".safetensors": _read_weights,
    ".parquet": _read_part,
}
