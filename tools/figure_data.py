"""Computes what the figures of docs/how-it-works.md draw: python tools/figure_data.py [--budget 800] [--out FOLDER]

Everything is about one score, that of the predicted class of EfficientNet-Lite0 for scikit-image's photo chelsea: along
two lines through the photo, its gradients under noise, and small maps at several noise levels, rho and eta. Stored as
benchmarks/results/figures_cpu.json; takes minutes on a CPU. A map is a string of one character for each of its pixels.
"""

from __future__ import annotations

import argparse
import base64
import string
import sys
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from typing import Any

import torch
from matplotlib import colormaps
from PIL import Image
from torch import Tensor

sys.path.insert(0, str(Path(__file__).parents[1]))  # benchmarks are no part of the package

import moreaugrad as mg
from benchmarks import record

NOISE_LEVELS = (0.03, 0.1, 0.2, 0.3)
RHOS = (0.1, 0.3, 1.0, 3.0)
ETAS = (0.0, 0.0005, 0.001, 0.0015, 0.002, 0.003, 0.004, 0.005, 0.007, 0.01, 0.015)
NOISE_LEVEL, RHO, TAU = 0.1, 1.0, 0.1  # where only one of them is changed
SIDE = 56  # pixels of a small map
SMALL = 112  # of the photo
CHARACTERS = string.ascii_uppercase + string.ascii_lowercase + string.digits + "-_"
STEEP, STEP = (-6.0, 3.0), 0.03  # ends and step of the line along the gradient
ACROSS, PLAIN_POINTS, NOISY_POINTS = 60.0, 121, 25  # reach and points of the line along random noise
COPIES = 24  # noisy copies at each point of that line
DRAWS, BINS = 128, 48  # gradients whose entries are listed; bars of the histogram
TOGETHER = 16


@dataclass(frozen=True)
class Subject:
    """The score of one class for one photo."""

    model: mg.Classifier
    x: Tensor
    target: int

    def score(self, x: Tensor) -> Tensor:
        with torch.no_grad():
            return torch.cat([self.model(part)[:, self.target] for part in x.split(TOGETHER)])

    def score_and_grad(self, x: Tensor) -> tuple[Tensor, Tensor]:
        found = []
        for part in x.split(TOGETHER):
            leaf = part.clone().requires_grad_()
            value = self.model(leaf)[:, self.target]
            (grad,) = torch.autograd.grad(value.sum(), leaf)
            found.append((value.detach(), grad))
        values, grads = zip(*found, strict=True)
        return torch.cat(values), torch.cat(grads)

    def noise(self, level: float, copies: int, seed: int) -> Tensor:
        """Pairs of opposite noise vectors, relative to the range of the photo."""
        half = torch.randn(copies // 2, *self.x.shape[1:], generator=torch.Generator().manual_seed(seed))
        return level * (self.x.max() - self.x.min()) * torch.cat([half, -half])


def main() -> None:
    asked = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    asked.add_argument("--budget", type=int, default=800, help="gradients of a map")
    asked.add_argument("--out", type=Path, help="folder for the result")
    args = asked.parse_args()
    subject, photo = load_subject()
    found = {
        "command": " ".join(["python tools/figure_data.py", *(["--budget", str(args.budget)] * (args.budget != 800))]),
        "photo": photo,
        "budget": args.budget,
        "side": SIDE,
        "characters": CHARACTERS,
        "palette": ["#" + bytes(colour).hex() for colour in colormaps["inferno"](range(2, 256, 4), bytes=True)[:, :3]],
        "rho": {**measure_steep_line(subject), "maps": map_rhos(subject, args.budget)},
        "eta": map_etas(subject, args.budget),
        "statistic": sample_entries(subject),
    }
    found["sigma"], found["statistic"]["maps"] = measure_noise(subject, args.budget)
    record.store("figures", "cpu", found, args.out)


def load_subject() -> tuple[Subject, dict[str, Any]]:
    """The network's score, and the photo as the network sees it."""
    from skimage.data import chelsea

    model = mg.load_model("efficientnet_lite0", device="cpu")
    photo = Image.fromarray(chelsea())  # type: ignore[no-untyped-call]
    x = model.preprocess(photo)[None]
    target = int(model(x).argmax())
    seen = (x[0] - x.min()) / (x.max() - x.min())
    small = Image.fromarray((seen * 255).byte().permute(1, 2, 0).numpy()).resize((SMALL, SMALL))
    small.save(handle := BytesIO(), "JPEG", quality=80)
    encoded = base64.b64encode(handle.getvalue()).decode()
    assert model.labels is not None
    subject = Subject(model, x, target)
    label, score = model.labels[target], float(subject.score(x))
    return subject, {"label": label, "score": round(score, 3), "picture": f"data:image/jpeg;base64,{encoded}"}


def measure_steep_line(subject: Subject) -> dict[str, Any]:
    """The score along the gradient's direction, by the distance from the photo."""
    _, grad = subject.score_and_grad(subject.x)
    along = grad / grad.norm()
    t = torch.arange(STEEP[0], STEEP[1] + STEP / 2, STEP)
    score = subject.score(subject.x + t.view(-1, 1, 1, 1) * along)
    return {"start": STEEP[0], "step": STEP, "score": rounded(score, 4), "norm": float(grad.norm())}


def measure_noise(subject: Subject, budget: int) -> tuple[dict[str, Any], dict[str, str]]:
    """The score and its slope along a random direction, and the map, without noise and with more and more of it; and
    the maps of several statistics at one of the levels."""
    across = torch.randn(subject.x.shape, generator=torch.Generator().manual_seed(1))
    across = across / across.norm()
    score, slope = measure_slopes(subject, across, PLAIN_POINTS, torch.zeros(1))
    plain = mg.Gradient(subject.model).explain(subject.x, target=subject.target)
    levels = [{"noise_level": 0.0, "score": score, "slope": slope, "map": encode(plain.map), "relative_error": 0.0}]
    statistics: dict[str, str] = {}
    for level in NOISE_LEVELS:
        score, slope = measure_slopes(subject, across, NOISY_POINTS, subject.noise(level, COPIES, seed=2))
        method = mg.MoreauGrad(subject.model, rho=0, noise_level=level, budget=budget, tau=TAU)
        found = method.explain(subject.x, target=subject.target)
        error = round(float(found.relative_error), 3)
        row = {"noise_level": level, "score": score, "slope": slope, "map": encode(found.map), "relative_error": error}
        levels.append(row)
        if level == NOISE_LEVEL:
            assert found.statistics is not None
            statistics = {name: encode(each) for name, each in found.statistics.items()}
    return {"reach": ACROSS, "copies": COPIES, "levels": levels}, statistics


def measure_slopes(subject: Subject, across: Tensor, points: int, noise: Tensor) -> tuple[list[float], list[float]]:
    """The mean score over the noise, and its slope, at points of a line."""
    values, slopes = [], []
    for t in torch.linspace(-ACROSS, ACROSS, points):
        value, grad = subject.score_and_grad(subject.x + t * across + noise)
        values.append(value.mean())
        slopes.append((grad * across).flatten(1).sum(1).mean())
    return rounded(torch.stack(values), 4), rounded(torch.stack(slopes), 5)


def map_rhos(subject: Subject, budget: int) -> list[dict[str, Any]]:
    """Maps from rho = 0 on, their cosine with the first, and how far the minimiser lies from the photo."""
    rows: list[dict[str, Any]] = []
    first = torch.zeros(0)
    for rho in (0.0, *RHOS):
        method = mg.MoreauGrad(subject.model, rho=rho, noise_level=NOISE_LEVEL, budget=budget)
        found = method.explain(subject.x, target=subject.target)
        first = first if rows else found.map.flatten()
        row = {
            "rho": rho,
            "map": encode(found.map),
            "cosine": round(float(torch.cosine_similarity(first, found.map.flatten(), 0)), 3),
            "norm": round(float(found.map.norm()), 3),
            "distance": round(float(found.delta.norm()), 3),
            "relative_error": round(float(found.relative_error), 3),
            "converged": bool(found.converged),
        }
        rows.append(row)
    return rows


def map_etas(subject: Subject, budget: int) -> dict[str, Any]:
    """Sparse maps along a path, and how large the entries are before any threshold."""
    method = mg.SparseMoreauGrad(subject.model, rho=RHO, noise_level=NOISE_LEVEL, eta=ETAS, budget=budget)
    path = []
    for eta, found in zip(ETAS, method.explain(subject.x, target=subject.target), strict=True):
        kept, pixels = float(found.kept), float(found.pixels_kept)
        path.append({"eta": eta, "map": encode(found.map), "kept": round(kept, 4), "pixels": round(pixels, 4)})
        if not eta:
            edge = max(ETAS)
            counts = torch.histc(found.map.clamp(-edge, edge), BINS, -edge, edge)
    return {"path": path, "edge": edge, "counts": counts.long().tolist()}


def sample_entries(subject: Subject) -> dict[str, Any]:
    """Single entries of the gradient under noise: a steady one, one that changes sign, one with rare peaks, a weak one;
    and the size from which on an entry of each noisy copy gets a vote."""
    _, grads = subject.score_and_grad(subject.x + subject.noise(NOISE_LEVEL, DRAWS, seed=3))
    grads = grads.flatten(1)
    size = grads.abs()
    bounds = size.topk(round(TAU * grads.shape[1]), 1).values[:, -1]
    rms, votes = grads.square().mean(0).sqrt(), (size >= bounds[:, None]).float().mean(0)
    balance = grads.mean(0).abs() / rms
    large = rms >= rms.quantile(0.995)
    nowhere = -torch.inf
    chosen = {
        "steady": torch.where(large, balance, nowhere).argmax(),
        "changing": torch.where(large, -balance + 0.1 * votes, nowhere).argmax(),
        "rare": torch.where(rms >= rms.quantile(0.95), -votes, nowhere).argmax(),
        "weak": (rms - rms.quantile(0.5)).abs().argmin(),
    }
    entries = [{"kind": kind, "samples": rounded(grads[:, place], 5)} for kind, place in chosen.items()]
    return {"tau": TAU, "noise_level": NOISE_LEVEL, "bounds": rounded(bounds, 5), "entries": entries}


def encode(map: Tensor) -> str:
    """The map's absolute values, summed over the channels, as means over blocks: one character each, the root of the
    share of the largest that gets full colour, the 99th percentile of those that are not zero."""
    values = map[0].abs().sum(0)
    small = torch.nn.functional.adaptive_avg_pool2d(values[None], SIDE)[0]
    kept = small[small > 0]
    top = kept.quantile(0.99) if len(kept) else torch.tensor(1.0)
    levels = ((small / top).clamp(0, 1).sqrt() * (len(CHARACTERS) - 1)).ceil().long().flatten()
    return "".join(CHARACTERS[level] for level in levels.tolist())


def rounded(values: Tensor, digits: int) -> list[float]:
    return [round(value, digits) for value in values.tolist()]


if __name__ == "__main__":
    main()
