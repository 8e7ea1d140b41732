"""Counts how often each unit of an image's gradient is among the largest, on independent noise.

Independent draws make each count binomial, whose confidence bounds are exact; antithetic pairs would not.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Int
from torch import Tensor

from moreaugrad.certificates.measurement import SampledScore
from moreaugrad.model.statistics import count_votes, largest
from moreaugrad.types import Images, Prior


@dataclass(frozen=True, eq=False, slots=True)
class Ballot:
    """Who may be voted for, and how many votes each noisy copy has."""

    prior: Prior  # for the image; its units are the candidates: entries, or the l2 norms of groups
    keep: int

    @classmethod
    def of(cls, prior: Prior, x: Images, tau: float) -> Ballot:
        """The share `tau` of the units of one image gets a vote from each copy."""
        return cls(prior, count_votes(tau, prior.units(x).shape[1]))

    def count(self, grads: Images) -> Int[Tensor, "units"]:
        """The votes of some gradients."""
        return largest(self.prior.units(grads)[None], self.keep)[0].sum(0)


def hold_ballots(score: SampledScore, x: Images, samples: int, ballots: Sequence[Ballot]) -> list[Int[Tensor, "units"]]:
    """The votes of so many noisy copies of one image, in several ballots over the same gradients."""
    totals = [torch.zeros(each.prior.units(x).shape[1], dtype=torch.long, device=x.device) for each in ballots]
    for rows, _ in score.draw(x, samples):
        grads = score.gradients(rows)
        if not bool(torch.isfinite(grads).all()):
            raise ValueError("the gradients must be finite to be ranked, got NaN or infinity; check the network")
        totals = [total + each.count(grads) for total, each in zip(totals, ballots, strict=True)]
    return totals
