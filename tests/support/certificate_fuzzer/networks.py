"""Small smooth networks with exact constants: softplus and tanh, one and two hidden layers.

One hidden layer a's(Wx + c): the second derivative is W' diag(a s'') W, so lam and beta are the largest eigenvalues of
W' diag(w) W, w the largest values of -a s'' and of a s''. Two: such a term of each layer. `centred`: at the minimiser
every unit bends as much as it can, and the rows of W are orthonormal, so that a constant is attained.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from certificate_fuzzer.cases import Case, Threshold, constant, dividing, make_case, normal, pick, uniform, units

KINDS = ("convex", "softplus", "tanh", "centred", "two softplus", "two tanh")
SIZES = (4, 8, 16, 32)
BENDS = {"softplus": (0.0, 0.25), "tanh": (4 / math.sqrt(27), 4 / math.sqrt(27))}  # sup of -s'' and of s''


class Layered(nn.Module):
    """One or two hidden layers and a weight for each unit of the last; two classes, the first of which always wins."""

    def __init__(self, activation: str, weights: list[Tensor], shifts: list[Tensor], last: Tensor) -> None:
        super().__init__()
        self.activation = activation
        self.weights, self.shifts, self.last = weights, shifts, last

    def forward(self, y: Tensor) -> Tensor:
        for weight, shift in zip(self.weights, self.shifts, strict=True):
            y = y @ weight.T + shift
            y = y.tanh() if self.activation == "tanh" else torch.logaddexp(y, torch.zeros_like(y))
        score = y @ self.last
        return torch.stack([score, score - 1], 1)


def bends(network: Layered) -> tuple[float, float]:
    """lam and beta."""
    down, up = BENDS[network.activation]
    first, last = network.weights[0], network.last
    sides = [last.clamp_min(0) * a + (-last).clamp_min(0) * b for a, b in ((down, up), (up, down))]
    if len(network.weights) == 1:
        return _largest(first, sides[0]), _largest(first, sides[1])
    # s'(Wx + c) <= 1 scales the bend of the second layer; what the second layer passes on scales that of the first
    reach = float(torch.linalg.matrix_norm(first, 2)) ** 2
    passed = last[:, None] * network.weights[1]
    most, least = passed.clamp_min(0).sum(0), (-passed).clamp_min(0).sum(0)
    inner = [torch.maximum(most * a, least * b) for a, b in ((down, up), (up, down))]
    outer = [_largest(network.weights[1], side) for side in sides]
    return reach * outer[0] + _largest(first, inner[0]), reach * outer[1] + _largest(first, inner[1])


def _largest(matrix: Tensor, weights: Tensor) -> float:
    """The largest eigenvalue of W' diag(w) W with w >= 0, rounded up."""
    return float(torch.linalg.eigvalsh(matrix.T @ (weights[:, None] * matrix))[-1].clamp_min(0)) * (1 + 1e-12)


def make(kind: str, prior: str, draw: torch.Generator) -> Case:
    """A case of that kind; sizes, weights and rho are drawn."""
    size = pick(SIZES, draw)
    at = normal(1, size, draw=draw)  # x + delta
    score = _layered(kind, size, at, draw)
    lam, beta = bends(score)
    if kind == "convex" and prior == "none" and uniform(0, 1, draw) < 0.5:
        beta = math.inf  # that a score is convex is enough: its map is 1/rho-Lipschitz
    rho = pick((0.1, 0.3, 0.5, 0.7, 0.9), draw) / lam if lam > 0 else 10 ** uniform(-1, 1, draw)
    dual = _gradient(score, at)
    labels = units(prior, size, draw)
    threshold = Threshold(labels, 0.0 if prior == "none" else dividing(dual, labels, draw))
    found = threshold(dual)
    epsilon = pick((0.02, 0.1, 0.3, 0.6, 0.95), draw) * float(found.norm()) / constant(rho, lam, beta, prior)
    return make_case(("network", kind, prior), score, at, dual, threshold, (rho, lam, beta), epsilon, draw)


def _layered(kind: str, size: int, at: Tensor, draw: torch.Generator) -> Layered:
    activation = "tanh" if "tanh" in kind or (kind == "centred" and uniform(0, 1, draw) < 0.5) else "softplus"
    wide = pick((size, 2 * size), draw)
    first, last = normal(wide, size, draw=draw) / math.sqrt(size), normal(wide, draw=draw)
    shift = normal(wide, draw=draw) / 2
    if kind == "convex":
        last = last.abs()
    if kind == "centred":
        first, last = torch.linalg.qr(normal(size, size, draw=draw))[0], last[:size]
        # tanh bends most where its square is 1/3, softplus at zero
        peak = math.atanh(math.sqrt(1 / 3)) * last.sign() if activation == "tanh" else torch.zeros(size)
        shift = peak.double() * pick((-1.0, 1.0), draw) - (at @ first.T)[0]
    if not kind.startswith("two"):
        return Layered(activation, [first], [shift], last)
    deep = pick((4, 8, 16), draw)
    second = normal(deep, wide, draw=draw) / math.sqrt(wide)
    return Layered(activation, [first, second], [shift, normal(deep, draw=draw) / 2], normal(deep, draw=draw))


def _gradient(score: nn.Module, at: Tensor) -> Tensor:
    leaf = at.clone().requires_grad_()
    (found,) = torch.autograd.grad(score(leaf)[:, 0].sum(), leaf)
    return found
