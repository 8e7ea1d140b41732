"""SmoothGrad: the gradient averaged over Gaussian noise, or another statistic of it.

Owns the average over noisy copies that other methods take of other maps.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, ClassVar

import torch
from torch import Tensor

from moreaugrad import validate
from moreaugrad.envelope.derivative import Covariance
from moreaugrad.envelope.envelope import Envelope
from moreaugrad.envelope.priors import Zero
from moreaugrad.envelope.solvers.at_input import PARTS, AtInput, split_draws
from moreaugrad.envelope.statistic_slope import pull_statistic
from moreaugrad.methods.base import Call, NoisyMethod
from moreaugrad.model import STATISTICS, VARIANCE
from moreaugrad.model.hessian import Given
from moreaugrad.model.smoothing import Smoothing, part_size
from moreaugrad.model.statistics import read_statistic, voting_share
from moreaugrad.results import Explanation
from moreaugrad.types import Images

TAU = 0.1  # share of the entries that a copy votes for
_FORMER = {"sq": "square", "var": VARIANCE}  # names of the statistics until 0.1; they go in 0.3


@dataclass(frozen=True, eq=False)
class SmoothGrad(NoisyMethod):
    """Gradient averaged over Gaussian noise, mean over z of grad f_c(x + z), signed (Smilkov et al., 2017).

    Use it for a dense map that is less noisy than the gradient; for a sparse one see `SparseMoreauGrad`. A relative
    noise level counts as a constant where the map is differentiated.

    Args:
        forward_func: a module in evaluation mode, any callable that returns scores of shape (N, classes), or what
            `prepare` returns.
        smoothing: the noise, as one object.
        statistic: what is taken of the gradients g: "mean"; or "rms", sqrt(E g^2), "votes", how often an entry is
            among the largest, "geometric", "square" or "variance", which are never negative. `found.statistics` has
            the first four, whichever is the map.
        tau: share of the entries that a noisy copy votes for.
        noise_level: standard deviation of the noise, relative to the range of each image; 0.15 by default.
        sigma: absolute standard deviation, instead of `noise_level`.
        samples: noisy copies per image, 64 by default; the cost is one gradient for each.
        seed: of the noise; a torch.Generator draws one, None takes a fresh one.
        **further: `score`, `precision`, `compile` and `hessian_step`, as in `Method`.

    Example:
        >>> method = mg.SmoothGrad(net, noise_level=0.15, samples=8)
        >>> method.attribute(x, target=3).shape
        torch.Size([2, 3, 16, 16])
    """

    needs_noise = True

    smoothing: Smoothing = field(default_factory=lambda: Smoothing(noise_level=0.15, samples=64))
    statistic: str = field(default="mean", kw_only=True)
    tau: float = field(default=TAU, kw_only=True)

    renamed_options: ClassVar[Mapping[str, str]] = {**NoisyMethod.renamed_options, "variant": "statistic"}

    def __post_init__(self, noise_level: float | None, sigma: float | None, samples: int | None) -> None:
        super().__post_init__(noise_level, sigma, samples)
        object.__setattr__(self, "statistic", _FORMER.get(str(self.statistic), self.statistic))
        if str(self.statistic) != VARIANCE:  # what is no word may not be comparable
            check_statistic(self.statistic, self.tau, self.smoothing, (VARIANCE,))

    @property
    def counts_votes(self) -> bool:
        return self.statistic == "votes"

    def with_statistic(self, name: str) -> SmoothGrad:
        return replace(self, statistic=name)

    @property
    def differentiable(self) -> bool:
        return True

    @property
    def derived(self) -> bool:
        return self.statistic == "votes"

    @property
    def second_order(self) -> bool:
        return self.statistic != "votes"

    def compute(self, call: Call) -> Explanation:
        count, fresh = call.each(self.smoothing.samples), replace(self.smoothing, fixed=False)
        if self.statistic == VARIANCE:
            return Explanation(map=variance(call, self.smoothing), gradients=count)
        tau = voting_share(self.statistic, self.tau, call.statistics)
        problem = Envelope(call.smoothed(fresh), Zero(), 0.0, call.x, statistic=self.statistic, tau=tau)
        solution = AtInput(fresh.samples).run(problem, call.watch)
        moments: Any = solution.moments
        map_ = read_statistic(self.statistic, moments)
        if call.graph and self.derived:
            slope = Covariance(samples=fresh.samples)
            at = replace(problem, x=call.x.detach())
            map_ = Given.apply(call.x, map_, partial(pull_statistic, slope, at, torch.zeros_like(at.x), moments))
        kept: Any = moments.detach() if call.statistics else None
        return Explanation(map=map_, gradients=count, stderr=solution.stderr, moments=kept)  # type: ignore[arg-type]


def check_statistic(name: str, tau: float, smoothing: Smoothing | None, more: Sequence[str] = ()) -> None:
    """Refuses a statistic that is not known, or that there is nothing to take of."""
    if name not in STATISTICS:
        validate.one_of("statistic", name, [*STATISTICS, *more])
    validate.voters("tau", tau)
    if smoothing is None and name != "mean":
        raise ValueError(
            f"statistic={name!r} is taken of gradients under noise, got smoothing=None, which gives one gradient; "
            "give a noise_level, or take statistic='mean'"
        )


def average(call: Call, smoothing: Smoothing, of_copy: Callable[[Tensor], Tensor]) -> tuple[Images, Images]:
    """The mean of what `of_copy` makes of the gradients of noisy copies (images, copies, ...), and its error."""
    mean, weight = torch.zeros_like(call.x), 0.0
    square, parts = torch.zeros_like(call.x), 0
    for draw, size in _draws(call, smoothing):
        found, length = _parts(call, replace(smoothing, samples=size, fixed=False), draw, of_copy)
        for place, part in enumerate(found):  # weighted by samples, so that a short last part counts as what it is
            share = min(length, size - place * length)
            weight, before = weight + share, part - mean
            mean = mean + before * (share / weight)
            # without a graph: a square root has no derivative where nothing varies
            square, parts = square + share * before.detach() * (part - mean).detach(), parts + 1
    error = (square / weight / (parts - 1)).sqrt() if parts > 1 else torch.full_like(square, float("nan"))
    return mean, error


def variance(call: Call, smoothing: Smoothing) -> Images:
    """The mean squared distance of the copies' gradients from their mean, put together draw by draw."""
    mean, square, before = torch.zeros_like(call.x), torch.zeros_like(call.x), 0
    for draw, size in _draws(call, smoothing):
        middle, around = torch.empty_like(call.x), torch.empty_like(call.x)
        for some, _, grad in call.smoothed(replace(smoothing, samples=size, fixed=False)).each(call.x, draw, size):
            centre = grad.mean(1)
            middle[some], around[some] = centre, (grad - centre[:, None]).square().sum(1)
        count = before + size
        shift = middle - mean
        mean = mean + shift * (size / count)
        square, before = square + around + shift.square() * (before * size / count), count
    return square / before


def _draws(call: Call, smoothing: Smoothing) -> Iterator[tuple[int, int]]:
    """The number and size of each set of noise vectors; tells the watcher when it is used up."""
    sizes = split_draws(smoothing.samples)
    for draw, size in enumerate(sizes):
        yield draw, size
        call.watch(draw + 1, len(sizes), {})


def _parts(call: Call, smoothing: Smoothing, draw: int, of_copy: Callable[[Tensor], Tensor]) -> tuple[Tensor, int]:
    """Means over parts of a draw, and the copies in each, of which the last may have fewer.

    Antithetic partners stay together, or parts would not be independent.
    """
    samples = smoothing.samples
    size = part_size(samples, PARTS)
    means = call.x.new_empty(-(-samples // size), *call.x.shape)
    for some, _, grad in call.smoothed(smoothing).each(call.x, draw, samples):
        # a few copies leave a GPU idle; elsewhere they take less memory
        pieces = of_copy(grad).split(size, 1) if grad.is_cuda else map(of_copy, grad.split(size, 1))
        for part, made in enumerate(pieces):
            means[part, some] = made.mean(1)
    return means, size
