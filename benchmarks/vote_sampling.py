"""Counts the votes of images that `benchmarks.vote_certificates` certifies; stops and goes on where it was.

    python -m benchmarks.vote_sampling --data DIR --case lipschitz_25 [--images 100] [--samples 10000] [--counts DIR]
        [--weights FILE]

DIR holds cifar10 (strips of 32 x 32 pictures) and imagenet_sample; FILE the weights of a network that is not shipped
(case resnet18_noise25). One set of gradients on independent noise gives all ballots: entries, pixels and groups. Noise
is drawn afresh. Beside the votes: the sums of Sparsified SmoothGrad's relaxed shares, averaged over the channels.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image
from torch import Tensor

import moreaugrad as mg
from benchmarks import photos, record
from moreaugrad.certificates.ballots import Ballot
from moreaugrad.certificates.measurement import SampledScore
from moreaugrad.methods.sparsified import sparsify

BLOCK = 1000  # samples between two writes
TAU, GAMMA = 0.1, 0.01


@dataclass(frozen=True)
class Case:
    """A network, the images it explains, and the noise in units of its input."""

    network: str
    sigma: float
    photos: bool = False


CASES = {
    "lipschitz_25": Case("lipschitz_cifar10", 0.25),
    "lipschitz_50": Case("lipschitz_cifar10_noise50", 0.5),
    "lipschitz_100": Case("lipschitz_cifar10_noise100", 1.0),
    "resnet18_25": Case("resnet18_softplus_cifar10", 0.25),
    "resnet18_noise25": Case("resnet18_softplus", 0.25),  # trained under noise of .25: `train cifar10 --noise-sigma`
    "photos_25": Case("efficientnet_lite0", 0.25, photos=True),
    "photos_50": Case("efficientnet_lite0", 0.5, photos=True),
}


def load(case: Case, folder: Path, images: int, device: str, weights: str = "") -> tuple[Any, Tensor]:
    """The network and the images as it takes them: CIFAR-10 in pixels, photos normalised."""
    if case.photos:
        model, x = photos.load(folder / "imagenet_sample", images, device)
        model.to(memory_format=torch.channels_last)  # half as fast again on a CPU
        return lambda rows: model(rows.contiguous(memory_format=torch.channels_last)), x
    model = mg.in_pixels(mg.load_model(case.network, weights or None, device=device))
    strips = [np.asarray(Image.open(file)) for file in sorted((folder / "cifar10" / "test").glob("*.webp"))]
    pixels = np.concatenate([each.reshape(-1, 32, 32, 3) for each in strips])
    chosen = np.random.default_rng(0).permutation(len(pixels))[:images]
    x = torch.from_numpy(pixels[chosen]).permute(0, 3, 1, 2).float() / 255
    return model, x.to(device) - model.mean


def ballots(x: Tensor) -> dict[str, Ballot]:
    """Every ballot over one image, by its name."""
    high, wide = x.shape[-2:]
    pixels = torch.arange(high * wide).view(high, wide)
    found = {"entries_10": (mg.L1(), 0.1), "pixels_10": (mg.Group(pixels).for_batch(x), 0.1)}
    for cells in (8, 16):
        for tau in (0.1, 0.15, 0.25):
            found[f"groups{cells}_{round(100 * tau)}"] = mg.Group(cells).for_batch(x), tau
    return {name: Ballot.of(prior, x, tau) for name, (prior, tau) in found.items()}


def count_block(score: SampledScore, x: Tensor, samples: int) -> dict[str, np.ndarray[Any, Any]]:
    """The votes of one block, and the sums of the relaxed shares of pixels."""
    held, size = ballots(x), x[0].numel()
    totals = {name: torch.zeros(each.prior.units(x).shape[1], dtype=torch.long) for name, each in held.items()}
    relaxed = torch.zeros(x.shape[-2:].numel(), dtype=torch.float64)
    for rows, _ in score.draw(x, samples):
        grads = score.gradients(rows)
        for name, each in held.items():
            totals[name] += each.count(grads).cpu()
        kept = sparsify(grads[None], int(TAU * size), max(1, int(GAMMA * size)))[0]
        relaxed += kept.double().mean(1).flatten(1).sum(0).cpu()
    return {name: each.numpy() for name, each in (totals | {"relaxed": relaxed}).items()}


def blocks(path: Path, samples: int) -> Iterator[tuple[int, dict[str, Any]]]:
    """What is still to be counted: the size of each block, and what the file holds before it."""
    while True:
        held = dict(np.load(path, allow_pickle=False)) if path.is_file() else {}
        done = int(held.get("samples", 0))
        if done >= samples:
            return
        yield min(BLOCK, samples - done), held


def sample_image(model: Any, x: Tensor, sigma: float, path: Path, samples: int) -> None:
    """Adds blocks to the counts of one image until there are enough."""
    with torch.no_grad():
        target = int(model(x).argmax(1))
    for size, held in blocks(path, samples):
        generator = torch.Generator(x.device).manual_seed(secrets.randbits(62))
        found = count_block(SampledScore(model, "logit", target, sigma, generator), x, size)
        added = {name: held.get(name, 0) + each for name, each in found.items()}
        part = path.with_suffix(".part.npz")
        np.savez_compressed(part, samples=held.get("samples", 0) + size, target=target, sigma=sigma, **added)
        part.replace(path)


def main() -> None:
    asked = record.arguments(__doc__, case="", images=100, samples=10_000, counts="build/votes", weights="")
    torch.set_num_threads(1)
    for name in asked.case.split(","):
        model, x = load(CASES[name], asked.data, asked.images, asked.device, asked.weights)
        folder = Path(asked.counts) / name
        folder.mkdir(parents=True, exist_ok=True)
        for number, image in enumerate(x.split(1)):
            path, sigma = folder / f"{number:03}.npz", CASES[name].sigma
            work = partial(sample_image, model, image, sigma, path, asked.samples)
            print(name, number, f"{record.timed(asked.device, work)[1]:.1f} s", flush=True)


if __name__ == "__main__":
    main()
