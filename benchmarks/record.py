"""What every benchmark shares: its arguments, a timer, and results stored with the command and the hardware."""

from __future__ import annotations

import argparse
import json
import os
import platform
import sys
import time
from collections.abc import Callable
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any, TypeVar

import torch

RESULTS = Path(__file__).parent / "results"
Result = TypeVar("Result")


def arguments(doc: str | None, data: bool = True, **options: Any) -> argparse.Namespace:
    """The command line of a benchmark: --data, --device, --out, and the given options with their defaults."""
    parser = argparse.ArgumentParser(description=doc, formatter_class=argparse.RawDescriptionHelpFormatter)
    if data:
        parser.add_argument("--data", type=Path, required=True, help="a folder of photos")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--out", type=Path, help="folder for the results")
    for name, default in options.items():
        flag = f"--{name.replace('_', '-')}"
        if isinstance(default, bool):
            parser.add_argument(flag, action=argparse.BooleanOptionalAction, default=default)
        else:
            parser.add_argument(flag, type=type(default), default=default)
    return parser.parse_args()


def timed(device: str, work: Callable[[], Result]) -> tuple[Result, float]:
    """The result of `work`, and the seconds until the device had finished it."""
    wait = torch.cuda.synchronize if device.startswith("cuda") else lambda: None
    wait()
    start = time.perf_counter()
    result = work()
    wait()
    return result, time.perf_counter() - start


def hardware(device: str) -> str:
    """The name of the GPU or CPU."""
    if device.startswith("cuda"):
        return torch.cuda.get_device_name(device)
    info = Path("/proc/cpuinfo")  # of Linux
    lines = info.read_text().splitlines() if info.is_file() else []
    chip = next((line.partition(":")[2].strip() for line in lines if "model name" in line), platform.machine())
    return f"{chip}, {os.cpu_count()} cores"


def store(name: str, device: str, results: dict[str, Any], out: Path | None = None) -> Path:
    """Writes results/NAME.json (NAME_cpu.json if no GPU was used), replacing an older file."""
    packages = ("torch", "torchvision", "timm", "numpy")
    facts = {
        "benchmark": name,
        "command": " ".join(["python -m", _module(), *_options(sys.argv[1:])]),
        "date": datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
        "hardware": hardware(device),
        "versions": {"python": platform.python_version(), **{package: version(package) for package in packages}},
    }
    path = (out or RESULTS) / f"{name}{'' if device.startswith('cuda') else '_cpu'}.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps({**facts, **results}, indent=1) + "\n")
    print("stored", path, flush=True)
    return path


def _module() -> str:
    """The module that `python -m` was told to run; a package by its own name."""
    spec = sys.modules["__main__"].__spec__
    started = spec is not None and spec.origin == sys.argv[0]
    return spec.name.removesuffix(".__main__") if spec and started else f"benchmarks.{Path(sys.argv[0]).stem}"


def _options(words: list[str]) -> list[str]:
    """The options that affect the results: without the output folder, and only the name of a data folder."""
    if "--out" in words:
        at = words.index("--out")
        words = words[:at] + words[at + 2 :]
    return [
        Path(word).name if before in ("--data", "--folder") else word
        for before, word in zip(["", *words], words, strict=False)
    ]
