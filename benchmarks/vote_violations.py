"""Attacks on certificates of votes whose truth is known, and how often their limits hold all at once.

    python -m benchmarks.vote_violations [--attempts 50000] [--cifar 0 --folder DIR] [--repetitions 20000]

The score is a sum of exponentials exp(<u_g, x_g>) of groups of entries: the group with the largest <u_g, x_g> + noise
gets the vote, so that votes are integrals in one dimension, known to rounding, and so are their derivatives. Attacks:
random changes, the steepest ones of each vote and of each pair, ascent on the distance of the maps, the slope of the
mean square. `reached`: the largest share of the permitted shift of a normal quantile that an attack made; it is 1 for
two units, where the bound is attained. `caught`: violations of limits that are a fifth too narrow.
With --cifar: a network for CIFAR-10, its votes counted afresh at every changed input (compared="computed").
"""

from __future__ import annotations

from argparse import Namespace
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

import moreaugrad as mg
from benchmarks import record
from moreaugrad.certificates import theory
from moreaugrad.certificates.theory import Box

SPREAD = 10.0  # of the grid of an integral, in standard deviations
SHARES = (0.02, 0.05, 0.1, 0.2, 0.5, 1.0)  # epsilon / sigma


class Exponentials(nn.Module):
    """sum over groups g of exp(<u_g, x_g>), |u_g| = 1, and its negative: the gradient of a group is u_g times it."""

    def __init__(self, labels: Tensor, along: Tensor) -> None:
        super().__init__()
        self.labels, self.along = labels, along
        self.eval()

    def levels(self, x: Tensor) -> Tensor:
        """<u_g, x_g>, which decides the vote."""
        found = x.new_zeros(len(x), int(self.labels.max()) + 1)
        return found.index_add(1, self.labels, x.flatten(1) * self.along)

    def forward(self, x: Tensor) -> Tensor:
        value = self.levels(x).exp().sum(1)
        return torch.stack([value, -value], 1)


def exact_votes(levels: Tensor, sigma: float) -> Tensor:
    """P(level g + sigma z_g is the largest), by the rectangle rule, which is exact to rounding here."""
    z = torch.linspace(-SPREAD, SPREAD, 241, dtype=levels.dtype)
    weight = torch.exp(-z.square() / 2) / torch.exp(-z.square() / 2).sum()
    gaps = (levels[:, :, None] - levels[:, None, :]) / sigma
    below = torch.special.log_ndtr(gaps[..., None] + z)
    own = torch.eye(levels.shape[1], dtype=torch.bool)[None, :, :, None]
    return (below.masked_fill(own, 0.0).sum(2).exp() * weight).sum(2)


@dataclass(frozen=True, eq=False)
class Case:
    """One input of one score, and how its map is made."""

    network: Exponentials
    x: Tensor
    sigma: float
    method: mg.MoreauGrad

    def votes(self, x: Tensor) -> Tensor:
        return exact_votes(self.network.levels(x), self.sigma)

    def maps(self, x: Tensor, eta: float) -> Tensor:
        """The ideal maps of some inputs."""
        return (self.votes(x) - eta).clamp_min(0)[:, self.network.labels]


def make_case(draw: torch.Generator) -> Case:
    """A random score of 2 to 9 units, and a prior: none, single entries, or groups."""
    kind, units = ("dense", "l1", "group")[_pick(draw, 3)], 2 + _pick(draw, 8)
    sizes = torch.randint(1, 4, (units,), generator=draw) if kind == "group" else torch.ones(units, dtype=torch.long)
    labels = torch.arange(units).repeat_interleave(sizes)
    along = torch.randn(len(labels), generator=draw, dtype=torch.float64)
    norms = torch.zeros(units, dtype=torch.float64).index_add(0, labels, along.square()).sqrt()
    network, sigma = Exponentials(labels, along / norms[labels]), 0.2 + float(torch.rand((), generator=draw))
    x = sigma * torch.randn(1, len(labels), generator=draw, dtype=torch.float64)
    prior: dict[str, Any] = {"prior": mg.Group(labels[None])} if kind == "group" else {"prior": mg.L1()}
    options = {} if kind == "dense" else prior | {"sparsity": 0.5}
    tau = 1.2 / units  # one vote for each copy
    smoothing = mg.Smoothing(sigma=sigma)
    return Case(
        network, x, sigma, mg.MoreauGrad(network, 0, statistic="votes", tau=tau, smoothing=smoothing, **options)
    )


def _pick(draw: torch.Generator, most: int) -> int:
    return int(torch.randint(most, (), generator=draw))


def changes(case: Case, found: mg.Certificate, eta: float, count: int, draw: torch.Generator) -> Iterator[Any]:
    """Names of attacks, and inputs within epsilon: (n, d)."""
    epsilon, x = found.epsilon, case.x
    noise = torch.randn(count // 4, x.shape[1], generator=draw, dtype=x.dtype)
    yield "random", x + epsilon * nn.functional.normalize(noise)
    inside = torch.rand(len(noise), 1, generator=draw, dtype=x.dtype)
    yield "inside", x + epsilon * inside * nn.functional.normalize(noise)
    slopes = torch.autograd.functional.jacobian(lambda at: case.votes(at)[0], x)[:, 0]
    pairs = torch.cat([slopes, *(slopes[i] - slopes[i + 1 :] for i in range(len(slopes) - 1))])
    steepest = nn.functional.normalize(torch.cat([pairs, -pairs]))
    yield "steepest", x + epsilon * steepest[: count // 4]
    square = torch.autograd.functional.jacobian(lambda at: (2 * case.network.levels(at)[0]).exp(), x)[:, 0]
    aims = torch.randn(max(1, count // 16), len(square), generator=draw, dtype=x.dtype) @ square
    yield "mean square", x + epsilon * nn.functional.normalize(aims)
    yield "ascent", torch.cat(list(ascend(case, eta, epsilon, max(2, count // 24), draw)))


def ascend(case: Case, eta: float, epsilon: float, starts: int, draw: torch.Generator) -> Iterator[Tensor]:
    """Projected ascent on weighted changes of the votes; every point on the way."""
    way = nn.functional.normalize(torch.randn(starts, case.x.shape[1], generator=draw, dtype=case.x.dtype))
    clean = case.votes(case.x)
    weights = torch.randn(starts, clean.shape[1], generator=draw, dtype=clean.dtype)
    for _ in range(6):
        way = way.detach().requires_grad_()
        (slope,) = torch.autograd.grad((weights * case.votes(case.x + epsilon * way)).sum(), way)
        way = nn.functional.normalize(way.detach() + nn.functional.normalize(slope))
        yield case.x + epsilon * way


def search(asked: Namespace) -> dict[str, Any]:
    """Certificates of random cases, each attacked about 200 times."""
    draw = torch.Generator().manual_seed(asked.seed)
    attempts, broken, caught, reached, certified = Counter(), Counter(), 0, 0.0, Counter()
    while sum(attempts.values()) < asked.attempts:
        case = make_case(draw)
        share = SHARES[_pick(draw, len(SHARES))]
        noise = mg.FreshNoise((500, 2000, 8000)[_pick(draw, 3)], asked.alpha)
        found = mg.certify(case.method, case.x, 0, share * case.sigma, noise=noise)[0]
        certified["certificates"] += 1
        certified["vacuous"] += found.vacuous
        eta = float(getattr(getattr(found.method, "method", found.method), "eta", None) or 0.0)
        truth = case.votes(case.x)
        for name, at in changes(case, found, eta, 200, draw):
            votes = case.votes(at)
            attempts[name] += len(at)
            maps = (votes - eta).clamp_min(0)[:, case.network.labels]
            broken[name] += sum(bool(found.violations(each)) for each in maps)
            moved = (torch.special.ndtri(votes) - torch.special.ndtri(truth)).abs() / share
            reached = max(reached, float(moved[(votes > 1e-9) & (votes < 1 - 1e-9)].nan_to_num(0).max()))
            low, high = theory.shift(Box(truth[0], truth[0]), 0.8 * share)
            caught += int(((votes < low) | (votes > high)).any(1).sum())
    return {
        "attempts": sum(attempts.values()),
        "violations": sum(broken.values()),
        "by_attack": [{"attack": name, "attempts": attempts[name], "violations": broken[name]} for name in attempts],
        "reached": reached,
        "caught": caught,
        **certified,
    }


def coverage(asked: Namespace) -> list[dict[str, Any]]:
    """How often all limits of a map hold at once, for votes that are known: one vote among the units each time."""
    draw, rows = torch.Generator().manual_seed(asked.seed), []
    for units, samples in ((5, 200), (20, 1000), (60, 2000)):
        levels = torch.randn(1, units, generator=draw, dtype=torch.float64)
        truth = exact_votes(levels, 0.7)[0]
        picks = torch.distributions.Multinomial(samples, truth)
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(asked.seed)
            counts = picks.sample((asked.repetitions,)).long()
        for alpha in (0.05, 0.001):
            box = theory.vote_box(counts.flatten(), samples, alpha, units)
            inside = (box.lower <= truth.repeat(len(counts))) & (truth.repeat(len(counts)) <= box.upper)
            held = float(inside.view(counts.shape).all(1).double().mean())
            rows.append({"units": units, "samples": samples, "alpha": alpha, "coverage": held})
    return [row | {"repetitions": asked.repetitions} for row in rows]


def cifar(asked: Namespace) -> dict[str, Any]:
    """A network for images: maps at changed inputs are counted as the certificate counts them."""
    from benchmarks.vote_sampling import CASES, load

    case = CASES["lipschitz_25"]
    model, x = load(case, Path(asked.folder), max(1, asked.cifar // 20), "cpu")
    smoothing, noise = mg.Smoothing(sigma=case.sigma), mg.FreshNoise(2000, asked.alpha)
    report = mg.ReportOptions(compared="computed", units="entries")
    draw, counted = torch.Generator().manual_seed(asked.seed), Counter(attempts=0, violations=0)
    for number, one in enumerate(x.split(1)):
        options = ({}, {"prior": mg.L1(), "sparsity": 0.05}, {"prior": mg.Group(8), "sparsity": 0.15})[number % 3]
        kind = mg.ReportOptions(compared="computed") if number % 3 == 2 else report
        method = mg.MoreauGrad(model, 0, statistic="votes", smoothing=smoothing, **options)
        target = int(model(one).argmax())
        found = mg.certify(method, one, target, SHARES[number % 4] * case.sigma, noise=noise, report=kind)[0]
        frozen = getattr(found.method, "method", found.method)
        for way in directions(model, one, target, found, draw):
            at = one + found.epsilon * way / way.norm()
            other = mg.certify(frozen, at, target, 0.0, noise=noise, report=kind)[0].map
            counted["attempts"] += 1
            counted["violations"] += bool(found.violations(other))
    return dict(counted) | {"images": len(x), "samples": 2000, "network": case.network}


def directions(model: Any, x: Tensor, target: int, found: mg.Certificate, draw: torch.Generator) -> Iterator[Tensor]:
    """Random ones, and the slope of the mean square of the gradient: of entries on top against those below."""
    for _ in range(10):
        yield torch.randn(x.shape, generator=draw)
    rank = found.map.flatten().argsort(descending=True)
    for step in range(10):
        aim = torch.zeros(x.numel())
        top = rank[: 307 // (1 + step % 3)]
        aim[top], aim[rank[307 : 307 + len(top)]] = -1.0, 1.0
        rows = (x + 0.25 * torch.randn(64, *x.shape[1:], generator=draw)).requires_grad_()
        (grad,) = torch.autograd.grad(model(rows)[:, target].sum(), rows, create_graph=True)
        (slope,) = torch.autograd.grad((grad.square().mean(0).flatten() * aim).sum(), rows)
        yield (-1) ** step * slope.sum(0, keepdim=True)


def main() -> None:
    asked = record.arguments(
        __doc__, False, attempts=50_000, alpha=0.001, repetitions=20_000, cifar=0, folder="", seed=0, part=""
    )
    torch.set_num_threads(1)
    found, seconds = record.timed(asked.device, lambda: search(asked))
    figures = {"seed": asked.seed, "alpha": asked.alpha, "seconds": seconds, "search": found}
    figures["coverage"] = coverage(asked)
    if asked.cifar:
        figures["cifar"] = cifar(asked)
    print(figures, flush=True)
    record.store(f"vote_violations{asked.part}", asked.device, figures, asked.out)


if __name__ == "__main__":
    main()
