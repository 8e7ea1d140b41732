"""Stores a benchmark's figures together with what they depend on: command, date, hardware, versions."""

from __future__ import annotations

import json
import os
import platform
import sys
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch

RESULTS = Path(__file__).parent / "results"


def hardware(device: str) -> str:
    """The chip that did the work."""
    if device.startswith("cuda"):
        return torch.cuda.get_device_name(device)
    model = next((line for line in Path("/proc/cpuinfo").read_text().splitlines() if "model name" in line), "")
    return f"{model.split(':')[-1].strip() or platform.machine()}, {os.cpu_count()} cores"


def store(name: str, device: str, figures: dict[str, Any], out: Path | None = None) -> Path:
    """Writes results/NAME.json; replaces an older one."""
    packages = ("torch", "torchvision", "timm", "numpy")
    facts = {
        "benchmark": name,
        "command": " ".join(["python -m", f"benchmarks.{Path(sys.argv[0]).stem}", *_told(sys.argv[1:])]),
        "date": datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
        "hardware": hardware(device),
        "versions": {"python": platform.python_version(), **{package: version(package) for package in packages}},
    }
    path = (out or RESULTS) / f"{name}.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps({**facts, **figures}, indent=1) + "\n")
    return path


def _told(words: list[str]) -> list[str]:
    """The options that bear on the figures: not where they were written to, and of a folder its name."""
    if "--out" in words:
        at = words.index("--out")
        words = words[:at] + words[at + 2 :]
    return [Path(word).name if before == "--data" else word for before, word in zip(["", *words], words, strict=False)]
