"""A network that ends its process when it sees a white picture, as one that runs out of memory does."""

import os

import torch
from small_network import Curved


class Deadly(Curved):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if bool((x.mean(dim=(1, 2, 3)) > 1.9).any()) and os.environ.get("MAY_DIE"):
            os.kill(os.getpid(), 9)
        return super().forward(x)
