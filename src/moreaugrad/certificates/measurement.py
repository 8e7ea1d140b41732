"""The measurement of one image's map: its solution, the gradient there, and how far that may be from the truth.

How a solution is found does not matter, how it is judged does. What a method chose from the input is frozen here. Noise
is fresh and its samples are independent, not in pairs.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, fields, replace
from types import SimpleNamespace
from typing import Any, NamedTuple, TypeAlias

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn import functional as F

from moreaugrad import validate
from moreaugrad.certificates import theory
from moreaugrad.envelope.envelope import Envelope
from moreaugrad.envelope.priors import L1, Group, Zero
from moreaugrad.methods.moreau import MoreauGrad
from moreaugrad.model.bounded import Odds, log_odds
from moreaugrad.model.prepared import Engine, choose_precision, numerics
from moreaugrad.model.score import KINDS
from moreaugrad.model.smoothing import antithetic, draw_seed
from moreaugrad.types import Images, Prior

KNOWN_PRIORS = (Zero, L1, Group)
ROUNDS = 4  # of the fixed point; each forgets 1 - rho * lam of the error of the last
WIDTH = 0.3  # of the centred odds, in standard deviations under the noise: narrower is nearly a vote
PHOTO = 3 * 224 * 224


@dataclass(frozen=True, slots=True)
class Subspace:
    """Where displacements live: all entries of an image, or P q, each channel constant on cells x cells blocks.

    P'P = 1, so that lengths are those of the pattern.
    """

    image: tuple[int, ...]  # channels, height, width; any shape without cells
    cells: int | None = None

    def __post_init__(self) -> None:
        if self.cells is None:
            return
        validate.at_least("grid", self.cells, 1)
        if len(self.image) != 3 or self.image[1] % self.cells or self.image[2] % self.cells:
            raise ValueError(
                f"grid must divide the height and width of (channels, height, width), got {self.cells} for {self.image}"
            )

    @property
    def shape(self) -> tuple[int, ...]:
        return self.image if self.cells is None else (self.image[0], self.cells, self.cells)

    @property
    def size(self) -> int:
        return math.prod(self.shape)

    def project(self, x: Float[Tensor, "n ..."]) -> Float[Tensor, "n ..."]:
        if self.cells is None:
            return x
        high, wide = (side // self.cells for side in self.image[1:])
        return F.avg_pool2d(x, (high, wide)) * math.sqrt(high * wide)

    def embed(self, q: Float[Tensor, "n ..."]) -> Float[Tensor, "n ..."]:
        if self.cells is None:
            return q
        high, wide = (side // self.cells for side in self.image[1:])
        return q.repeat_interleave(high, 2).repeat_interleave(wide, 3) / math.sqrt(high * wide)


class Estimate(NamedTuple):
    """A mean gradient of one image, in the space of displacements and in float64, and how far it may be off."""

    gradient: Images
    error: float


Estimator: TypeAlias = Callable[[Images, int], Estimate]  # of the gradient at a point, from so many fresh samples


@dataclass(frozen=True, eq=False)
class SampledScore:
    """One image's class score under noise of a fixed sigma, to be averaged again and again on new draws."""

    run: Callable[[Images], Any]  # rows -> the network's outputs
    kind: str
    target: int
    sigma: float
    generator: torch.Generator
    odds: Odds | None = None  # in place of the score

    def mean_gradient(self, y: Images, samples: int, L: float, alpha: float) -> Estimate:
        """Mean of the gradients at y, of an L-Lipschitz score: two bounds of its error, both held at once.

        The plain one at alpha/2; the one that knows the variance at alpha/4, and its variance at alpha/4.
        """
        total, halves, longest = torch.zeros_like(y, dtype=torch.float64), [], 0.0
        for rows, _ in self.draw(y, samples):
            grads = self.gradients(rows)
            longest = max(longest, float(grads.flatten(1).norm(dim=1).max()))
            total += grads.double().sum(0, keepdim=True)
            even = grads[: len(grads) // 2 * 2].flatten(1)
            halves.append((even[0::2] - even[1::2]).double().square().sum(1) / 2)
        if not longest <= L * (1 + 1e-4):
            raise ValueError(
                f"lipschitz must bound every gradient, got {L:g}, but one of length {longest:.6g} occurred"
            )
        variance = theory.variance_bound(torch.cat(halves), L, alpha / 4)
        plain, aware = theory.err_backprop(L, samples, alpha / 2), theory.err_bernstein(L, variance, samples, alpha / 4)
        return Estimate(total / samples, min(plain, aware))

    def score_function(
        self, y: Images, samples: int, bounds: tuple[float, float], alpha: float, space: Subspace
    ) -> Estimate:
        """(1/(m sigma)) sum (f(y + sigma z) - middle) P'z: needs the range of f alone, and no gradient."""
        middle, least, most = sum(bounds) / 2, bounds[1], bounds[0]
        total = torch.zeros((1, *space.shape), dtype=torch.float64, device=y.device)
        for rows, noise in self.draw(y, samples):
            values = self.values(rows)
            least, most = min(least, float(values.min())), max(most, float(values.max()))
            weighted = ((values - middle).view(-1, *[1] * (y.ndim - 1)) * noise).sum(0, keepdim=True)
            total += space.project(weighted).double()
        slack = 1e-3 * (bounds[1] - bounds[0])  # float32, and float16 more, lets a softmax leave [0, 1] by so little
        if not (least >= bounds[0] - slack and most <= bounds[1] + slack):
            raise ValueError(
                f"bounds must hold every score, got {bounds}, but scores {least:.6g} to {most:.6g} occurred"
            )
        error = theory.err_stein(space.size, samples, alpha, self.sigma, bounds[1] - bounds[0])
        return Estimate(total / (samples * self.sigma), error)

    def interval(self, x: Images, samples: int, bounds: tuple[float, float], alpha: float) -> tuple[float, float]:
        """Where the mean score at x lies, as shares of its range."""
        low, width = bounds[0], bounds[1] - bounds[0]
        total = sum(float(self.values(rows).double().clamp(*bounds).sum()) for rows, _ in self.draw(x, samples))
        return theory.kl_interval(min(max((total / samples - low) / width, 0.0), 1.0), samples, alpha)

    def centre_odds(self, x: Images, samples: int, network: Any) -> Odds:
        """The odds as a score that uses its range up at x: centred there, as wide as the noise makes them."""
        found = [log_odds(self._outputs(rows))[:, self.target] for rows, _ in self.draw(x, samples)]
        values = torch.cat(found).double()
        spread = float(values.std())
        return Odds(network, float(values.median()), WIDTH * spread if spread > 0 else 1.0)

    def gradients(self, rows: Images) -> Images:
        return _in_halves(self._gradients, rows)

    def values(self, rows: Images) -> Tensor:
        """The score of every row, without a gradient."""
        read = KINDS[self.kind] if self.odds is None else self.odds.of_logits
        with torch.no_grad():
            return _in_halves(lambda some: read(self._outputs(some))[:, self.target], rows)

    def _gradients(self, rows: Images) -> Images:
        with torch.inference_mode(False), torch.enable_grad():
            rows = rows.detach().clone().requires_grad_()
            score = KINDS[self.kind](self._outputs(rows))[:, self.target]
            validate.differentiable(score)
            (grad,) = torch.autograd.grad(score.sum(), rows, allow_unused=True)
        validate.dependent(grad)
        return grad.detach()

    def _outputs(self, rows: Images) -> Tensor:
        with numerics("float32", rows.is_cuda):
            return validate.output(self.run(rows), len(rows)).to(rows.dtype)

    def draw(self, y: Images, samples: int) -> Iterator[tuple[Tensor, Tensor]]:
        """Noisy copies of y, a chunk at a time, and their noise. The size of a chunk decides what a seed draws."""
        most = max(2, min(2048 if y.is_cuda else 256, int((512 if y.is_cuda else 4) * PHOTO / y[0].numel())))
        for start in range(0, samples, most):
            shape = (min(most, samples - start), *y.shape[1:])
            noise = torch.empty(shape, dtype=y.dtype, device=y.device).normal_(generator=self.generator)
            yield y + self.sigma * noise, noise


def _in_halves(compute: Callable[[Images], Tensor], rows: Images) -> Tensor:
    """The answer for every row; for half of them at a time where not all fit into memory."""
    try:
        return compute(rows)
    except torch.OutOfMemoryError:
        if len(rows) == 1:
            raise
    return torch.cat([_in_halves(compute, some) for some in rows.split(len(rows) // 2)])


def make_runner(method: MoreauGrad, x: Images, classes: list[int], coarse: bool) -> Callable[[Images], Any]:
    """What runs the network. Constants of a network hold for what it computes exactly, so it is run itself; only a
    range may be certified in a `coarse` precision, which is the method's."""
    validate.evaluating(method.forward_func)
    network: Any = method.forward_func
    with torch.no_grad():
        output = validate.output(network(x.clone()), 1)
    validate.target_fits(classes, tuple(output.shape), method.score)
    validate.finite_score(KINDS[str(method.score)](output.to(x.dtype))[:, classes[0]])
    if not coarse:
        return network  # type: ignore[no-any-return]
    engine = Engine(network, choose_precision(method.precision, (x,)), False)
    engine.prepare((x,))
    return lambda rows: engine((rows,), [])


@dataclass(frozen=True, eq=False, slots=True)
class Measurement:
    """A solution, judged by the gradient of the score there. The map is one step beyond it, prox(gradient)."""

    prior: Prior
    eta: Tensor
    gradient: Images  # in the space of displacements
    residual: float  # |delta - prox(-rho gradient)|/rho
    reach: float  # |delta|
    sampling: float  # the gradient is no further from the truth
    method: Any  # frozen
    interval: tuple[float, float] = (0.0, 1.0)  # of the mean score at the input, as shares of its range

    @property
    def rho(self) -> float:
        return float(self.method.rho)

    @property
    def map(self) -> Images:
        return -self.prior.prox(-self.rho * self.gradient, self.rho * self.eta) / self.rho

    @property
    def penalised(self) -> bool:
        """A prior from outside may act at eta = 0 too, as the indicator of a set does."""
        return bool(self.eta > 0) or type(self.prior) not in KNOWN_PRIORS


def measure_exactly(method: MoreauGrad, x: Images, score: SampledScore) -> Measurement:
    """The method's own solution of a deterministic problem, judged by its gradient."""
    precision = "float32" if x.dtype == torch.float32 else None
    # the noise is part of the function: the same at x and at x'
    method = replace(method, seed=draw_seed(method.seed), precision=precision)
    found = method.explain(x, score.target)
    at, noise = x + found.delta, method.smoothing
    if noise is None:
        gradient = score.gradients(at)
    else:
        seed: Any = method.seed
        rows = at + noise.scale(x) * antithetic(tuple(x.shape[1:]), noise.samples, seed, 0, x)
        gradient = torch.cat([score.gradients(some) for some in rows.split(256)]).mean(0, keepdim=True)
    sure = Estimate(gradient.double(), 0.0)
    return _judge(method, find_prior(method, x), found.delta.double(), found.eta.double(), sure)


def measure_on_noise(method: MoreauGrad, x: Images, samples: int, estimate: Estimator, space: Subspace) -> Measurement:
    """The fixed point delta = prox(-rho gradient), a few rounds of it; the last estimate, the largest, judges it."""
    delta = torch.zeros((1, *space.shape), dtype=torch.float64, device=x.device)
    prior = find_prior(method, x, space)
    few = max(2, samples // (4 * ROUNDS))
    for _ in range(ROUNDS):
        u = -method.rho * estimate(x + space.embed(delta).to(x.dtype), few).gradient
        delta = prior.prox(u, method.rho * _choose_eta(method, prior, u))
    fresh = estimate(x + space.embed(delta).to(x.dtype), max(2, samples - ROUNDS * few))
    eta = _choose_eta(method, prior, -method.rho * fresh.gradient)  # a share is that of the reported map
    return _judge(method, prior, delta, eta, fresh, on_grid=space.cells is not None)


def _choose_eta(method: MoreauGrad, prior: Prior, u: Images) -> Tensor:
    if method.share is None:
        eta: Any = method.eta  # one number: a list or a tensor has been refused
        return u.new_full((1,), float(eta or 0.0))
    return Envelope(None, prior, method.rho, u, keep=method.share).weight(u)  # type: ignore[arg-type]


class HeldPrior:
    """The prior that was found at one input, which no longer follows the image: what a certificate speaks of."""

    convex = True

    def __init__(self, prior: Prior) -> None:
        self.prior = prior

    def __getattr__(self, name: str) -> Any:
        if name in ("prior", "for_batch", "take") or name.startswith("__"):
            raise AttributeError(name)
        return getattr(self.prior, name)


def _hold_prior(method: MoreauGrad, prior: Prior) -> MoreauGrad:
    """The method with this prior at every input, whatever a subclass or the prior itself would choose there."""
    options = {each.name: getattr(method, each.name) for each in fields(MoreauGrad)}
    return MoreauGrad(**options | {"prior": HeldPrior(prior)})


def _judge(
    method: MoreauGrad, prior: Prior, delta: Images, eta: Tensor, fresh: Estimate, on_grid: bool = False
) -> Measurement:
    if not bool(torch.isfinite(fresh.gradient).all()):
        raise ValueError("the map must be finite to be certified, got NaN or infinity; check the network's outputs")
    residual = float((delta - prior.prox(-method.rho * fresh.gradient, method.rho * eta)).norm()) / method.rho
    frozen: dict[str, Any] = {} if type(prior) is Zero else {"eta": float(eta), "sparsity": None}
    known = type(method).make_prior is MoreauGrad.make_prior
    if not known or (type(prior) not in KNOWN_PRIORS and hasattr(prior, "for_batch")):
        method = _hold_prior(method, prior)
    elif type(prior) is Group and prior.labels is not None and not on_grid:
        labels = prior.labels[0]
        frozen |= {"groups": labels} if hasattr(method, "groups") else {"prior": Group(labels)}
    method = replace(method, **frozen)
    return Measurement(prior, eta, fresh.gradient, residual, float(delta.norm()), fresh.error, method)


def find_prior(method: MoreauGrad, x: Images, space: Subspace | None = None) -> Prior:
    """The method's own prior on the displacements that are certified; refused unless it is convex.

    The constants hold for every convex prior and for no other. What a known prior says of itself, a subclass of it,
    which may compute anything else, must say again.
    """
    if space is not None and space.cells is not None:
        groups = method.prior.groups if isinstance(method.prior, Group) else None
        if groups is not None and not (isinstance(groups, int) and groups == space.cells):
            raise ValueError(
                "groups must be the cells of the grid in a certificate with grid=, got labels; give the same number"
            )
        x = x.new_zeros(1, *space.shape)
    one = SimpleNamespace(shapes=(tuple(x.shape[1:]),), split=lambda rows: (rows,))
    whole = {"x": x, "images": len(x), "some": slice(0, len(x)), "packing": one}
    prior = method.make_prior(SimpleNamespace(**whole, part=lambda value: value))  # type: ignore[arg-type]
    kind = type(prior)
    own = any("convex" in vars(each) for each in kind.__mro__ if each not in KNOWN_PRIORS)
    if kind not in KNOWN_PRIORS and not (own and getattr(prior, "convex", None) is True):
        raise ValueError(
            f"the prior must be convex to be certified, got {kind.__name__}, which does not say so; give its class "
            "`convex = True` if it is, and if `prox` is its exact proximal map"
        )
    return prior
