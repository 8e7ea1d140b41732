"""Augmentation: every move, Pillow's resize bit for bit, parts of the promised size."""

import numpy as np
import pytest
import torch
from PIL import Image

from moreaugrad.models import embedded
from moreaugrad.training.augment import crop_and_flip, move, normalise, resize, zoom_and_flip
from moreaugrad.training.recipes import FineTuningRecipe


def slowly(image: np.ndarray, down: int, right: int, flip: bool) -> np.ndarray:
    padded = np.pad(image, ((4, 4), (4, 4), (0, 0)), mode="reflect")
    cut = padded[4 + down : 4 + down + image.shape[0], 4 + right : 4 + right + image.shape[1]]
    return cut[:, ::-1] if flip else cut


def test_moves_are_crops_of_a_padded_image():
    pixels = np.random.default_rng(0).integers(0, 256, (162, 9, 12, 3), dtype=np.uint8)
    moves = [(down, right, flip) for down in range(-4, 5) for right in range(-4, 5) for flip in (False, True)]
    down, right, flip = (torch.tensor(each) for each in zip(*moves, strict=True))
    found = move(torch.from_numpy(pixels), down, right, flip)
    for image, ours, one in zip(pixels, found.numpy(), moves, strict=True):
        np.testing.assert_array_equal(ours, slowly(image, *one))


def test_augmentation_draws_every_move():
    image = np.random.default_rng(0).integers(0, 256, (32, 32, 3), dtype=np.uint8)
    pixels = torch.from_numpy(image).expand(4000, -1, -1, -1)
    found = crop_and_flip(pixels, torch.Generator().manual_seed(0))
    assert torch.equal(found, crop_and_flip(pixels, torch.Generator().manual_seed(0)))
    possible = {
        slowly(image, down, right, flip).tobytes()
        for down in range(-4, 5)
        for right in range(-4, 5)
        for flip in (False, True)
    }
    assert {each.tobytes() for each in found.numpy()} == possible  # 4000 draws miss one of 162 once in 10^8 times


@pytest.mark.parametrize("size", [32, 64, 100, 128, 224])
def test_resized_is_the_view_of_the_model_bit_for_bit(size):
    pixels = np.random.default_rng(size).integers(0, 256, (6, 64, 64, 3), dtype=np.uint8)
    pixels[0], pixels[1, ::2] = 255, 0  # beyond both ends of 8 bits
    view = embedded.tiny_view(size)
    found = resize(torch.from_numpy(pixels), size)
    np.testing.assert_array_equal(found.numpy(), [np.asarray(view.apply(Image.fromarray(each))[1]) for each in pixels])
    x = torch.stack([view.apply(Image.fromarray(each))[0] for each in pixels])
    torch.testing.assert_close(normalise(found, FineTuningRecipe.scale), x, rtol=0, atol=0)


def test_parts_are_pillows_resize_of_a_box():
    """Boxes in sixteenths of a pixel, which both sides hold exactly."""
    draw = np.random.default_rng(0)
    pixels = draw.integers(0, 256, (20, 48, 64, 3), dtype=np.uint8)
    (top, left), (height, width) = draw.integers(0, 256, (2, 20)) / 16, draw.integers(256, 512, (2, 20)) / 16
    down, across = (torch.tensor(np.stack(each, 1)) for each in ((top, height), (left, width)))
    boxes = np.stack([left, top, left + width, top + height], 1).tolist()
    found = resize(torch.from_numpy(pixels), 40, down, across).numpy()
    for image, ours, box in zip(pixels, found, boxes, strict=True):
        theirs = Image.fromarray(image).resize((40, 40), Image.Resampling.BICUBIC, box=tuple(box))
        np.testing.assert_array_equal(ours, np.asarray(theirs))


def test_zoom_draws_parts_of_the_promised_size():
    """A ramp across and one down: their slopes are the share of each axis that is seen, their middle its place."""
    ramp = np.broadcast_to(np.arange(64), (64, 64))
    image = torch.from_numpy(np.stack([ramp, ramp.T, ramp], 2).astype(np.uint8))
    pixels = image.expand(500, -1, -1, -1)
    found = zoom_and_flip(pixels, torch.Generator().manual_seed(0), 64)
    assert torch.equal(found, zoom_and_flip(pixels, torch.Generator().manual_seed(0), 64))
    inner = found[:, 8:56, 8:56].double()
    across = (inner[:, :, -1, 0] - inner[:, :, 0, 0]).mean(1) / 47
    down = (inner[:, -1, :, 1] - inner[:, 0, :, 1]).mean(1) / 47
    assert (across > 0).double().mean().item() == pytest.approx(0.5, abs=0.09)  # four deviations
    area, shape = (across.abs() * down), (across.abs() / down)
    assert area.min().item() == pytest.approx(0.35, abs=0.03)
    assert area.max().item() == pytest.approx(1, abs=0.03)
    assert (shape.min().item(), shape.max().item()) == pytest.approx((3 / 4, 4 / 3), abs=0.06)
    assert inner.min() < 10
    assert inner.max() > 53


@pytest.mark.gpu
def test_on_a_gpu_the_pixels_are_those_of_the_cpu():
    pixels = torch.randint(0, 256, (9, 64, 64, 3), dtype=torch.uint8)
    assert torch.equal(resize(pixels.cuda(), 128).cpu(), resize(pixels, 128))
    whole = zoom_and_flip(pixels.cuda(), torch.Generator("cuda").manual_seed(0), 128)
    assert whole.shape == (9, 128, 128, 3)
