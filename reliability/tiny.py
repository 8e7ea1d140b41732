"""Networks so small that a command spends its time on files and messages, and the inputs that commands need.

Named on the command line: `--model reliability.tiny:Small`.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch
from PIL import Image
from torch import Tensor, nn

SIDE = 16


class Small(nn.Module):
    """Two convolutions, an average and a linear layer, always with the same weights."""

    labels = tuple("abcdefghij")

    def __init__(self) -> None:
        super().__init__()
        self.features = nn.Sequential(nn.Conv2d(3, 6, 3, 1, 1), nn.Softplus(), nn.Conv2d(6, 8, 3, 2, 1), nn.ReLU())
        self.mean, self.head = nn.AdaptiveAvgPool2d(1), nn.Linear(8, len(self.labels))
        generator = torch.Generator().manual_seed(3)
        with torch.no_grad():
            for tensor in self.parameters():
                tensor.normal_(0, 0.5, generator=generator)

    def forward(self, x: Tensor) -> Tensor:
        found: Tensor = self.head(self.mean(self.features(x)).flatten(1))
        return found

    def preprocess(self, picture: Image.Image) -> Tensor:
        pixels = np.asarray(picture.convert("RGB").resize((SIDE, SIDE)), dtype=np.float32) / 255
        return torch.tensor((pixels - 0.5) / 0.25).permute(2, 0, 1)


def make_inputs(folder: Path, photos: int = 3) -> None:
    """What the commands of `reliability.commands` read, in a folder."""
    chance = np.random.default_rng(0)
    make_photos(folder / "photos", photos, chance)
    make_photos(folder / "data" / "photos", 4, chance)
    rows = [f"photo{i:03d}.png,n{i},{i},name {i}\n" for i in range(4)]
    (folder / "data" / "photos" / "labels.csv").write_text("file,wnid,class_index,name\n" + "".join(rows))
    x, y = (chance.integers(0, most, size, dtype=np.uint8) for most, size in ((255, (48, 32, 32, 3)), (3, 48)))
    np.savez(folder / "data" / "cifar10.npz", x_train=x[:32], y_train=y[:32], x_test=x[32:], y_test=y[32:])


def make_photos(folder: Path, count: int, chance: np.random.Generator) -> None:
    """Coarse noise, which no two photos have in common."""
    folder.mkdir(parents=True)
    for i in range(count):
        pixels = chance.integers(0, 256, (4, 5, 3), dtype=np.uint8)
        Image.fromarray(pixels).resize((40, 32)).save(folder / f"photo{i:03d}.png")
