"""Judges maps against what was certified, apart from the package's own judgement, and keeps the score."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import normalize

from certificate_fuzzer.attackers import CertifiedCase, SolvedMaps
from moreaugrad.certificates import theory as cert

SLACK = 1 + 1e-9  # for the rounding of norms
SOLVED = 1e-10  # a map with a larger residual, of its dual gradient's length or of 1, is no attempt


@dataclass(frozen=True, eq=False)
class Observed:
    """What the maps of some attempts did, one entry per attempt."""

    moved: Tensor  # |map - map at x|
    distance: Tensor  # the same of maps over their lengths
    stayed: Tensor  # attempts by units: which of the top ones are still among them
    survivors: Tensor  # non-zero units that still are
    entrants: Tensor  # zeros that no longer are

    def broken(self, i: int, claim: Any) -> set[str]:
        """The statements that attempt i breaks."""
        wrong = {
            "budget": float(self.moved[i]) > claim.change.budget * SLACK,
            "distance": float(self.distance[i]) > claim.change.distance * SLACK,
            "cosine": 1 - float(self.distance[i]) ** 2 / 2 < claim.change.cosine - 1e-12,
            "overlap": int(self.stayed[i].sum()) < claim.topk.overlap,
            "members": bool((claim.topk.members.flatten().cpu() & ~self.stayed[i]).any()),
        }
        if claim.support is not None:
            few, many = int(self.survivors[i]) < claim.support.survivors, int(self.entrants[i]) > claim.support.entrants
            wrong["support"] = few or many
        return {name for name, is_so in wrong.items() if is_so}


def observe(certified: CertifiedCase, solved: SolvedMaps) -> Observed:
    claim, threshold = certified.certificate, certified.case.threshold
    after, before = solved.maps.flatten(1), claim.map.flatten()[None]
    sizes, own = sizes_of(certified, solved.maps), sizes_of(certified, claim.map[None])
    k = claim.topk.k
    tops = [torch.zeros_like(each, dtype=torch.bool).scatter(1, each.topk(k).indices, True) for each in (sizes, own)]
    alive, now = threshold.norms(before) > 0, threshold.norms(after) > 0
    return Observed(
        (after - before).norm(dim=1).cpu(),
        (normalize(after) - normalize(before)).norm(dim=1).cpu(),
        (tops[0] & tops[1]).cpu(),
        (alive & now).sum(1).cpu(),
        (~alive & now).sum(1).cpu(),
    )


def sizes_of(certified: CertifiedCase, maps: Tensor) -> Tensor:
    """What is ranked: sizes of entries, of groups, or of pixels over their channels."""
    units = certified.certificate.topk.units
    if units == "groups":
        return certified.case.threshold.norms(maps)
    return maps.abs().flatten(1) if units == "entries" else maps.norm(dim=1).flatten(1)


def restate(
    certified: CertifiedCase, lipschitz: float | None = None, dual: float | None = None, error: float = 0.0
) -> Any:
    """The certificate by other constants, of the map and of the dual gradient, or with room for one more error."""
    found, case = certified.certificate, certified.case
    lipschitz = found.constants.lipschitz if lipschitz is None else lipschitz
    budget = found.change.budget + (lipschitz - found.constants.lipschitz) * found.epsilon + error
    sizes = sizes_of(certified, found.map[None])[0]
    cosine = math.sqrt(1 - (budget / found.change.norm) ** 2) if budget < found.change.norm else -1.0
    change = replace(
        found.change,
        budget=budget,
        distance=cert.normalised_distance(budget, found.change.norm),
        cosine=cosine,
    )
    k, support = found.topk.k, found.support
    topk = replace(found.topk, overlap=cert.topk_overlap(sizes, k, budget), members=cert.topk_members(sizes, k, budget))
    if support is not None:
        true = cert.lip_dual(case.rho, case.lam, case.beta)
        moves = found.change.dual_budget + ((true if dual is None else dual) - true) * found.epsilon
        moves += cert.dual_error(0.0, error, case.rho, case.lam, case.beta)
        norms = case.threshold.norms(found.map[None])[0]
        slacks = case.threshold.eta - case.threshold.norms(certified.home.dual)[0][norms == 0]
        survivors, entrants = cert.support_survivors(norms, budget), cert.support_entrants(slacks, moves)
        change, support = replace(change, dual_budget=moves), replace(support, survivors=survivors, entrants=entrants)
    constants = replace(found.constants, lipschitz=lipschitz)
    return replace(found, constants=constants, change=change, topk=topk, support=support)


@dataclass
class Row:
    """The score of one attacker of one family."""

    attempts: int = 0
    violations: int = 0  # attempts that break at least one statement
    broken: Counter[str] = field(default_factory=Counter)
    explained: int = 0  # attempts that break one by less than the error of their own map
    unsolved: int = 0  # inputs whose map was not solved well enough to be an attempt
    share: float = 0.0  # the furthest that a map moved, of lipschitz * epsilon
    distance: float = 0.0  # the largest normalised distance, of the certified one
    overlap: int | None = None  # the least of units that stayed, less the certified number
    survivors: int | None = None
    entrants: int | None = None  # the least of the certified number, less those that came
    reached: Counter[str] = field(default_factory=Counter)  # attempts with just as much change as is not excluded

    def merge(self, other: Row) -> None:
        for name in ("attempts", "violations", "explained", "unsolved"):
            setattr(self, name, getattr(self, name) + getattr(other, name))
        self.broken.update(other.broken)
        self.reached.update(other.reached)
        self.share, self.distance = max(self.share, other.share), max(self.distance, other.distance)
        for name in ("overlap", "survivors", "entrants"):
            setattr(self, name, _least(getattr(self, name), getattr(other, name)))

    def add(self, certified: CertifiedCase, solved: SolvedMaps) -> None:
        """Judges attempts by the certificate; points outside of its ball are a mistake of this search."""
        claim, case = certified.certificate, certified.case
        good = solved.residual <= SOLVED * solved.dual.flatten(1).norm(dim=1).clamp_min(1)
        rounding = 1e-15 * float(case.x.norm())  # of the difference below
        inside = (solved.x - case.x).flatten(1).norm(dim=1) <= claim.epsilon * SLACK + rounding
        assert bool(inside.all())
        self.unsolved += int((~good).sum())
        solved = solved.rows(good)
        observed = observe(certified, solved)
        self.attempts += len(solved.x)
        for i, residual in enumerate(solved.residual.tolist()):
            wrong = observed.broken(i, claim) | set(claim.violations(solved.maps[i]))
            if not wrong:
                continue
            error = cert.map_error(residual, 0.0, case.rho, case.lam, case.beta, case.prior != "none")
            wrong = observed.broken(i, restate(certified, error=error))
            self.broken.update(wrong)
            self.violations += bool(wrong)
            self.explained += not wrong
        self._extremes(claim, observed)

    def _extremes(self, claim: Any, observed: Observed) -> None:
        if not len(observed.moved):
            return
        self.share = max(self.share, float(observed.moved.max()) / (claim.constants.lipschitz * claim.epsilon))
        self.distance = max(self.distance, float(observed.distance.max()) / claim.change.distance)
        left = {"overlap": (observed.stayed.sum(1) - claim.topk.overlap, claim.topk.overlap < claim.topk.k)}
        if (support := claim.support) is not None:
            left["survivors"] = (observed.survivors - support.survivors, support.survivors < support.active)
            left["entrants"] = (support.entrants - observed.entrants, support.entrants > 0)
        for name, (spare, some) in left.items():
            setattr(self, name, _least(getattr(self, name), int(spare.min())))
            self.reached[name] += int((spare == 0).sum()) if some else 0


def _least(*found: int | None) -> int | None:
    return min((each for each in found if each is not None), default=None)
