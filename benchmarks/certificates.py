"""How much can be certified on CIFAR-10: certificates of maps at several noise levels and sizes of change.

    python -m benchmarks.certificates --data cifar10.npz --networks 0.25=FILE,0.5=FILE,1=FILE [--images 100]

Each network serves the noise it was trained for; sigma and epsilon are in pixels (values 0..1). Rows: the network by
its recipes (a Lipschitz network: mean gradients; any other: scores alone, on the whole map and on a grid), and
Sparsified SmoothGrad's certificate on the same network with the same sigma, samples and alpha. Vacuous: not one top
unit is sure to stay, or the map may vanish. `overlap`: the mean share of the top tenth that stays, 0 for vacuous ones.
"""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

import moreaugrad as mg
from benchmarks import record
from moreaugrad.certificates.theory import topk_overlap
from moreaugrad.models.checkpoint import read_metadata
from moreaugrad.models.classifier import Classifier
from moreaugrad.models.units import in_pixels

SHARES = (0.02, 0.05, 0.1, 0.2)  # epsilon / sigma


def cases(model: Classifier, steep: bool, sigma: float, asked: Namespace) -> Iterator[tuple[str, Any, dict[str, Any]]]:
    """Name, method and options of certify, for everything that applies to a network."""
    noise = mg.Smoothing(sigma=sigma)
    fresh = {"noise": mg.FreshNoise(asked.samples, asked.alpha)}
    problem = mg.CertifiedProblem(rho="certified", theta=asked.theta)
    if steep:
        known = {"assume": mg.Assumptions(lipschitz="exact"), "problem": problem}
        yield "lipschitz", mg.MoreauGrad(model, smoothing=noise), fresh | known
    else:
        quick = "float16" if asked.device.startswith("cuda") else None  # a range holds in every precision
        odds = mg.MoreauGrad(model, smoothing=noise, precision=quick)
        scores = {"noise": mg.FreshNoise(asked.scores, asked.alpha)}
        yield "local, 8x8 grid", odds, scores | {"problem": replace(problem, grid=8, centred=True)}
        yield "local, all pixels", odds, scores | {"problem": replace(problem, centred=True)}
    yield "sparsified smoothgrad", mg.SparsifiedSmoothGrad(model, smoothing=noise), fresh


def row(name: str, found: list[list[mg.Certificate]], accuracy: float, sigma: float) -> dict[str, Any]:
    """One line of the table: found[i][j] is image i at the share j."""
    first = [each[0] for each in found]
    shares = {
        str(share): {
            "not_vacuous": sum(not each[j].vacuous for each in found) / len(found),
            "overlap": sum(0 if each[j].vacuous else each[j].topk.overlap / each[j].topk.k for each in found)
            / len(found),
            "overlap_of_entries": sum(by_entries(each[j]) for each in found) / len(found),
            "cosine": float(np.median([each[j].change.cosine for each in found])),
        }
        for j, share in enumerate(SHARES)
    }
    known = {"case": name, "sigma": sigma, "images": len(found), "noisy_accuracy": accuracy}
    known |= {"k": first[0].topk.k, "units": first[0].topk.units, "samples": first[0].accuracy.samples}
    if first[0].constants.rho is not None:
        known |= {
            "rho": first[0].constants.rho,
            "map_length": float(np.median([each.change.norm for each in first])),
            "sampling_error": float(np.median([each.accuracy.sampling for each in first])),
            "map_lipschitz_at_0.1": float(np.median([each[2].constants.lipschitz for each in found])),
        }
    return known | {"at": shares}


def by_entries(found: mg.Certificate) -> float:
    """The share of the top tenth of the single entries that stays, by the same budget."""
    change = found.change
    if found.recipe == "ranks" or not change.budget < change.norm:
        return 0.0
    k = round(found.map.numel() / 10)
    return topk_overlap(found.map.abs(), k, change.budget) / k


def noisy_accuracy(model: Classifier, x: Tensor, y: Tensor, sigma: float) -> float:
    noise = torch.randn(x.shape, generator=torch.Generator().manual_seed(0)).to(x)
    with torch.no_grad():
        return float((model(x + sigma * noise).argmax(1) == y).float().mean())


def main() -> None:
    asked = record.arguments(
        __doc__, networks="", images=100, samples=50_000, scores=100_000, alpha=0.001, theta=0.05, only="", part=""
    )
    with np.load(asked.data, allow_pickle=False) as arrays:
        pixels, labels = arrays["x_test"], arrays["y_test"]
    chosen = np.random.default_rng(0).permutation(len(pixels))[:1000]
    table: list[dict[str, Any]] = []
    for entry in asked.networks.split(","):
        sigma, file = float(entry.split("=")[0]), Path(entry.split("=")[1])
        steep = "widths" in read_metadata(file)
        model = mg.load_model("lipschitz" if steep else "resnet18_softplus", weights=str(file), device=asked.device)
        model = model if steep else in_pixels(model)
        x = (torch.from_numpy(pixels[chosen]).permute(0, 3, 1, 2).float() / 255).to(asked.device) - model.mean
        accuracy = noisy_accuracy(model, x, torch.from_numpy(labels[chosen]).long().to(asked.device), sigma)
        for name, method, options in cases(model, steep, sigma, asked):
            if asked.only and name not in asked.only.split(";"):
                continue
            work = partial(certified, method, x[: asked.images], sigma, options)
            found, seconds = record.timed(asked.device, work)
            table.append(row(name, found, accuracy, sigma) | {"network": file.stem, "seconds": seconds})
            print(table[-1], flush=True)
            figures = {"shares": SHARES, "theta": asked.theta, "alpha": asked.alpha, "table": table}
            record.store("certificates" + asked.part, asked.device, figures, asked.out)


def certified(method: Any, x: Tensor, sigma: float, options: dict[str, Any]) -> list[list[mg.Certificate]]:
    """The certificates of every image at every share of sigma."""
    every = mg.certify(method, x, epsilon=SHARES[0] * sigma, **options)
    return [[first, *(first.at(share * sigma) for share in SHARES[1:])] for first in every]


if __name__ == "__main__":
    main()
