"""Random crops and flips of whole batches, on the device where the pixels are. Knows no network."""

from __future__ import annotations

import torch
from jaxtyping import Bool, Int, UInt8
from torch import Generator, Tensor

Pixels = UInt8[Tensor, "n h w c"]


def crop_and_flip(pixels: Pixels, generator: Generator, reach: int = 4) -> Pixels:
    """Each image moved by up to `reach` pixels in both directions, its border mirrored, every second one flipped."""
    size = (len(pixels),)
    down, right = (torch.randint(-reach, reach + 1, size, generator=generator, device=pixels.device) for _ in range(2))
    flip = torch.rand(size, generator=generator, device=pixels.device) < 0.5
    return moved(pixels, down, right, flip)


def moved(pixels: Pixels, down: Int[Tensor, "n"], right: Int[Tensor, "n"], flip: Bool[Tensor, "n"]) -> Pixels:
    """Pixel (i, j) of an image is (i + down, j + right) of the old one, mirrored at its border; then the flip."""
    _, height, width, _ = pixels.shape
    across = torch.arange(width, device=pixels.device).expand(len(pixels), width)
    across = torch.where(flip[:, None], width - 1 - across, across) + right[:, None]
    along = torch.arange(height, device=pixels.device) + down[:, None]
    which = torch.arange(len(pixels), device=pixels.device)
    return pixels[which[:, None, None], _mirrored(along, height)[:, :, None], _mirrored(across, width)[:, None, :]]


def _mirrored(position: Int[Tensor, "n m"], length: int) -> Int[Tensor, "n m"]:
    """Positions beyond the border, reflected without repeating the border itself."""
    return length - 1 - (length - 1 - position.abs()).abs()
