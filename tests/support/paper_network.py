"""Small smooth networks for the tests of the paper's figures, for pictures of 16 x 16; DeepLIFT refuses one of them."""

import numpy as np
import torch
from torch import nn

SIZE = 16


class Small(nn.Module):
    """Two convolutions, their mean, ten classes."""

    labels = tuple("abcdefghij")
    activation = nn.Softplus

    def __init__(self) -> None:
        super().__init__()
        generator = torch.Generator().manual_seed(3)
        self.features = nn.Sequential(
            nn.Conv2d(3, 6, 3, padding=1), self.activation(), nn.Conv2d(6, 8, 3, 2, 1), self.activation()
        )
        self.head = nn.Linear(8 * (SIZE // 2) ** 2, 10)
        for tensor in self.parameters():
            with torch.no_grad():
                tensor.normal_(0, 0.2, generator=generator)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.features(x).flatten(1))

    def preprocess(self, picture) -> torch.Tensor:
        pixels = np.asarray(picture.resize((SIZE, SIZE)), dtype=np.float32) / 255
        return torch.tensor((pixels - 0.5) / 0.25).permute(2, 0, 1)


class Gated(Small):
    """With SiLU, which multiplies activations."""

    activation = nn.SiLU
