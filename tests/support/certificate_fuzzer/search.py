"""A search for violations of certificates: attacks of all kinds on maps whose constants are known. None may be found.

    PYTHONPATH=tests/support:. python -m certificate_fuzzer [--device cuda] [--parts quadratic,network,cifar] [--seed 0]

An attempt is an input of the certified ball whose map was solved (residual at most 1e-10 of the gradient's length) and
held against every statement of the certificate. A statement counts as broken where the error that the residual leaves
at that input does not explain it. `share` is how far a map moved, of the Lipschitz constant times epsilon.
"""

from __future__ import annotations

import logging
import math
import sys
import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from itertools import product
from typing import Any

import torch

import moreaugrad as mg
from benchmarks import record
from certificate_fuzzer import images as image_source
from certificate_fuzzer import networks, quadratics
from certificate_fuzzer.attackers import ATTACKERS, SMALL, CertifiedCase, ascend, sample_sphere
from certificate_fuzzer.cases import PRIORS, Case, uniform
from certificate_fuzzer.tally import Row

BLIND = ("sphere", "inside")  # attackers that know nothing of the map
WANTED = {"quadratic": 45_000, "network": 40_000, "cifar": 15_000}  # attempts


@dataclass
class ViolationSearch:
    """The score of all attackers, and of all kinds of cases."""

    draw: torch.Generator
    attackers: dict[tuple[str, str, str], Row] = field(default_factory=lambda: defaultdict(Row))
    kinds: dict[tuple[str, str, str], Row] = field(default_factory=lambda: defaultdict(Row))
    cases: int = 0
    vacuous: int = 0  # cases left out, for no ball was found of which something is certified
    off: float = 0.0  # the largest error of a map at x whose exact value is known, as a share of its length

    def attack(self, case: Case, **spend: int) -> None:
        """All attackers on one case; the package's own attack, which is slow, on one case in four."""
        certified = CertifiedCase(case, certify_case(case), self.draw, **spend)
        if certified.certificate.vacuous:
            self.vacuous += 1
            return
        if case.map is not None:
            off = float((certified.certificate.map - case.map[0]).norm()) / certified.certificate.change.norm
            self.off = max(self.off, off)
        left_out = {name for name, out in (("topk", self.cases % 4), ("singular", case.x.numel() > SMALL)) if out}
        chosen = {name: attack for name, attack in ATTACKERS.items() if name not in left_out}
        tried = [(name, solved) for name, attack in chosen.items() for solved in attack(certified)]
        for name, solved in [*tried, *ascend(certified)]:
            self._add(name, certified, solved)
        # the same evidence, said of a smaller ball
        smaller = certified.certificate.at(certified.certificate.epsilon * uniform(0.05, 0.95, self.draw))
        inner = replace(certified, certificate=smaller, points=certified.points // 5)
        for solved in sample_sphere(inner):
            self._add("inside", inner, solved)
        self.cases += 1

    def _add(self, name: str, certified: CertifiedCase, solved: Any) -> None:
        case, row = certified.case, Row()
        row.add(certified, solved)
        self.attackers[case.family, case.prior, name].merge(row)
        self.kinds[case.family, case.kind, case.prior].merge(row)

    def count(self, what: str = "attempts", family: str | None = None, blind: bool = True) -> int:
        """Sums over the attackers, of one family, or of those alone that know the map."""
        rows = [
            row
            for (of, _, name), row in self.attackers.items()
            if family in (None, of) and (blind or name not in BLIND)
        ]
        return sum(getattr(row, what) for row in rows)

    def figures(self) -> dict[str, Any]:
        names = ("attempts", "violations", "explained", "unsolved")
        quadratics = [row.share for (family, _, _), row in self.kinds.items() if family == "quadratic"]
        return {
            **{name: self.count(name) for name in names},
            "attempts_by_family": {family: self.count(family=family) for family in WANTED},
            "attempts_that_know_the_map": self.count(blind=False),
            "cases": self.cases,
            "cases_left_out": self.vacuous,
            "largest_error_of_a_known_map": self.off,
            "largest_share_of_the_bound_on_quadratics": max(quadratics, default=0.0),
            "attackers": [_as_row(("family", "prior", "attacker"), *each) for each in self.attackers.items()],
            "kinds": [_as_row(("family", "kind", "prior"), *each) for each in self.kinds.items()],
        }


def certify_case(case: Case) -> Any:
    """A certificate that says something: of a smaller ball where that of the case's would not."""
    convex = math.isinf(case.beta)
    assume = mg.Assumptions(convex=True) if convex else mg.Assumptions(curvature=(case.lam, case.beta))
    report = mg.ReportOptions(k=case.k, units=case.units)
    (found,) = mg.certify(case.method, case.x, case.target, case.epsilon, assume=assume, report=report)
    for _ in range(6):
        if found.vacuous:
            found = found.at(found.epsilon / 3)
    return found


def cases(family: str, draw: torch.Generator, device: str, facts: dict[str, Any]) -> Iterator[Case]:
    """Cases of a family, its kinds and priors in turn, without end; notes what is worth telling."""
    if family == "cifar":
        network, facts["network"] = image_source.load(device)
        facts["images"], images = image_source.pictures(draw)
        yield from image_source.image_cases(network, images, draw)
    source: Any = quadratics if family == "quadratic" else networks
    while True:
        for kind, prior in product(source.KINDS, PRIORS):
            yield source.make(kind, prior, draw)


def _as_row(names: tuple[str, ...], key: tuple[str, ...], row: Row) -> dict[str, Any]:
    counts = {"broken": dict(row.broken), "reached": dict(row.reached)}
    return {**dict(zip(names, key, strict=True)), **vars(row), **counts}


@contextmanager
def _quiet() -> Iterator[None]:
    """Maps that vanish under attack are what the search is after: the package need not mention them."""
    log = logging.getLogger("moreaugrad")
    level = log.level
    log.setLevel(logging.ERROR)
    try:
        yield
    finally:
        log.setLevel(level)


def main() -> None:
    asked = record.arguments(
        __doc__, data=False, parts=",".join(WANTED), seed=0, starts=5, points=100, steps=6, **WANTED
    )
    search, facts = ViolationSearch(torch.Generator().manual_seed(asked.seed)), dict[str, Any]()
    seconds: dict[str, float] = {}
    for family in asked.parts.split(","):
        crowd = 2 if family == "cifar" and asked.device.startswith("cuda") else 1  # rows that a GPU takes at once
        start = time.perf_counter()
        for case in cases(family, search.draw, asked.device, facts):
            with _quiet():
                search.attack(case, starts=crowd * asked.starts, points=crowd * asked.points, steps=asked.steps)
            if search.count(family=family) >= getattr(asked, family):
                break
        seconds[family] = time.perf_counter() - start
        counts = {name: search.count(name, family) for name in ("attempts", "violations", "unsolved")}
        sys.stdout.write(f"{family} {counts}\n")
    figures = {**facts, "seed": asked.seed, "seconds": seconds, **search.figures()}
    record.store("violations", asked.device, figures, asked.out)
