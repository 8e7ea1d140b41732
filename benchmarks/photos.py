"""Photos for the benchmarks: spread evenly over the files of a folder, as the embedded model sees them."""

from __future__ import annotations

from pathlib import Path

import torch
from torch import Tensor

import moreaugrad as mg
from moreaugrad.data.images import read_image


def load(folder: Path, count: int, device: str) -> tuple[torch.nn.Module, Tensor]:
    """The embedded classifier and `count` photos in its input space."""
    model = mg.load_model("efficientnet_lite0", device=device)
    files = sorted(path for path in folder.iterdir() if path.suffix.lower() in {".jpeg", ".jpg", ".png"})
    if len(files) < count:
        raise SystemExit(f"{count} photos are needed, got {len(files)} in {folder}")
    chosen = files[:: len(files) // count][:count]
    return model, torch.stack([model.preprocess(read_image(path)) for path in chosen]).to(device)
