"""Data that a network learns in a few steps, and what tests of training look at."""

import json
from pathlib import Path

import numpy as np
import torch
from PIL import Image
from safetensors import safe_open

from moreaugrad.data.arrays import Arrays

CPU = torch.device("cpu")
WNIDS = ("n01443537", "n02124075", "n03400231", "n99999999")  # the last one is none of ImageNet's
NAMES = ("goldfish, Carassius auratus", "Egyptian cat", "frying pan, frypan, skillet", "made up")
COLOURS = ((220, 40, 40), (40, 200, 40), (40, 60, 220), (200, 200, 40))


def coloured(images: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Grainy images of three classes: mostly red, green, blue."""
    draw = np.random.default_rng(seed)
    labels = draw.integers(0, 3, images)
    pixels = draw.integers(0, 120, (images, 32, 32, 3))
    pixels[np.arange(images), :, :, labels] += 100
    return pixels.astype(np.uint8), labels.astype(np.uint8)


ARRAYS = Arrays(*coloured(128, 0), *coloured(60, 1))


def save_arrays(path: str | Path, **changes: np.ndarray | None) -> None:
    """The small arrays as a data file; None leaves one out."""
    found = {name: getattr(ARRAYS, name) for name in ("x_train", "y_train", "x_test", "y_test")} | changes
    np.savez(path, **{name: value for name, value in found.items() if value is not None})


def noisy(label: int, number: int) -> Image.Image:
    """A picture whose colour tells its class."""
    draw = np.random.default_rng((label, number))
    pixels = np.array(COLOURS[label]) + draw.integers(-40, 40, (64, 64, 3))
    return Image.fromarray(pixels.clip(0, 255).astype(np.uint8))


def make_tiny_imagenet(root: Path, train: int = 12, val: int = 2) -> Path:
    """The published layout with four classes; wnids.txt is not sorted, as in the published one."""
    lines = []
    (root / "val/images").mkdir(parents=True)
    for label, wnid in enumerate(WNIDS):
        place = root / "train" / wnid / "images"
        place.mkdir(parents=True)
        for number in range(train):
            noisy(label, number).save(place / f"{wnid}_{number}.JPEG")
        for number in range(val):
            name = f"val_{number * len(WNIDS) + label}.JPEG"
            noisy(label, 100 + number).save(root / "val/images" / name)
            lines.append((name, wnid, label, 2, 60 + label, 2))
    (root / "val/val_annotations.txt").write_text("".join("\t".join(map(str, line)) + "\n" for line in lines))
    (root / "wnids.txt").write_text("\n".join(reversed(WNIDS)) + "\n")
    (root / "words.txt").write_text("".join(f"{wnid}\t{name}\n" for wnid, name in zip(WNIDS, NAMES, strict=True)))
    return root


def metadata(path: str | Path) -> dict[str, str]:
    with safe_open(path, "pt") as file:
        return file.metadata()


def log_lines(path: str | Path) -> list[dict[str, float]]:
    return [json.loads(line) for line in Path(path).read_text().splitlines()]


def same_tensors(one: dict[str, torch.Tensor], other: dict[str, torch.Tensor]) -> bool:
    return one.keys() == other.keys() and all(torch.equal(one[name], other[name]) for name in one)


def assert_first_step(trainer, twin, loss: torch.Tensor, rtol: float, atol: float) -> None:
    """One epoch of one batch is w - lr (1 + m) (gradient + decay w), the first step of Nesterov."""
    recipe = trainer.recipe
    names, weights = zip(*twin.network.named_parameters(), strict=True)
    gradients = torch.autograd.grad(loss, weights)
    assert abs(trainer.advance()["train_loss"] - loss.item()) <= 1e-5
    after = dict(trainer.network.named_parameters())
    for name, weight, gradient in zip(names, weights, gradients, strict=True):
        decay = recipe.weight_decay if weight.ndim > 1 else 0.0
        wanted = weight - recipe.rate(0.5) * (1 + recipe.momentum) * (gradient + decay * weight)
        torch.testing.assert_close(after[name], wanted, rtol=rtol, atol=atol)
