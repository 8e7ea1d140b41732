"""Photos for the benchmarks: spread evenly over the files of a folder, preprocessed for the default model."""

from __future__ import annotations

from pathlib import Path

import torch
from PIL import Image, ImageOps
from torch import Tensor

import moreaugrad as mg


def load(folder: Path, count: int, device: str) -> tuple[torch.nn.Module, Tensor]:
    """The default classifier and `count` photos as it takes them."""
    model = mg.load_model("efficientnet_lite0", device=device)
    files = sorted(path for path in folder.iterdir() if path.suffix.lower() in {".jpeg", ".jpg", ".png"})
    if len(files) < count:
        raise SystemExit(f"{folder} must hold at least {count} photos, got {len(files)}")
    chosen = files[:: len(files) // count][:count]
    return model, torch.stack([model.preprocess(read_photo(path)) for path in chosen]).to(device)


def read_photo(path: Path) -> Image.Image:
    with Image.open(path) as image:
        return ImageOps.exif_transpose(image).convert("RGB")
