"""What was measured of one map, and the certificate of any epsilon that follows from it."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from moreaugrad.certificates import checks_theory as conditions
from moreaugrad.certificates import checks_units as units_rules
from moreaugrad.certificates import theory
from moreaugrad.certificates.assumptions import RECIPES, Facts
from moreaugrad.certificates.certificate import Certificate
from moreaugrad.envelope.envelope import Envelope
from moreaugrad.envelope.priors_group import Group
from moreaugrad.envelope.priors_l1 import L1
from moreaugrad.envelope.priors_zero import Zero
from moreaugrad.types import Images


@dataclass(frozen=True, eq=False, slots=True)
class Constants:
    """Curvature where it matters, and the Lipschitz constant of the map there; inf: no certificate."""

    lam: float
    beta: float
    lip: float


@dataclass(frozen=True, eq=False)
class Evidence:
    """One image's solution, judged on fresh noise. The map is prox(gradient), one step beyond the solution."""

    recipe: str
    facts: Facts
    problem: Envelope  # of the one image; its prior and rho
    gradient: Images  # of the score at the solution, in the space of displacements
    eta: Tensor
    residual: float  # |delta - prox(-rho gradient)|/rho
    reach: float  # |delta|
    sampling: float  # the gradient is no further from the truth
    sigma: float | None
    samples: int
    alpha: float
    method: Any
    target: Any
    k: int | None = None
    units: str = "pixels"
    compared: str = "ideal"
    shape: tuple[int, ...] = ()  # of the input
    interval: tuple[float, float] | None = None  # of the mean score at the input, as shares of its range

    @property
    def on_grid(self) -> bool:
        return tuple(self.gradient.shape[1:]) != self.shape

    @property
    def penalised(self) -> bool:
        """A prior from outside may act at eta = 0 too, as the indicator of a set does."""
        return bool(self.eta > 0) or type(self.problem.prior) not in (Zero, L1, Group)

    @property
    def restricted(self) -> bool:
        """Whether displacements are penalised, or held to patterns of a grid, which is a convex prior like another."""
        return self.penalised or self.on_grid

    @property
    def map(self) -> Images:
        return self.problem.map(self.problem.prox(-self.problem.rho * self.gradient, self.eta))

    def everywhere(self) -> Constants:
        """Constants that hold at all inputs."""
        lam, beta = bends(self.recipe, self.facts, self.sigma)
        rho = self.problem.rho
        if self.recipe == "local" and rho * lam >= 1:
            return Constants(lam, beta, math.inf)
        return Constants(lam, beta, self._lip(lam, beta))

    def near(self, epsilon: float) -> Constants:
        """Constants that hold between inputs within epsilon of this one; never worse than everywhere."""
        whole, rho = self.everywhere(), self.problem.rho
        if self.recipe == "local":
            assert self.interval is not None
            assert self.sigma is not None
            width = self.facts.width
            for _ in range(50):  # a ball that holds the solution too, or its error has no constant there
                found = theory.local_certificate(*self.interval, self.sigma, rho, epsilon, self.restricted, width)
                if self.reach <= found.radius:
                    break
                epsilon += self.reach - found.radius
            inside = self.reach <= found.radius
            return Constants(found.lam, found.beta, found.lip) if inside and found.lip < whole.lip else whole
        if self.recipe == "lipschitz":
            return self._steep(epsilon, whole)
        return whole

    def _steep(self, epsilon: float, whole: Constants) -> Constants:
        """Near a solution with a long gradient a Lipschitz score bends less.

        Solutions of inputs within epsilon lie within (1 + rho lip) epsilon of that of x, which lies within
        rho * (error of delta) of where the gradient was measured; each round may use the constants of the last.
        """
        L, rho, sigma = self.facts.lipschitz, self.problem.rho, self.sigma
        assert L is not None
        assert sigma is not None
        length = min(L, max(0.0, float(self.gradient.norm()) - self.sampling))
        off = rho * theory.map_error(self.residual, self.sampling, rho, whole.lam, whole.beta, self.penalised)
        found = whole
        for _ in range(20):
            radius = (1 + rho * found.lip) * epsilon + off
            lam = min(found.lam, theory.lam_steep(length, radius, L, sigma))
            if not lam < found.lam * (1 - 1e-6):
                break
            found = Constants(lam, lam, self._lip(lam, lam))
        return found

    def certificate(self, epsilon: float) -> Certificate:
        conditions.radius(epsilon)
        here, rho = self.near(epsilon), self.problem.rho
        error = self._error(here)
        twice = 2 if self.compared == "computed" else 1
        budget = here.lip * epsilon + twice * error if math.isfinite(here.lip) else math.inf
        found = self.map
        norm = float(found.double().norm())
        ratio = min(1.0, budget / norm) if norm > 0 else 1.0
        sizes = self.sizes(found)[0].double().cpu()
        k = units_rules.share_of_top(self.k, sizes.numel())
        k = max(1, min(k, int((sizes > 0).sum())))  # zeros are not above each other
        return Certificate(
            recipe=self.recipe,
            assumption=RECIPES[self.recipe],
            compared=self.compared,
            epsilon=epsilon,
            alpha=self.alpha * twice,
            sigma=self.sigma,
            samples=self.samples,
            rho=rho,
            lam=here.lam,
            beta=here.beta,
            lipschitz=here.lip,
            residual=self.residual,
            sampling=self.sampling,
            error=error,
            budget=budget,
            norm=norm,
            units="cells" if self.on_grid and self.units == "pixels" else self.units,
            k=k,
            total=sizes.numel(),
            overlap=theory.topk_overlap(sizes, k, budget) if norm > 0 else 0,
            members=theory.topk_members(sizes, k, budget),
            distance=theory.normalised_distance(budget, norm),
            cosine=math.sqrt(max(0.0, 1 - ratio**2)) if ratio < 1 else -1.0,
            map=found[0],
            method=self.method,
            target=self.target,
            scores=self.sizes,
            kept=self.problem.prior.units,
            again=self.certificate,
            **self._support(found, budget, epsilon, here),
        )

    def _error(self, here: Constants) -> float:
        """How far the map is from the ideal one: prox is 1-Lipschitz, and a step forgets part of the residual."""
        if not math.isfinite(here.lip):
            return math.inf
        forgets = self.problem.rho * here.lip
        return (1 + forgets) * self.sampling + forgets * self.residual

    def _support(self, found: Images, budget: float, epsilon: float, here: Constants) -> dict[str, Any]:
        """Non-zeros that stay and zeros that may enter, for priors that drop a unit where its gradient is below eta."""
        if not self.penalised or type(self.problem.prior) not in (L1, Group):
            return {}
        rho, prior = self.problem.rho, self.problem.prior
        sizes, pull = prior.units(found)[0], prior.units(self.gradient.to(found.dtype))[0]
        slack = (self.eta.to(pull) - pull)[sizes == 0]
        dual = math.inf
        if math.isfinite(here.lip):
            whole = self.everywhere() if self.recipe != "local" else here
            off = theory.map_error(self.residual, self.sampling, rho, whole.lam, whole.beta)
            off = theory.dual_error(self.sampling, off, rho, whole.lam, whole.beta)
            dual = theory.lip_dual(rho, here.lam, here.beta) * epsilon + off * (2 if self.compared == "computed" else 1)
        return {
            "active": int((sizes > 0).sum()),
            "survivors": theory.support_survivors(sizes, budget),
            "entrants": theory.support_entrants(slack, dual),
            "dual_budget": dual,
        }

    def sizes(self, found: Images) -> Tensor:
        """What is ranked: one size per unit."""
        if self.units == "groups":
            return self.problem.prior.units(found)
        return found.abs().flatten(1) if self.units == "entries" else found.norm(dim=1).flatten(1)

    def _lip(self, lam: float, beta: float) -> float:
        rho = self.problem.rho
        return theory.lip_prox(rho, lam, beta) if self.restricted else theory.lip_vanilla(rho, lam, beta)


def bends(recipe: str, facts: Facts, sigma: float | None) -> tuple[float, float]:
    """lam and beta of the score that is explained, at all inputs; the smallest where several are known."""
    if recipe in ("smooth", "convex"):
        assert facts.curvature is not None
        return facts.curvature
    assert sigma is not None
    found = [theory.lam_range(*facts.bounds, sigma)] if facts.bounds is not None else []
    if facts.lipschitz is not None:
        found.append(theory.lam_lipschitz(facts.lipschitz, sigma))
    if facts.curvature is not None:
        found.append(max(facts.curvature))
    return min(found), min(found)
