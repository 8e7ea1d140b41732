"""From the measurement of one map to its certificate for any epsilon."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import torch
from torch import Tensor

from moreaugrad.certificates import theory
from moreaugrad.certificates.assumptions import RECIPES, SAMPLED, CertifyOptions, FreshNoise, KnownScore, ReportOptions
from moreaugrad.certificates.certificate import (
    Certificate,
    MapAccuracy,
    MapChange,
    MapConstants,
    SupportGuarantee,
    TopKGuarantee,
)
from moreaugrad.certificates.measurement import Measurement, SampledScore, Subspace, measure_exactly, measure_on_noise
from moreaugrad.envelope.priors import L1, Group
from moreaugrad.methods.moreau import MoreauGrad
from moreaugrad.methods.sparsified import SparsifiedSmoothGrad
from moreaugrad.model.smoothing import Smoothing
from moreaugrad.types import Images

CENTRING = 1000  # samples that place the odds
AVERAGED = "an average of maps in [0, 1] over noise, whatever the network is"


@dataclass(frozen=True, eq=False, slots=True)
class Plan:
    """What will be measured of one image, and by which recipe."""

    method: MoreauGrad  # with the rho that is certified
    target: int
    recipe: str
    known: KnownScore
    sigma: float  # 0: no noise
    options: CertifyOptions


def measure(plan: Plan, x: Images, run: Callable[[Images], Any], generator: torch.Generator) -> Measurement:
    """The solution of one image's problem, judged as its recipe asks."""
    method, known, noise = plan.method, plan.known, plan.options.noise
    score = SampledScore(run, str(method.score), plan.target, plan.sigma, generator)
    if plan.recipe not in SAMPLED:
        return measure_exactly(method, x, score)
    space = Subspace(tuple(x.shape[1:]), plan.options.problem.grid)
    if plan.recipe == "lipschitz":
        return measure_on_noise(
            method, x, noise.samples, lambda y, m: score.mean_gradient(y, m, known.lipschitz, noise.alpha), space
        )
    if plan.options.problem.centred:
        odds = score.centre_odds(x, CENTRING, method.forward_func)  # the noise drawn for that is not used again
        score, method = replace(score, odds=odds), replace(method, forward_func=odds, score="logit")
    share = noise.samples // 5 if plan.recipe == "local" else 0
    alpha = noise.alpha / 2 if share else noise.alpha
    found = measure_on_noise(
        method, x, noise.samples - share, lambda y, m: score.score_function(y, m, known.bounds, alpha, space), space
    )
    return replace(found, interval=score.interval(x, share, known.bounds, alpha)) if share else found


class Constants(NamedTuple):
    """Curvature where it matters, and the Lipschitz constant of the map there; inf: no certificate."""

    lam: float
    beta: float
    lip: float


@dataclass(frozen=True, eq=False)
class Evidence:
    """What was planned and measured of one image."""

    plan: Plan
    measured: Measurement

    @property
    def restricted(self) -> bool:
        """Whether displacements are penalised, or held to patterns of a grid, which is a convex prior like another."""
        return self.measured.penalised or self.on_grid

    @property
    def on_grid(self) -> bool:
        return self.plan.options.problem.grid is not None

    def bound_everywhere(self) -> Constants:
        """Constants that hold at all inputs."""
        lam, beta = self.plan.known.bound_curvature(self.plan.recipe, self.plan.sigma)
        return Constants(lam, beta, theory.lip_map(self.measured.rho, lam, beta, self.restricted))

    def bound_near(self, epsilon: float) -> Constants:
        """Constants that hold between inputs within epsilon of this one; never worse than everywhere."""
        whole, found = self.bound_everywhere(), self.measured
        if self.plan.recipe == "lipschitz":
            return self._bound_steep(epsilon, whole)
        if self.plan.recipe != "local":
            return whole
        sigma, width = self.plan.sigma, self.plan.known.width
        for _ in range(50):  # a ball that holds the solution too, or its error has no constant there
            local = theory.local_certificate(*found.interval, sigma, found.rho, epsilon, self.restricted, width)
            if found.reach <= local.radius:
                break
            epsilon += found.reach - local.radius
        inside = found.reach <= local.radius
        return Constants(local.lam, local.beta, local.lip) if inside and local.lip < whole.lip else whole

    def _bound_steep(self, epsilon: float, whole: Constants) -> Constants:
        """Near a solution with a long gradient a Lipschitz score bends less.

        Solutions of inputs within epsilon lie within (1 + rho lip) epsilon of that of x, which lies within
        rho * (error of delta) of where the gradient was measured; each round may use the constants of the last.
        """
        L, rho, measured = self.plan.known.lipschitz, self.measured.rho, self.measured
        length = min(L, max(0.0, float(measured.gradient.norm()) - measured.sampling))
        errors = measured.residual, measured.sampling
        off, found = rho * theory.map_error(*errors, rho, whole.lam, whole.beta, measured.penalised), whole
        for _ in range(20):
            radius = (1 + rho * found.lip) * epsilon + off
            lam = min(found.lam, theory.lam_steep(length, radius, L, self.plan.sigma))
            if not lam < found.lam * (1 - 1e-6):
                break
            found = Constants(lam, lam, theory.lip_map(rho, lam, lam, self.restricted))
        return found

    def certify(self, epsilon: float) -> Certificate:
        """The certificate for changes of that l2 length."""
        theory.check(epsilon=epsilon)
        plan, measured, here = self.plan, self.measured, self.bound_near(epsilon)
        noise, compared, random = plan.options.noise, plan.options.report.compared, plan.recipe in SAMPLED
        twice = 2 if compared == "computed" else 1
        error = budget = math.inf
        if math.isfinite(here.lip):  # prox is 1-Lipschitz, and a step forgets part of the residual
            forgets = measured.rho * here.lip
            error = (1 + forgets) * measured.sampling + forgets * measured.residual
            budget = here.lip * epsilon + twice * error
        dual = self._bound_dual(epsilon, here, twice)
        found = measured.map
        norm = float(found.double().norm())
        ratio = min(1.0, budget / norm) if norm > 0 else 1.0
        cosine = math.sqrt(max(0.0, 1 - ratio**2)) if ratio < 1 else -1.0
        return Certificate(
            recipe=plan.recipe,
            assumption=RECIPES[plan.recipe],
            compared=compared,
            epsilon=epsilon,
            alpha=noise.alpha * twice if random else 0.0,
            map=found[0],
            method=measured.method,
            target=plan.target,
            constants=MapConstants(plan.sigma or None, measured.rho, *here),
            accuracy=MapAccuracy(noise.samples if random else 0, measured.residual, measured.sampling, error),
            change=MapChange(budget, dual, norm, theory.normalised_distance(budget, norm), cosine),
            topk=self._bound_topk(found, budget),
            support=self._bound_support(found, budget, dual),
            restate=self.certify,
        )

    def _bound_topk(self, found: Images, budget: float) -> TopKGuarantee:
        report = self.plan.options.report
        sizes = self.rank(found)[0].double().cpu()
        k = report.choose_k(sizes)
        overlap = theory.topk_overlap(sizes, k, budget) if bool(found.any()) else 0
        units = "cells" if self.on_grid and report.units == "pixels" else report.units or "entries"
        return TopKGuarantee(units, k, sizes.numel(), overlap, theory.topk_members(sizes, k, budget), self.rank)

    def rank(self, maps: Images) -> Tensor:
        """What is ranked: one size per unit."""
        units = self.plan.options.report.units
        if units == "groups":
            return self.measured.prior.units(maps)
        return maps.abs().flatten(1) if units == "entries" else maps.norm(dim=1).flatten(1)

    def _keeps_support(self) -> bool:
        """Whether the prior drops a unit exactly where its gradient is below eta."""
        return bool(self.measured.eta > 0) and type(self.measured.prior) in (L1, Group)

    def _bound_dual(self, epsilon: float, here: Constants, twice: int) -> float:
        """How far the dual gradients may move, for maps with a support."""
        if not self._keeps_support() or not math.isfinite(here.lip):
            return math.inf
        rho, measured = self.measured.rho, self.measured
        whole = here if self.plan.recipe == "local" else self.bound_everywhere()
        off = theory.map_error(measured.residual, measured.sampling, rho, whole.lam, whole.beta)
        off = theory.dual_error(measured.sampling, off, rho, whole.lam, whole.beta)
        return theory.lip_dual(rho, here.lam, here.beta) * epsilon + off * twice

    def _bound_support(self, found: Images, budget: float, dual: float) -> SupportGuarantee | None:
        """Non-zeros that stay and zeros that may enter."""
        if not self._keeps_support():
            return None
        prior = self.measured.prior
        sizes, pull = prior.units(found)[0], prior.units(self.measured.gradient.to(found.dtype))[0]
        slack = (self.measured.eta.to(pull) - pull)[sizes == 0]
        survivors, entrants = theory.support_survivors(sizes, budget), theory.support_entrants(slack, dual)
        return SupportGuarantee(int((sizes > 0).sum()), survivors, entrants, prior.units)


def certify_ranks(
    method: SparsifiedSmoothGrad, x: Images, target: int, noise: FreshNoise, report: ReportOptions, seed: int
) -> Callable[[float], Certificate]:
    """The certificates of one map of Sparsified SmoothGrad: how many of its top units stay.

    Its noise is fresh, in antithetic pairs, of which each counts as one sample.
    """
    sigma, samples, units = float(method.smoothing.sigma or 0.0), noise.samples, report.units or "pixels"
    smoothing = Smoothing(sigma=sigma, samples=samples // 2 * 2)
    found = replace(method, smoothing=smoothing, seed=seed).attribute(x, target).double()
    sizes = _rank(found, units)[0]
    k = report.choose_k(sizes)
    proof = theory.topk_certificate(sizes, k, sigma, samples // 2, noise.alpha, report.compared)

    def certificate(epsilon: float) -> Certificate:
        return Certificate(
            recipe="ranks",
            assumption=AVERAGED,
            compared=report.compared,
            epsilon=epsilon,
            alpha=1 - proof.confidence,
            map=found[0],
            method=method,
            target=target,
            constants=MapConstants(sigma),
            accuracy=MapAccuracy(samples),
            change=MapChange(norm=float(found.norm())),
            topk=TopKGuarantee(units, k, sizes.numel(), proof.overlap(epsilon), sizes=lambda maps: _rank(maps, units)),
            restate=certificate,
        )

    return certificate


def _rank(maps: Images, units: str) -> Tensor:
    """A mean over channels stays in [0, 1], a maximum would not be an average over noise."""
    flat = maps.flatten(1) if units == "entries" else maps.mean(1).flatten(1)
    return torch.clamp(flat, 0, 1)
