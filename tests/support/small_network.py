"""A network for the tests of the front ends: linear in an 8 x 8 picture, so that every map is known."""

import time

import numpy as np
import torch
from PIL import Image
from torch import nn

SIZE = 8
SOURCE = __file__


class Linear(nn.Module):
    """Three classes; the scores are weight @ x, x = (picture - 0.5) / 0.25."""

    labels = ("cat", "dog", "bird")

    def __init__(self) -> None:
        super().__init__()
        values = torch.randn(3, 3 * SIZE * SIZE, generator=torch.Generator().manual_seed(7))
        self.weight = nn.Parameter(values / 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x.flatten(1) @ self.weight.T

    def preprocess(self, picture: Image.Image) -> torch.Tensor:
        pixels = np.asarray(picture.resize((SIZE, SIZE)), dtype=np.float32) / 255
        return torch.tensor((pixels - 0.5) / 0.25).permute(2, 0, 1)


class Curved(Linear):
    """Its gradient depends on where it is taken, so that noise matters."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return super().forward(x).tanh() * 3


class Moody(Linear):
    """Refuses bright pictures, wherever they are in a batch."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if bool((x.mean(dim=(1, 2, 3)) > 1.9).any()):
            raise RuntimeError("too\nbright")
        return super().forward(x)


class Slow(Linear):
    """Takes its time, so that a run can be stopped in its midst."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        time.sleep(0.05)
        return super().forward(x)
