"""Batches of pixels, augmented on their device: moved, flipped, cut out at random, resized and normalised."""

from __future__ import annotations

from functools import cache

import torch
from jaxtyping import Bool, Float, Float64, Int, UInt8
from torch import Generator, Tensor

from moreaugrad.models.classifier import Values

Pixels = UInt8[Tensor, "n h w c"]
Resized = UInt8[Tensor, "n p q c"]
Span = Float64[Tensor, "n 2"]  # where a part of each image begins along an axis, and its length, in pixels
Scale = tuple[Values, Values]  # mean and standard deviation of each channel, which preprocessing removes
FIXED = 2**22  # Pillow's weights of a filter are multiples of its inverse


def crop_and_flip(pixels: Pixels, generator: Generator, reach: int = 4) -> Pixels:
    """Each image moved by up to `reach` pixels in both directions, its border mirrored, every second one flipped."""
    size = (len(pixels),)
    down, right = (torch.randint(-reach, reach + 1, size, generator=generator, device=pixels.device) for _ in range(2))
    flip = torch.rand(size, generator=generator, device=pixels.device) < 0.5
    return move(pixels, down, right, flip)


def move(pixels: Pixels, down: Int[Tensor, "n"], right: Int[Tensor, "n"], flip: Bool[Tensor, "n"]) -> Pixels:
    """Pixel (i, j) of an image is (i + down, j + right) of the old one, mirrored at its border; then the flip."""
    _, height, width, _ = pixels.shape
    across = torch.arange(width, device=pixels.device).expand(len(pixels), width)
    across = torch.where(flip[:, None], width - 1 - across, across) + right[:, None]
    along = torch.arange(height, device=pixels.device) + down[:, None]
    which = torch.arange(len(pixels), device=pixels.device)
    return pixels[which[:, None, None], _mirror(along, height)[:, :, None], _mirror(across, width)[:, None, :]]


def zoom_and_flip(pixels: Pixels, generator: Generator, size: int, least: float = 0.35) -> Resized:
    """A random part of each image at size x size, every second one flipped.

    Its area is a share in [least, 1] of the image, its proportions lie between 3:4 and 4:3.
    """
    area, shape, top, left, flip = torch.rand(
        (5, len(pixels)), generator=generator, device=pixels.device, dtype=torch.float64
    )
    share = (least + (1 - least) * area).sqrt()
    stretch = (4 / 3) ** (shape - 0.5)
    down = _span(top, (share / stretch).clamp(max=1), pixels.shape[1])
    across = _span(left, (share * stretch).clamp(max=1), pixels.shape[2])
    found = resize(pixels, size, down, across)
    return torch.where(flip[:, None, None, None] < 0.5, found.flip(2), found)


def resize(pixels: Pixels, size: int, down: Span | None = None, across: Span | None = None) -> Resized:
    """The whole of each image, or a part of it, at size x size: bit for bit Pillow's bicubic filter.

    Like Pillow: first across, then down, each rounded to 8 bits. In float64, where these sums are exact.
    """
    wide = _round(torch.einsum("nqw,nhwc->nhqc", _weights(pixels, 2, size, across), pixels.double()))
    return _round(torch.einsum("nph,nhqc->npqc", _weights(pixels, 1, size, down), wide)).byte()


def normalise(pixels: Pixels, scale: Scale) -> Float[Tensor, "n c h w"]:
    """As the preprocessing of the trained model does it; channels last in memory."""
    mean, std = _on_device(scale, pixels.device)
    return ((pixels.float() / 255 - mean) / std).permute(0, 3, 1, 2)


@cache
def _on_device(scale: Scale, device: torch.device) -> tuple[Tensor, Tensor]:
    """Once per device: sending them at each step would make the host wait for the GPU."""
    mean, std = scale
    return torch.tensor(mean, device=device), torch.tensor(std, device=device)


def _weights(pixels: Pixels, axis: int, size: int, span: Span | None) -> Float64[Tensor, "m size length"]:
    """What each pixel counts in each new one: the cubic kernel around its centre, wider where the image shrinks."""
    length = pixels.shape[axis]
    if span is None:
        span = torch.tensor([[0.0, length]], dtype=torch.float64, device=pixels.device)
    steps = torch.arange(max(size, length), dtype=torch.float64, device=pixels.device) + 0.5
    scale = span[:, 1:] / size
    centre = span[:, :1] + steps[:size] * scale
    found = _cubic((steps[:length] - centre[:, :, None]) / scale.clamp(min=1)[:, :, None])
    weights = (found / found.sum(2, keepdim=True) * FIXED).round() / FIXED
    return weights.expand(len(pixels), -1, -1)


def _cubic(distance: Float64[Tensor, "*shape"]) -> Float64[Tensor, "*shape"]:
    """Keys' kernel with a = -1/2, which reproduces parabolas."""
    far = distance.abs()
    near = (1.5 * far - 2.5) * far * far + 1
    next_to = ((-0.5 * far + 2.5) * far - 4) * far + 2
    return torch.where(far < 1, near, torch.where(far < 2, next_to, 0.0))


def _span(place: Float64[Tensor, "n"], share: Float64[Tensor, "n"], length: int) -> Span:
    """A part of the given share; place 0 puts it at the beginning, 1 at the end."""
    return torch.stack([place * (1 - share), share], dim=1) * length


def _round(values: Float64[Tensor, "n h w c"]) -> Float64[Tensor, "n h w c"]:
    return (values + 0.5).floor().clamp(0, 255)


def _mirror(position: Int[Tensor, "n m"], length: int) -> Int[Tensor, "n m"]:
    """Positions beyond the border, reflected without repeating the border itself."""
    return length - 1 - (length - 1 - position.abs()).abs()
