"""The top entries of an average of maps in [0, 1] (Sparsified SmoothGrad) under changes of the input (Levine 2019).

The normal quantile of E h(x + sigma z), 0 <= h <= 1, moves by at most |x' - x|/sigma, so what ranks well above another
entry stays above it. Intervals hold all means of a map at once.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, TypeAlias

import torch
from jaxtyping import Float
from torch import Tensor

from moreaugrad.certificates.theory.maps import check, check_top, read_entries
from moreaugrad.certificates.theory.noise import kl_lower
from moreaugrad.validate import at_least, one_of

Entries: TypeAlias = Float[Tensor, "d"]
COMPARED = dict.fromkeys(("ideal", "computed"))  # with which map of a changed input


@dataclass(frozen=True, eq=False, slots=True)
class TopKCertificate:
    """How long a change of the input must be before fewer than i of the k top entries are left."""

    radii: Float[Tensor, "k"]  # entry i - 1 is for i: any shorter change leaves at least i; inf: any change does
    confidence: float  # the probability that all of it holds

    def overlap(self, epsilon: float) -> int:
        """How many of the k top entries stay, at the least, under changes of that l2 length."""
        check(epsilon=epsilon)
        return int((self.radii > epsilon).sum())


def topk_certificate(
    found: Any, k: int, sigma: float, samples: int, alpha: float = 0.05, compared: str = "ideal"
) -> TopKCertificate:
    """Of one map `found`, the average of `samples` independent maps in [0, 1] under noise of that sigma.

    Antithetic pairs count as one sample. `found` is compared with the ideal map at x', by KL intervals, or with the
    one computed from as many fresh samples at an x' chosen before they were drawn, by Hoeffding's on both sides.
    """
    means = _read_shares(found)
    check_top(k, len(means))
    check(sigma=sigma, alpha=alpha)
    at_least("samples", samples, 2)
    one_of("compared", compared, COMPARED)
    if compared == "ideal":
        return TopKCertificate(overlap_radii(means, *kl(means, samples, alpha), k, sigma), 1 - alpha)
    if alpha >= 0.5:
        raise ValueError(
            f"alpha must be below 0.5 for compared='computed', where both averages may fail, got {alpha!r}; "
            "lower alpha, or take compared='ideal'"
        )
    width = hoeffding_width(len(means), samples, alpha)
    return TopKCertificate(overlap_radii(means, *hoeffding(means, samples, alpha), k, sigma, width), 1 - 2 * alpha)


def _read_shares(found: Any) -> Entries:
    means = read_entries("found", found)
    if not means.numel():
        raise ValueError("found must have at least one entry, got none")
    if float(means.min()) < 0 or float(means.max()) > 1:
        raise ValueError(
            f"found must lie in [0, 1], on which the certificate rests, got {float(means.min()):.4g} to "
            f"{float(means.max()):.4g}; the method `sparsified_smoothgrad` makes such maps"
        )
    return means


def overlap_radii(
    means: Entries, lower: Entries, upper: Entries, k: int, sigma: float, width: float = 0.0
) -> Float[Tensor, "k"]:
    """The radius of each i = 1 .. k: (sigma/2)(Phi^-1(low) - Phi^-1(high)); up to it low stays above high.

    low is the least lower limit of the i top entries, high the largest upper limit from rank 2 k - i + 1 on: then at
    most k - i others can come in. `width`: how far the values at x' may in turn be from their means.
    """
    order = means.argsort(descending=True, stable=True)
    low = torch.special.ndtri(lower[order[:k]].cummin(0).values)
    behind = upper[order].flip(0).cummax(0).values.flip(0)  # the largest from this rank on
    ranks = 2 * k - 1 - torch.arange(k)  # rank 2 k - i + 1 for i = 1 .. k, counted from 0
    beyond = ranks >= len(means)
    high = torch.special.ndtri(behind[ranks.clamp(max=len(means) - 1)])
    gap = torch.nan_to_num(low - high, nan=-torch.inf, posinf=torch.inf, neginf=-torch.inf)
    half = gap / 2 if width == 0 else _largest_shift(low, high, gap, width)
    return torch.where(beyond, torch.inf, sigma * half)


def _largest_shift(low: Entries, high: Entries, gap: Entries, width: float) -> Entries:
    """The largest shift s with Phi(low - s) - Phi(high + s) > 2 width, from below; -inf where there is none."""

    def separated(s: Entries) -> Tensor:
        found: Tensor = torch.special.ndtr(low - s) - torch.special.ndtr(high + s) > 2 * width
        return found

    first, last = torch.zeros_like(gap), (gap / 2).clamp(min=0, max=40)
    fits = separated(first)
    for _ in range(64):
        s = (first + last) / 2
        inside = separated(s)
        first, last = torch.where(inside, s, first), torch.where(inside, last, s)
    return torch.where(fits, first, -torch.inf)


def hoeffding(means: Entries, samples: int, alpha: float) -> tuple[Entries, Entries]:
    """means -+ sqrt(ln(2 d/alpha)/(2 samples)): one width for all, known before any sample is drawn."""
    width = hoeffding_width(len(means), samples, alpha)
    return (means - width).clamp(min=0), (means + width).clamp(max=1)


def hoeffding_width(entries: int, samples: int, alpha: float) -> float:
    return math.sqrt(math.log(2 * entries / alpha) / (2 * samples))


def kl(means: Entries, samples: int, alpha: float) -> tuple[Entries, Entries]:
    """{q : samples kl(mean, q) <= ln(2 d/alpha)}: never wider than Hoeffding's, much narrower near 0 and 1."""
    t = math.log(2 * len(means) / alpha)
    return kl_lower(means, samples, t), 1 - kl_lower(1 - means, samples, t)
