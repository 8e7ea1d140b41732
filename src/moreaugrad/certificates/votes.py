"""Certificates of votes: how often an entry, or a group of entries, is among the largest of the gradient under noise.

All gradients are taken at the input, so votes are averages of 0 and 1 over noise, whatever the network is. A prior's
threshold is frozen at the input, and the limits of all votes carry over to the sparse map.
"""

from __future__ import annotations

import math
import secrets
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import torch
from jaxtyping import Int
from torch import Tensor

from moreaugrad.certificates import theory
from moreaugrad.certificates.assumptions import GROUP_OF, CertifyOptions, FreshNoise
from moreaugrad.certificates.ballots import Ballot, hold_ballots
from moreaugrad.certificates.certificate import (
    Certificate,
    MapAccuracy,
    MapChange,
    MapConstants,
    SupportGuarantee,
    TopKGuarantee,
)
from moreaugrad.certificates.measurement import SampledScore, find_prior
from moreaugrad.certificates.theory import Box
from moreaugrad.certificates.values import ValueGuarantee
from moreaugrad.envelope.priors import L1, Group, Zero, find_level
from moreaugrad.methods.moreau import MoreauGrad
from moreaugrad.methods.smoothgrad import SmoothGrad
from moreaugrad.types import Images, Prior

RECIPE = "votes"
GROUNDS = "shares of noisy copies in which a unit is among the largest, whatever the network is"


@dataclass(frozen=True, eq=False, slots=True)
class VotePlan:
    """What will be counted for one image."""

    method: MoreauGrad | SmoothGrad
    prior: Prior
    ballot: Ballot
    options: CertifyOptions

    @property
    def sigma(self) -> float:
        return float(self.method.smoothing.sigma or 0.0)  # type: ignore[union-attr]

    @property
    def places(self) -> Int[Tensor, "d"] | None:
        """The group of each entry of the image; None: each entry is a unit."""
        return self.prior.labels[0].cpu() if isinstance(self.prior, Group) and self.prior.labels is not None else None


def plan_votes(method: MoreauGrad | SmoothGrad, x: Images, epsilon: float, options: CertifyOptions) -> VotePlan:
    """What to count; refuses what cannot be certified. Runs no network."""
    prior = find_prior(method, x) if isinstance(method, MoreauGrad) else Zero()
    if type(prior) not in (Zero, L1, Group):
        raise ValueError(
            f"the prior must be none, L1() or Group() in a certificate of votes, got {type(prior).__name__}, whose "
            "prox need not act on each unit alone"
        )
    plan = VotePlan(method, prior, Ballot.of(prior, x, method.tau), options)
    units, noise, eta = prior.units(x).shape[1], options.noise, getattr(method, "eta", None)
    level = float(eta) if eta is not None else 0.0
    terms = (units, epsilon / plan.sigma, noise.alpha, options.report.compared, level)
    if not theory.tells_apart(noise.samples, *terms):
        needed = theory.needed_samples(*terms)
        raise ValueError(
            f"samples must be at least {needed:,} to certify anything of {units:,} votes at epsilon={epsilon:g} and "
            f"alpha={noise.alpha:g}, got {noise.samples:,}, with which not even a unit with all votes is surely above "
            f"one with none; give noise=FreshNoise(samples={needed}), and many times that to certify much"
        )
    return plan


def count(
    plan: VotePlan, x: Images, target: int, run: Callable[[Images], Any], generator: torch.Generator
) -> VoteEvidence:
    """The votes of one image on fresh, independent noise."""
    score = SampledScore(run, str(plan.method.score), target, plan.sigma, generator)
    (counts,) = hold_ballots(score, x, plan.options.noise.samples, [plan.ballot])
    return VoteEvidence(plan, counts.cpu(), target, tuple(x.shape[1:]))


@dataclass(frozen=True, eq=False)
class VoteEvidence:
    """The votes of one image, and what they certify at any epsilon."""

    plan: VotePlan
    counts: Int[Tensor, "units"]
    target: int
    shape: tuple[int, ...]  # of the image

    @cached_property
    def shares(self) -> Tensor:
        return self.counts.double() / self.plan.options.noise.samples

    @cached_property
    def eta(self) -> float:
        """The threshold: as given, or the one that keeps the asked share of the units of this map."""
        share, eta = getattr(self.plan.method, "share", None), getattr(self.plan.method, "eta", None)
        if share is None:
            return float(eta) if eta is not None else 0.0
        return float(find_level(L1(), self.shares[None], share))

    @cached_property
    def map(self) -> Tensor:
        return self.spread((self.shares - self.eta).clamp_min(0)).view(self.shape)

    @cached_property
    def pixels(self) -> int:
        """How many means over channels have limits of their own: those that are ranked."""
        ranked = self.units == "pixels" and self.eta == 0 and self.plan.places is None
        return math.prod(self.shape[1:]) if ranked and self.plan.options.report.compared == "ideal" else 0

    @cached_property
    def box(self) -> Box:
        """Where the ideal votes at x lie, all at once and with the means over channels, with probability 1 - alpha."""
        noise = self.plan.options.noise
        return theory.vote_box(self.counts, noise.samples, noise.alpha, len(self.counts) + self.pixels)

    @cached_property
    def pixel_box(self) -> Box:
        noise, means = self.plan.options.noise, self.shares.view(self.shape[0], -1).mean(0)
        part = noise.alpha * self.pixels / (len(self.counts) + self.pixels)
        return Box(*theory.kl(means, noise.samples, part))

    @property
    def units(self) -> str:
        return self.plan.options.report.units or "entries"

    def spread(self, each: Tensor) -> Tensor:
        """One value per unit, at every entry."""
        return each if self.plan.places is None else each[self.plan.places]

    def at_changed(self, epsilon: float) -> Box:
        """Where every unit of the map at x' lies."""
        noise, report = self.plan.options.noise, self.plan.options.report
        return theory.reach(self.box, epsilon / self.plan.sigma, noise.samples, noise.alpha, report.compared)

    def certify(self, epsilon: float) -> Certificate:
        """The certificate for changes of that l2 length."""
        theory.check(epsilon=epsilon)
        noise, report = self.plan.options.noise, self.plan.options.report
        votes, at_x = self.at_changed(epsilon), Box(*map(self.spread, self.box.threshold(self.eta)))
        units = votes.threshold(self.eta)
        entries, flat = Box(*map(self.spread, units)), self.map.flatten()
        cosine = self._bound_cosine(units)
        budget, norm = theory.box_distance(flat, entries), float(flat.norm())
        return Certificate(
            recipe=RECIPE,
            assumption=GROUNDS,
            compared=report.compared,
            epsilon=epsilon,
            alpha=noise.alpha * (2 if report.compared == "computed" else 1),
            map=self.map,
            method=self.freeze(),
            target=self.target,
            constants=MapConstants(self.plan.sigma),
            accuracy=MapAccuracy(noise.samples, error=theory.box_distance(flat, at_x)),
            change=MapChange(budget, math.inf, norm, theory.normal_distance(cosine), cosine),
            topk=self._bound_topk(epsilon, entries, units),
            support=self._bound_support(units),
            values=ValueGuarantee(*(each.view(self.shape) for each in entries)),
            restate=self.certify,
        )

    def _bound_cosine(self, units: Box) -> float:
        sizes = None if self.plan.places is None else self.plan.places.bincount()
        return theory.box_cosine((self.shares - self.eta).clamp_min(0), units, sizes)

    def _bound_topk(self, epsilon: float, entries: Box, units: Box) -> TopKGuarantee:
        box = units if self.units == "groups" else entries
        if self.units == "pixels":
            box = entries.mean(self.shape[0])
        if self.pixels:
            box = box.meet(theory.shift(self.pixel_box, epsilon / self.plan.sigma))
        sizes = self.rank(self.map[None])[0]
        k = self.plan.options.report.choose_k(sizes)
        overlap, members = theory.box_overlap(sizes, box, k), theory.box_members(sizes, box, k)
        return TopKGuarantee(self.units, k, len(sizes), max(overlap, int(members.sum())), members, self.rank)

    def rank(self, maps: Images) -> Tensor:
        """What is ranked: one size per unit, of pixels the mean over the channels."""
        if self.units == "groups":
            return self.each_unit(maps)
        return maps.flatten(1) if self.units == "entries" else maps.flatten(2).mean(1)

    def each_unit(self, maps: Images) -> Tensor:
        """The value of each unit: its entries have the same, or their mean is taken."""
        places, flat = self.plan.places, maps.flatten(1)
        if places is None:
            return flat
        sums = flat.new_zeros(len(flat), len(self.counts)).index_add(1, places, flat)
        return sums / places.bincount()

    def _bound_support(self, units: Box) -> SupportGuarantee | None:
        """Non-zeros that stay and zeros that may enter, where the prior drops any."""
        if self.eta == 0:
            return None
        active = self.shares > self.eta
        stay, enter = active & (units.lower > 0), ~active & (units.upper > 0)
        return SupportGuarantee(int(active.sum()), int(stay.sum()), int(enter.sum()), self.each_unit)

    def freeze(self) -> Any:
        """The method with the threshold and the groups of this image."""
        method, places = self.plan.method, self.plan.places
        if not isinstance(method, MoreauGrad) or type(self.plan.prior) is Zero:
            return method
        method = replace(method, eta=self.eta, sparsity=None)
        if places is None:
            return method
        labels = {"groups": places} if hasattr(method, "groups") else {"prior": Group(places)}
        return GroupVotes(replace(method, **labels), self.plan.options.noise.samples)


@dataclass(frozen=True, eq=False)
class GroupVotes:
    """The map that is certified for groups: max(votes of the group - eta, 0) at each of its entries."""

    method: MoreauGrad  # with the groups and the threshold of one image
    samples: int

    @property
    def groups(self) -> Tensor:
        prior: Any = self.method.prior
        labels: Tensor = prior.groups
        return labels

    def attribute(self, x: Images, target: int) -> Images:
        """The map of an input, on fresh noise that is drawn from the system.

        Args:
            x: one image, (1, ...).
            target: the class.
        """
        options = CertifyOptions(noise=FreshNoise(self.samples))
        plan = plan_votes(self.method, x, 0.0, options)
        generator = torch.Generator(x.device).manual_seed(secrets.randbits(62))
        return count(plan, x, target, self.method.forward_func, generator).map[None].to(x)


def check_votes(method: MoreauGrad | SmoothGrad, options: CertifyOptions) -> None:
    """What votes need, and what they have no use for. Runs no network."""
    rho = getattr(method, "rho", 0)
    if rho != 0:
        raise ValueError(
            f"rho must be 0 in a certificate of votes, got {rho:g}: a solution moves the point at which "
            "gradients are taken, and then votes are no average over noise around x; take rho=0"
        )
    noise = method.smoothing
    if noise is None or (noise.fixed and isinstance(method, MoreauGrad)):
        raise ValueError(
            f"votes must be counted on fresh noise to be certified, got smoothing={noise!r}; take Smoothing(sigma=...)"
        )
    refuse_constants(options, "votes")


def refuse_constants(options: CertifyOptions, what: str) -> None:
    """A certificate that rests on nothing but the noise takes no constants of the score."""
    names = ("recipe", "lipschitz", "curvature", "rho", "grid", "centred", "bounds", "convex")
    given = [name for name in names if getattr(getattr(options, GROUP_OF[name]), name) not in (None, False)]
    if given:
        raise ValueError(f"{', '.join(given)} must be left out for {what}, whose certificate takes none")
