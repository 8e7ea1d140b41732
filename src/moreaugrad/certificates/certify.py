"""`certify`: from a method and an input to certificates."""

from __future__ import annotations

import secrets
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from moreaugrad import validate
from moreaugrad.certificates import checks_certify as rules
from moreaugrad.certificates import checks_theory as conditions
from moreaugrad.certificates import checks_units as units_rules
from moreaugrad.certificates import fixed_point as solve
from moreaugrad.certificates import theory
from moreaugrad.certificates.assumptions import EXACT, Facts, choose, gather
from moreaugrad.certificates.certificate import Certificate
from moreaugrad.certificates.measurement import Evidence, bends
from moreaugrad.certificates.monte_carlo import Noisy, class_score, make_engine
from moreaugrad.certificates.topk_votes import ranked
from moreaugrad.envelope.priors_group import Group
from moreaugrad.methods.moreau import MoreauGrad
from moreaugrad.methods.sparsified import SparsifiedSmoothGrad
from moreaugrad.model.bounded import Odds
from moreaugrad.model.prepared import Engine
from moreaugrad.types import Images

CERTIFIED = "certified"
CENTRING = 1000  # samples that place the odds


@dataclass(frozen=True, eq=False)
class _Asked:
    """What a caller asked for beside the method and the input."""

    recipe: str | None
    given: Facts
    lipschitz: Any
    curvature: Any
    rho: float | str | None
    theta: float
    grid: int | None
    centred: bool
    samples: int
    alpha: float
    k: int | None
    units: str
    compared: str
    generator: torch.Generator
    engine: Callable[[Images, int, bool], Engine]  # made at the first use, when all that costs nothing was checked


def certify(  # noqa: PLR0913
    method: MoreauGrad | SparsifiedSmoothGrad,
    x: Tensor,
    target: Any = None,
    epsilon: float = 0.1,
    *,
    recipe: str | None = None,
    bounds: tuple[float, float] | None = None,
    lipschitz: float | str | None = None,
    curvature: float | tuple[float, float] | str | None = None,
    convex: bool = False,
    rho: float | str | None = None,
    theta: float = 0.5,
    grid: int | None = None,
    centred: bool = False,
    samples: int = 10_000,
    alpha: float = 0.001,
    k: int | None = None,
    units: str | None = None,
    compared: str = "ideal",
    seed: int | None = None,
) -> list[Certificate]:
    """What surely holds for the maps of all inputs within epsilon (l2, units of x): one certificate per image.

    The score must have a known range (score="prob", `Clipped`, `Votes`, bounds=), a known Lipschitz constant
    (lipschitz=, or "exact" from the layers), known curvature (curvature=(lam, beta) or "exact", for maps without or on
    fixed noise), or be convex. `recipe`: range, local, lipschitz, smooth, convex; None takes the strongest.
    rho="certified" is theta/lam. `grid` restricts the map to cells x cells patterns, which scores alone can certify;
    `centred` takes the odds of the class, centred at x, for a score. `compared`: with the ideal map at the changed
    input, or with a computed one. alpha holds for each image by itself.
    """
    rules.method(method, (MoreauGrad, SparsifiedSmoothGrad))
    rules.own_way(method, (MoreauGrad, SparsifiedSmoothGrad))
    rules.single(x)
    conditions.radius(epsilon)
    conditions.level(alpha)
    rules.chance(alpha, compared)
    validate.at_least("samples", samples, 4)
    validate.one_of("compared", compared, rules.COMPARED)
    rules.several(method.several, getattr(method, "weight", None))
    validate.flag("convex", convex)
    validate.flag("centred", centred)
    validate.seed(seed)
    if rho is not None and not isinstance(rho, str):
        validate.positive("rho", rho)
    rules.absolute(method.smoothing)
    rules.hidden(seed, method.seed, compared)
    grouped = isinstance(method, MoreauGrad) and type(solve.prior_of(method, x[:1].detach())) is Group
    units = units_rules.ranked_by(units, grouped, x.ndim > 2, grid is not None)
    x = x.detach()
    generator = torch.Generator(x.device).manual_seed(secrets.randbits(62) if seed is None else seed)
    given = Facts(rules.pair(bounds), convex=convex)
    lipschitz, curvature = (
        rules.constant(*each, EXACT) for each in (("lipschitz", lipschitz), ("curvature", curvature))
    )
    asked = _Asked(
        recipe,
        given,
        lipschitz,
        curvature,
        rho,
        theta,
        grid,
        centred,
        samples,
        alpha,
        k,
        units,
        compared,
        generator,
        _once(method),
    )
    classes = _classes(method, x, target)
    make = _ranked if isinstance(method, SparsifiedSmoothGrad) else _solved
    return [make(method, x[i : i + 1], classes[i], asked)(epsilon) for i in range(len(x))]


def _ranked(method: SparsifiedSmoothGrad, x: Images, target: int, asked: _Asked) -> Callable[[float], Certificate]:
    known = ("recipe", "lipschitz", "curvature", "rho", "grid", "centred")
    given = {"bounds": asked.given.bounds, "convex": asked.given.convex}
    rules.ranks_alone({name: getattr(asked, name) for name in known} | given)
    return ranked(method, x, target, asked)


def _solved(method: MoreauGrad, x: Images, target: int, asked: _Asked) -> Callable[[float], Certificate]:
    sigma = method.smoothing.sigma if method.smoothing else None
    if asked.centred:
        told = asked.given != Facts() or asked.lipschitz is not None or asked.curvature is not None
        rules.centrable(method.score, method.smoothing is not None and not method.smoothing.fixed, asked.recipe, told)
        facts = Facts(Odds.bounds)
    else:
        facts = gather(method, target, asked.given, asked.lipschitz, asked.curvature)
    recipe = choose(asked.recipe, facts, method.smoothing)
    rules.enough(asked.samples, 4 if recipe in ("smooth", "convex") else 64)
    method = replace(method, rho=_rho(method, recipe, facts, sigma, asked))  # all refusals come before any model call
    noisy = Noisy(
        class_score(asked.engine(x, target, recipe in ("range", "local")), method, x, target),
        sigma or 0.0,
        asked.generator,
    )
    if asked.centred:
        odds = noisy.centred(x, CENTRING)  # the noise drawn for that is not used again
        noisy, method = replace(noisy, odds=odds), replace(method, forward_func=odds, score="logit")
    judged = _judge(method, x, noisy, recipe, facts, asked)
    random = recipe not in ("smooth", "convex")
    return Evidence(
        recipe=recipe,
        facts=facts,
        problem=judged.problem,
        gradient=judged.gradient,
        eta=judged.eta,
        residual=judged.residual,
        reach=judged.reach,
        sampling=judged.sampling,
        sigma=sigma,
        samples=asked.samples if random else 0,
        alpha=asked.alpha if random else 0.0,
        method=judged.method,
        target=target,
        k=asked.k,
        units=asked.units,
        compared=asked.compared,
        shape=tuple(x.shape[1:]),
        interval=judged.interval,
    ).certificate


def _once(method: Any) -> Callable[[Images, int, bool], Engine]:
    made: list[Engine] = []

    def engine(x: Images, target: int, coarse: bool) -> Engine:
        if not made:
            validate.evaluating(method.forward_func)
            made.append(make_engine(method, x, target, coarse))
        return made[0]

    return engine


def _rho(method: MoreauGrad, recipe: str, facts: Facts, sigma: float | None, asked: _Asked) -> float:
    """rho as asked; refused where the minimiser need not be unique."""
    lam, beta = bends(recipe, facts, sigma)
    rules.needs_gradient(asked.grid, recipe)
    rules.convex_prior(method.weight is not None or method.share is not None, beta)
    rho: float | str = method.rho if asked.rho is None else asked.rho
    if isinstance(rho, str):
        validate.one_of("rho", rho, {CERTIFIED: None})
        rho = theory.certified_rho(lam, asked.theta) if lam > 0 else method.rho  # of a convex score any is
    if recipe != "local":  # which may certify more than what holds everywhere
        conditions.weak_convexity(rho, lam)
    return float(rho)


def _judge(method: MoreauGrad, x: Images, noisy: Noisy, recipe: str, facts: Facts, asked: _Asked) -> solve.Judged:
    if recipe in ("smooth", "convex"):
        return solve.exactly(method, x, noisy.score.target, noisy.score)
    if recipe == "lipschitz":
        steep = facts.lipschitz
        assert steep is not None
        return solve.on_noise(method, x, asked.samples, lambda y, m, _: noisy.backprop(y, m, steep, asked.alpha))
    bounds = facts.bounds
    assert bounds is not None
    share = asked.samples // 5 if recipe == "local" else 0
    alpha = asked.alpha / 2 if share else asked.alpha
    judged = solve.on_noise(
        method,
        x,
        asked.samples - share,
        lambda y, m, space: noisy.score_function(y, m, bounds, alpha, space),
        asked.grid,
    )
    return judged if not share else replace(judged, interval=noisy.interval(x, share, bounds, alpha))


def _classes(method: Any, x: Images, target: Any) -> list[int]:
    """The class of each image: as given, else the predicted one; it stays the same at the changed input."""
    if target is None:
        validate.evaluating(method.forward_func)
        with torch.no_grad():
            output = validate.output(method.forward_func(x), len(x))
        target = rules.class_scores(output).argmax(1)
    return rules.one_class_each(validate.target(target, len(x)), len(x))
