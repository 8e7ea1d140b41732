"""Maps of a 1-Lipschitz network for 32 x 32 images, in float64 and without noise, with constants from its layers."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image
from torch import Tensor

import moreaugrad as mg
from certificate_fuzzer.cases import PRIORS, Case, Threshold, constant, method_of, pick
from moreaugrad.data.arrays import read_cifar10
from moreaugrad.model.lipschitz_bounds import lipschitz_bounds
from moreaugrad.model.noise import antithetic
from moreaugrad.models.checkpoint import WeightsUnavailableError

CAT = Path(__file__).parents[3] / "docs" / "chelsea.jpg"
SEED, SIGMA = 5, 0.1  # of frozen noise
BLOCKS = 8  # groups of the group prior, per side


def load(device: str) -> tuple[Any, str]:
    """The trained network where there is one; else one with random weights, whose constants hold just as well."""
    try:
        return mg.load_model("lipschitz_cifar10", device=device).double(), "lipschitz_cifar10"
    except WeightsUnavailableError:
        return mg.load_model("lipschitz", weights="random", device=device).double(), "lipschitz, random weights"


def pictures(draw: torch.Generator) -> tuple[str, Iterator[Image.Image]]:
    """Images of the CIFAR-10 test set where MOREAUGRAD_DATA holds it; else pieces of a photo. Without end."""
    found = _test_set(Path(os.environ.get("MOREAUGRAD_DATA", "")))
    if found is not None:
        return "CIFAR-10 test set", (Image.fromarray(found[i]) for i in _picks(len(found), draw))
    with Image.open(CAT) as opened:
        return "pieces of a photo", _pieces(opened.convert("RGB"), draw)


def _test_set(root: Path) -> Any:
    """As arrays in an .npz file, or as strips of pictures."""
    if (root / "cifar10.npz").is_file():
        return read_cifar10(root / "cifar10.npz").x_test
    strips = sorted((root / "cifar10" / "test").glob("*.webp"))[:1]
    return np.asarray(Image.open(strips[0]).convert("RGB")).reshape(-1, 32, 32, 3) if strips else None


def _picks(count: int, draw: torch.Generator) -> Iterator[int]:
    while True:
        yield int(torch.randint(count, (), generator=draw))


def _pieces(photo: Image.Image, draw: torch.Generator) -> Iterator[Image.Image]:
    while True:
        side = int(torch.randint(32, min(photo.size), (), generator=draw))
        left, upper = (int(torch.randint(room - side + 1, (), generator=draw)) for room in photo.size)
        yield photo.crop((left, upper, left + side, upper + side))


def image_cases(network: Any, images: Iterator[Image.Image], draw: torch.Generator) -> Iterator[Case]:
    """One case after the other, priors in turn."""
    for image in images:
        x = network.preprocess(image)[None]
        target = int(network(x).argmax())
        bend = lipschitz_bounds(network, of=target).curvature
        for prior in PRIORS:
            yield _case(network, x, target, prior, bend, draw)
        # frozen noise, which the attacker knows: the curvature stays that of the network
        yield _case(network, x, target, pick(PRIORS, draw), bend, draw, noisy=True)


def _case(
    network: Any, x: Tensor, target: int, prior: str, bend: float, draw: torch.Generator, noisy: bool = False
) -> Case:
    smoothing = mg.Smoothing(sigma=SIGMA, samples=2, fixed=True) if noisy else None
    leaf = x.clone().requires_grad_()
    (slope,) = torch.autograd.grad(network(leaf)[:, target].sum(), leaf)
    labels = torch.arange(x.numel(), device=x.device)
    if prior == "group":
        row = torch.arange(x.shape[-1], device=x.device) * BLOCKS // x.shape[-1]
        labels = (row[:, None] * BLOCKS + row[None]).expand(x.shape[1:]).flatten()
    sizes = Threshold(labels, 0.0).norms(slope)[0]
    eta = 0.0 if prior == "none" else float(sizes.quantile(pick((0.5, 0.8, 0.95), draw)))
    threshold = Threshold(labels, eta)
    rho = pick((0.2, 0.5, 0.8), draw) / bend
    length = float(threshold(slope).norm())
    return Case(
        "cifar",
        "1-Lipschitz" if not noisy else "1-Lipschitz, fixed noise",
        prior,
        method_of(network, rho, prior, threshold, compile=False, smoothing=smoothing, seed=SEED),
        threshold,
        x,
        bend,
        bend,
        pick((0.03, 0.1, 0.3), draw) * length / constant(rho, bend, bend, prior),
        k=max(1, round(0.1 * (BLOCKS**2 if prior == "group" else x[0, 0].numel()))),
        units="groups" if prior == "group" else "pixels",
        target=target,
        noise=None if not noisy else SIGMA * antithetic(tuple(x.shape[1:]), 2, SEED, 0, x),
    )
