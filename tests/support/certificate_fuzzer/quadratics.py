"""Quadratic scores y'Hy/2 + b'y of chosen spectrum, on which the constants are sharp, with and without a prior.

random: any basis; isotropic: every direction bends as much as the sharp one, so that the map can go anywhere;
sharp: one direction e of kept entries, one f of dropped ones, and He as long as e'He allows (theory: the bound is
attained when x moves along He). All else is turned at random.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from certificate_fuzzer.cases import Case, Threshold, constant, dividing, make_case, normal, pick, uniform, units
from moreaugrad.certificates import theory as cert

KINDS = ("random", "isotropic", "sharp")
SIZES = (2, 3, 4, 8, 16, 32)


class Quadratic(nn.Module):
    """y'Hy/2 + b'y, and one less: two classes, the first of which always wins."""

    def __init__(self, hessian: Tensor, slope: Tensor) -> None:
        super().__init__()
        self.register_buffer("hessian", hessian)
        self.register_buffer("slope", slope)

    def forward(self, y: Tensor) -> Tensor:
        score = ((y @ self.hessian) * y).sum(1) / 2 + y @ self.slope
        return torch.stack([score, score - 1], 1)


def make(kind: str, prior: str, draw: torch.Generator, size: int | None = None) -> Case:
    """A case of that kind; sizes and constants are drawn unless they are given."""
    size = size or pick(SIZES, draw)
    rho, lam, beta = curvatures(draw)
    if prior == "none" and kind == "sharp":
        kind = "isotropic"  # without a prior an extreme eigenvector is the sharp direction
    if kind == "sharp":
        dual, threshold = _clear(prior, size, draw)
        size = dual.numel()
        hessian = _sharp(threshold(dual)[0], threshold.labels, rho, lam, beta, draw)
    else:
        dual, labels = normal(1, size, draw=draw), units(prior, size, draw)
        threshold = Threshold(labels, 0.0 if prior == "none" else dividing(dual, labels, draw))
        hessian = _turned(_spectrum(kind, prior, size, (rho, lam, beta), draw), draw)
    found = threshold(dual)
    at = normal(1, size, draw=draw)  # x + delta
    score = Quadratic(hessian, (dual - at @ hessian)[0])
    moves = constant(rho, lam, beta, prior)
    epsilon = pick((0.02, 0.1, 0.3, 0.6, 0.95), draw) * float(found.norm()) / moves
    if kind == "sharp":  # nothing may enter or vanish on the way: the score of the kept entries must stay quadratic
        slack = float((threshold.eta - threshold.norms(dual)[threshold.norms(found) == 0]).min())
        kept = float(threshold.norms(found)[threshold.norms(found) > 0].min())
        epsilon = 0.9 * min(slack / cert.lip_dual(rho, lam, beta), kept / moves)
    return make_case(("quadratic", kind, prior), score, at, dual, threshold, (rho, lam, beta), epsilon, draw)


def curvatures(draw: torch.Generator) -> tuple[float, float, float]:
    """rho, lam, beta: from barely to strongly curved, either side leading."""
    rho = 10 ** uniform(-1, 0.5, draw)
    low = pick((0.0, 0.05, 0.2, 0.5, 0.8, 0.9), draw)
    high = pick((-0.5 * low, 0.1, 1.0, 3.0, 10.0, 30.0, low), draw) or 1.0
    return rho, low / rho, high / rho


def _spectrum(kind: str, prior: str, size: int, bounds: tuple[float, float, float], draw: torch.Generator) -> Tensor:
    rho, lam, beta = bounds
    if kind == "random":
        values = torch.rand(size, generator=draw, dtype=torch.float64) * (beta + lam) - lam
        values[0], values[-1] = -lam, beta
        return values
    bent = lam / (1 - rho * lam) >= (beta / (1 + rho * beta) if prior == "none" else beta)
    return torch.full((size,), -lam if bent else beta, dtype=torch.float64)


def _turned(values: Tensor, draw: torch.Generator) -> Tensor:
    basis = _basis(len(values), draw)
    return _even(basis @ values.diag() @ basis.T)


def _basis(size: int, draw: torch.Generator) -> Tensor:
    return torch.linalg.qr(normal(size, size, draw=draw))[0]


def _even(matrix: Tensor) -> Tensor:
    return (matrix + matrix.T) / 2


def _clear(prior: str, size: int, draw: torch.Generator) -> tuple[Tensor, Threshold]:
    """A dual gradient some units of which are clearly kept and the others clearly dropped."""
    labels = units(prior, max(size, 4 if prior == "group" else 2), draw)
    count = int(labels.max()) + 1
    if count == 1:  # one group alone has nothing to be dropped
        labels, count = torch.arange(len(labels)) % 2, 2
    kept = torch.arange(count) < int(torch.randint(1, count, (), generator=draw))
    wanted = torch.where(kept, 1.5, 0.3) + 0.5 * torch.rand(count, generator=draw, dtype=torch.float64) * kept
    dual = normal(1, len(labels), draw=draw)
    return dual * (wanted / Threshold(labels, 0.0).norms(dual)[0])[labels], Threshold(labels, 1.0)


def _sharp(found: Tensor, labels: Tensor, rho: float, lam: float, beta: float, draw: torch.Generator) -> Tensor:
    """[[a, c], [c, d]] on (e, f) with eigenvalues -lam and beta and a = h/rho where the constant has its maximum."""
    low, high = rho * lam, rho * beta
    best = -low if high <= low else max(-low, min(1 - 2 * low * high / (high - low), high))
    a = best / rho
    d = beta - lam - a
    c = math.sqrt(max(0.0, a * d + lam * beta))
    kept = found != 0
    first = int(labels[kept][0])
    e = torch.where(labels == first, found, 0.0) / found[labels == first].norm()  # along the unit: its norm is smooth
    f = torch.where(kept, 0.0, normal(len(found), draw=draw))
    f = f / f.norm()
    hessian = a * torch.outer(e, e) + d * torch.outer(f, f) + c * (torch.outer(e, f) + torch.outer(f, e))
    for part, taken in ((kept, e), (~kept, f)):  # the rest of either side, by itself
        away = torch.diag(part.double()) - torch.outer(taken, taken)
        values = torch.rand(len(found), generator=draw, dtype=torch.float64) * (beta + lam) - lam
        hessian = hessian + away @ _turned_within(values, part, away, draw) @ away
    return _even(hessian)


def _turned_within(values: Tensor, part: Tensor, away: Tensor, draw: torch.Generator) -> Tensor:
    """A random symmetric matrix whose eigenvalues on the range of the projection `away` lie among `values`."""
    rank = int(part.sum()) - 1
    if rank == 0:
        return torch.zeros_like(away)
    basis = torch.linalg.eigh(_even(away))[1][:, -rank:] @ _basis(rank, draw)
    return basis @ values[:rank].diag() @ basis.T
