"""What is known of a score, and which recipe that allows. Measures nothing and runs no network."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from moreaugrad.certificates import checks_certify as rules
from moreaugrad.certificates.lipschitz_bounds import smoothness
from moreaugrad.model.bounded import Bounded
from moreaugrad.model.smoothing import Smoothing

RECIPES = {
    "range": "any score in a known range, under noise",
    "local": "any score in a known range, under noise, with what it is worth at this input",
    "lipschitz": "a score with a known Lipschitz constant, under noise",
    "smooth": "a score with known curvature, without noise or on fixed noise",
    "convex": "a score that is convex in its input, without noise or on fixed noise",
}
EXACT = "exact"  # computed from the layers of the network


@dataclass(frozen=True, slots=True)
class Facts:
    """Of one class score f, in units of the input; None: not known."""

    bounds: tuple[float, float] | None = None  # all values lie in it
    lipschitz: float | None = None  # |f(x) - f(y)| <= it * |x - y|
    curvature: tuple[float, float] | None = None  # -lam <= second derivatives <= beta
    convex: bool = False

    @property
    def width(self) -> float:
        assert self.bounds is not None
        return self.bounds[1] - self.bounds[0]


def gather(method: Any, target: Any, given: Facts, lipschitz: Any, curvature: Any) -> Facts:
    """Everything that is known: what the caller says, what the score says, what the network's layers say."""
    network = method.forward_func
    bounds = given.bounds
    if bounds is None:
        bounds = (0.0, 1.0) if method.score == "prob" else None
        if isinstance(network, Bounded) and method.score == "logit":
            bounds = network.bounds
    rules.not_both(bounds is not None, given.convex)
    asked = EXACT in (lipschitz, curvature)
    if asked or (bounds is None and lipschitz is None and curvature is None and not given.convex):
        lipschitz, curvature = _computed(network, target, method.score, lipschitz, curvature, asked)
    if curvature is not None and not isinstance(curvature, tuple):
        curvature = (curvature, curvature)
    if given.convex:
        curvature = (0.0, curvature[1] if curvature else math.inf)
    return Facts(bounds, lipschitz, curvature, given.convex)


def _computed(network: Any, target: Any, score: str, lipschitz: Any, curvature: Any, asked: bool) -> tuple[Any, Any]:
    """Constants from the layers, for what was asked for; where nothing was, for both, if the layers allow it."""
    try:
        found = smoothness(network, of=target if isinstance(target, int) else None, score=score)
    except (TypeError, ValueError):  # a layer without constants
        if asked:
            raise
        return None, None
    finite = found.curvature if math.isfinite(found.curvature) else None
    if not asked:
        return found.lipschitz, finite
    return (found.lipschitz if lipschitz == EXACT else lipschitz), (finite if curvature == EXACT else curvature)


def choose(recipe: str | None, facts: Facts, noise: Smoothing | None) -> str:
    """The recipe: as asked, if it is sound here; else the strongest that is."""
    frozen = noise is None or noise.fixed
    if recipe is None:
        if frozen:
            recipe = "convex" if facts.convex else "smooth"
        else:
            recipe = "lipschitz" if facts.lipschitz is not None else "local"
    rules.sound(recipe, RECIPES, frozen, noise is None)
    rules.met(recipe, facts.bounds, facts.lipschitz, facts.curvature, facts.convex)
    return recipe
