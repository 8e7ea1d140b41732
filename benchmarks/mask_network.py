"""Insertion and deletion of a mask network beside Grad-CAM and a random order, on held-out images.

    python -m benchmarks.mask_network --data CIFAR.npz --weights NET --network MASK [--device cuda] [--images 1000]

Pixels are ordered by decreasing map, ties at random. Deletion goes from the image to `rest`, insertion from `rest` to
the image. The result is the mean over the steps of the probability of the predicted class, relative to that of the
image: low deletion and high insertion are good. `rest` is a blur, as in the training of the mask network, or the mean
colour, which it was not trained on.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

import moreaugrad as mg
from benchmarks import record
from moreaugrad.methods.mask_network.objective import Phi

AT_ONCE = 2000  # rows per call of the classifier


def main() -> None:
    args = record.arguments(
        __doc__, model="resnet18_softplus", weights="", network="mask.safetensors", images=1000, steps=32, seed=0
    )
    model = mg.load_model(args.model, args.weights or None, device=args.device)
    x = images(args.data, model, args.images)
    target = probabilities(model, x).argmax(1)
    generator = torch.Generator(x.device).manual_seed(args.seed)
    mask = mg.MaskNetwork(model, args.network)
    ways: dict[str, Callable[[], Tensor]] = {
        "mask_network": lambda: mask.attribute(x, target=target),
        "gradcam": lambda: mg.GradCam(model).attribute(x, target=target),
        "random": lambda: torch.zeros_like(x[:, :1]),
    }
    rests = {"blur": Phi(*model.box).blur(x), "mean colour": torch.zeros_like(x)}
    table: list[dict[str, Any]] = []
    for name, make in ways.items():
        make()  # warms up
        found, seconds = record.timed(args.device, make)
        order = rank_pixels(found, generator)
        for kind, rest in rests.items():
            row: dict[str, Any] = {"method": name, "rest": kind, "seconds_per_image": seconds / len(x)}
            row |= curves(model, x, rest, target, order, args.steps)
            table.append(row)
            print(row, flush=True)
    notes = {"area": float(mask.attribute(x, target=target).mean()), "stages": list(mask.trained.stages)}
    results = {"images": len(x), "steps": args.steps, "mask": notes, "table": table}
    record.store("mask_network", args.device, results, args.out)


def images(data: Any, model: Any, count: int) -> Tensor:
    """Test images, spread evenly, normalised for the classifier."""
    pixels = torch.from_numpy(mg.read_cifar10(data).x_test)
    some = pixels[:: max(1, len(pixels) // count)][:count].to(model.device)
    return (some.permute(0, 3, 1, 2).float() / 255 - model.mean) / model.std


def rank_pixels(maps: Tensor, generator: torch.Generator) -> Tensor:
    """The rank of each pixel, 0 for the largest; ties in random order."""
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
            mixed = torch.where(first == (name == "insertion"), x, rest)
            total += _of(model, mixed, target) / (steps + 1)
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
