"""Insertion and deletion of a mask network beside Grad-CAM and a random order, on images that it was not trained on.

    python -m benchmarks.mask_network --data CIFAR.npz --weights NET --network MASK [--device cuda] [--images 1000]

Pixels go by falling map, ties at random. Deletion: from the image to `rest`; insertion: from `rest` to the image.
The figure is the mean over the steps of the probability of the predicted class, relative to that of the image:
low deletion, high insertion. `rest` is a blur as in the mask network's training, or the mean colour, which is not.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from benchmarks import record
from moreaugrad.data.arrays import read_cifar10
from moreaugrad.methods.cam.cam import GradCam
from moreaugrad.methods.mask_network.blend import Phi
from moreaugrad.methods.mask_network.mask_network import MaskNetwork
from moreaugrad.models import load_model

AT_ONCE = 2000  # rows per call of the classifier


def main() -> None:
    asked = record.arguments(
        __doc__, model="resnet18_softplus", weights="", network="mask.safetensors", images=1000, steps=32, seed=0
    )
    model = load_model(asked.model, asked.weights or None, device=asked.device)
    x = images(asked.data, model, asked.images)
    target = probabilities(model, x).argmax(1)
    generator = torch.Generator(x.device).manual_seed(asked.seed)
    mask = MaskNetwork(model, asked.network)
    ways: dict[str, Callable[[], Tensor]] = {
        "mask_network": lambda: mask.attribute(x, target),
        "gradcam": lambda: GradCam(model).attribute(x, target),
        "random": lambda: torch.zeros_like(x[:, :1]),
    }
    rests = {"blur": Phi(*model.box).blur(x), "mean colour": torch.zeros_like(x)}
    table: list[dict[str, Any]] = []
    for name, make in ways.items():
        make()  # warms up
        found, seconds = record.timed(asked.device, make)
        order = falling(found, generator)
        for kind, rest in rests.items():
            row: dict[str, Any] = {"method": name, "rest": kind, "seconds_per_image": seconds / len(x)}
            row |= curves(model, x, rest, target, order, asked.steps)
            table.append(row)
            print(row, flush=True)
    notes = {"area": float(mask.attribute(x, target).mean()), "stages": list(mask.trained.stages)}
    figures = {"images": len(x), "steps": asked.steps, "mask": notes, "table": table}
    record.store("mask_network", asked.device, figures, asked.out)


def images(data: Any, model: Any, count: int) -> Tensor:
    """Test images, spread evenly, as the classifier sees them."""
    pixels = torch.from_numpy(read_cifar10(data).x_test)
    some = pixels[:: max(1, len(pixels) // count)][:count].to(model.device)
    return (some.permute(0, 3, 1, 2).float() / 255 - model.mean) / model.std


def falling(maps: Tensor, generator: torch.Generator) -> Tensor:
    """The rank of each pixel, 0 for the largest; equal ones in random order."""
    flat = maps.flatten(1)
    shuffle = torch.rand(flat.shape, generator=generator, device=flat.device).argsort(1)
    order = shuffle.gather(1, flat.gather(1, shuffle).argsort(dim=1, descending=True, stable=True))
    return order.argsort(1).view(len(maps), 1, *maps.shape[2:])


def curves(model: nn.Module, x: Tensor, rest: Tensor, target: Tensor, rank: Tensor, steps: int) -> dict[str, float]:
    """Mean over the steps and over the images, with the standard error over the images."""
    pixels = rank[0].numel()
    whole = _of(model, x, target)
    found: dict[str, float] = {}
    for name in ("deletion", "insertion"):
        total = torch.zeros_like(whole)
        for step in range(steps + 1):
            first = rank < round(pixels * step / steps)
            seen = torch.where(first == (name == "insertion"), x, rest)
            total += _of(model, seen, target) / (steps + 1)
        ratio = total / whole
        found |= {name: float(ratio.mean()), f"{name}_stderr": float(ratio.std() / len(x) ** 0.5)}
    return found


def probabilities(model: nn.Module, x: Tensor) -> Tensor:
    with torch.no_grad():
        return torch.cat([model(some).softmax(1) for some in x.split(AT_ONCE)])


def _of(model: nn.Module, x: Tensor, target: Tensor) -> Tensor:
    return probabilities(model, x).gather(1, target[:, None])[:, 0]


if __name__ == "__main__":
    main()
