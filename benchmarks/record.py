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
        "command": " ".join(["python -m", name_module(Path(sys.argv[0])), *_options(sys.argv[1:])]),
        "date": datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
        "hardware": hardware(device),
        "versions": {"python": platform.python_version(), **{package: version(package) for package in packages}},
    }
    path = (out or RESULTS) / f"{name}{'' if device.startswith('cuda') else '_cpu'}.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps({**facts, **results}, indent=1) + "\n")
    print("stored", path, flush=True)
    return path


def name_module(file: Path) -> str:
    """A program of the checkout as `python -m` takes it: benchmarks.cost, reliability.fuzz."""
    place = file.relative_to(RESULTS.parents[1]) if file.is_absolute() else file
    return ".".join(part for part in place.with_suffix("").parts if part != "__main__")


def _options(words: list[str]) -> list[str]:
    """The options that affect the results: without the output folder, and only the name of a data folder."""
    if "--out" in words:
        at = words.index("--out")
        words = words[:at] + words[at + 2 :]
    return [
        Path(word).name if before in ("--data", "--folder") else word
        for before, word in zip(["", *words], words, strict=False)
    ]
