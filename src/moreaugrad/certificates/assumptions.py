"""The options of `certify`; what is known of a score, and which recipe that allows. Runs no network."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Any

from torch import Tensor

from moreaugrad import limits, validate
from moreaugrad.certificates import theory
from moreaugrad.methods.moreau import MoreauGrad
from moreaugrad.model.bounded import Bounded, check_range
from moreaugrad.model.lipschitz_bounds import lipschitz_bounds
from moreaugrad.model.smoothing import Smoothing

RECIPES = {
    "range": "any score in a known range, under noise",
    "local": "any score in a known range, under noise, with what it is worth at this input",
    "lipschitz": "a score with a known Lipschitz constant, under noise",
    "smooth": "a score with known curvature, without noise or on fixed noise",
    "convex": "a score that is convex in its input, without noise or on fixed noise",
}
SAMPLED = ("range", "local", "lipschitz")  # recipes that average over fresh noise
EXACT, CERTIFIED = "exact", "certified"
UNITS = dict.fromkeys(("pixels", "entries", "groups"))


@dataclass(frozen=True, slots=True)
class Assumptions:
    """What is known of the class score f, in units of the input. A certificate is as true as these are.

    A score "prob" and the networks `Clipped`, `Votes` and `Odds` have a known range by themselves. Where nothing
    is known or given, constants are computed from the layers if their norms are known.

    Args:
        bounds: (low, high), between which all values of f lie.
        lipschitz: L with `|f(x) - f(y)| <= L |x - y|`, or "exact": computed from the layers (`lipschitz_bounds`).
        curvature: (lam, beta) with second derivatives in [-lam, beta], one number for both, or "exact".
        convex: whether f is convex in its input.
        recipe: what the certificate rests on: "range", "local" (range, and the value at this input) or "lipschitz"
            under fresh noise; "smooth" (curvature) or "convex" without noise or on fixed noise. None takes the
            strongest that holds.

    Example:
        >>> mg.Assumptions(curvature=0.5).curvature
        (0.5, 0.5)
    """

    bounds: tuple[float, float] | None = None
    lipschitz: float | str | None = None
    curvature: float | tuple[float, float] | str | None = None
    convex: bool = False
    recipe: str | None = None

    def __post_init__(self) -> None:
        limits.take_plain_numbers(self)
        validate.flag("convex", self.convex)
        if self.bounds is not None:
            if not isinstance(self.bounds, tuple | list) or len(self.bounds) != 2:
                raise TypeError(f"bounds must be (low, high), got {self.bounds!r}")
            check_range(*self.bounds)
            object.__setattr__(self, "bounds", (float(self.bounds[0]), float(self.bounds[1])))
        for name in ("lipschitz", "curvature"):
            object.__setattr__(self, name, _read_constant(name, getattr(self, name)))
        if self.recipe is not None:
            validate.one_of("recipe", self.recipe, RECIPES)


def _read_constant(name: str, given: Any) -> Any:
    """A number, the word for one that is computed, or None; curvature as (lam, beta)."""
    if given is None or given == EXACT:
        return given
    if isinstance(given, str):
        raise ValueError(f"{name} must be a number or {EXACT!r}, got {given!r}")
    if name == "curvature" and isinstance(given, tuple | list):
        if len(given) != 2:
            raise TypeError(f"curvature must be a number or (lam, beta), got {given!r}")
        theory.check_known("lam", given[0])
        validate.number("beta", given[1])
        return float(given[0]), float(given[1])
    theory.check_known(name, given)
    return (float(given), float(given)) if name == "curvature" else float(given)


@dataclass(frozen=True, slots=True)
class CertifiedProblem:
    """What is certified in place of the method's own problem.

    Args:
        rho: the envelope radius, in squared units of the input; "certified" takes theta/lam, below which the minimiser
            is unique; None keeps the method's.
        theta: share of the largest certified rho, in (0, 1): near 0 the map is the smoothed gradient.
        grid: restrict the map to patterns that are constant on grid x grid cells, so few numbers that scores alone
            can certify them; for recipes "range" and "local".
        centred: take for a score the odds of the class, centred at this image (`Odds`).

    Example:
        >>> mg.CertifiedProblem(rho="certified", theta=0.1).theta
        0.1
    """

    rho: float | str | None = None
    theta: float = 0.5
    grid: int | None = None
    centred: bool = False

    def __post_init__(self) -> None:
        limits.take_plain_numbers(self)
        validate.flag("centred", self.centred)
        if isinstance(self.rho, str):
            validate.one_of("rho", self.rho, {CERTIFIED: None})
        elif self.rho is not None:
            validate.positive("rho", self.rho)
        theory.check(theta=self.theta)


@dataclass(frozen=True, slots=True)
class FreshNoise:
    """The noise on which a map is measured, and the chance that this fails.

    Args:
        samples: noisy copies per image; at least 64 under noise, thousands promise something.
        alpha: the probability that the certificate of one image is wrong.
        seed: of the noise; None draws it from the system, so that nobody can adapt to it.

    Example:
        >>> mg.FreshNoise(samples=50_000).alpha
        0.001
    """

    samples: int = 10_000
    alpha: float = 0.001
    seed: int | None = None

    def __post_init__(self) -> None:
        limits.take_plain_numbers(self)
        theory.check(alpha=self.alpha)
        validate.at_least("samples", self.samples, 4)
        validate.seed(self.seed)


@dataclass(frozen=True, slots=True)
class ReportOptions:
    """Which statements a certificate makes.

    Args:
        k: how many units are the top; None: a tenth of them.
        units: what is ranked: "pixels" (l2 norm over the channels), "entries" or "groups" of the prior; None: groups
            where there are some, else pixels of images.
        compared: "ideal": the computed map at x with the ideal map at x'; "computed": with the computed map at an x'
            that was chosen before its noise was drawn, which costs another error and another alpha.

    Example:
        >>> mg.ReportOptions(k=100).compared
        'ideal'
    """

    k: int | None = None
    units: str | None = None
    compared: str = "ideal"

    def __post_init__(self) -> None:
        limits.take_plain_numbers(self)
        validate.one_of("compared", self.compared, theory.COMPARED)

    def choose_units(self, grouped: bool, pixels: bool, grid: bool) -> str:
        """What is ranked; by itself groups where there are some, else pixels where there are some."""
        if self.units is None:
            return "groups" if grouped and not grid else "pixels" if pixels else "entries"
        validate.one_of("units", self.units, UNITS)
        if (self.units == "groups" and (not grouped or grid)) or (self.units == "pixels" and not pixels):
            raise ValueError(
                "units must be groups for methods with groups and no grid, pixels for images, or entries, got "
                f"{self.units!r}"
            )
        return self.units

    def choose_k(self, sizes: Tensor) -> int:
        """How many units are the top, a tenth by default; never zeros, which are not above each other."""
        units, k = sizes.numel(), self.k
        if k is None:
            k = max(1, round(units / 10))
        validate.at_least("k", k, 1)
        if k > units:
            raise ValueError(f"k must be at most the number of units, got {k} of {units}")
        return max(1, min(k, int((sizes > 0).sum())))


@dataclass(frozen=True, slots=True)
class CertifyOptions:
    """The four groups of options of `certify`, none of them missing."""

    assume: Assumptions = field(default_factory=Assumptions)
    problem: CertifiedProblem = field(default_factory=CertifiedProblem)
    noise: FreshNoise = field(default_factory=FreshNoise)
    report: ReportOptions = field(default_factory=ReportOptions)


OPTIONS: dict[str, Any] = {each.name: each.default_factory for each in fields(CertifyOptions)}
GROUP_OF = {each.name: group for group, kind in OPTIONS.items() for each in fields(kind)}


def group_options(flat: Mapping[str, Any], **given: Any) -> dict[str, Any]:
    """The groups of options as `certify` takes them, from their fields by name; `given`: groups to begin with."""
    return {
        group: replace(given.get(group) or kind(), **{name: flat[name] for name in flat if GROUP_OF[name] == group})
        for group, kind in OPTIONS.items()
    }


@dataclass(frozen=True, slots=True)
class KnownScore:
    """Everything that is known of one class score, in units of the input; inf: not known."""

    bounds: tuple[float, float] = (-math.inf, math.inf)
    lipschitz: float = math.inf
    curvature: tuple[float, float] = (math.inf, math.inf)
    convex: bool = False

    @property
    def width(self) -> float:
        return self.bounds[1] - self.bounds[0]

    def bound_curvature(self, recipe: str, sigma: float) -> tuple[float, float]:
        """lam and beta of the score that is explained, at all inputs; the smallest where several are known."""
        if recipe not in SAMPLED:
            return self.curvature
        lam = max(self.curvature)
        if math.isfinite(self.width):
            lam = min(lam, theory.lam_range(*self.bounds, sigma))
        if math.isfinite(self.lipschitz):
            lam = min(lam, theory.lam_lipschitz(self.lipschitz, sigma))
        return lam, lam


def gather_knowledge(method: MoreauGrad, target: int, given: Assumptions) -> KnownScore:
    """What the caller says, what the score says, what the network's layers say."""
    network, bounds = method.forward_func, given.bounds
    if bounds is None and method.score == "prob":
        bounds = (0.0, 1.0)
    elif bounds is None and isinstance(network, Bounded) and method.score == "logit":
        bounds = network.bounds
    if bounds is not None and given.convex:
        raise ValueError(
            "a score with a range cannot be convex, unless it is constant, got convex=True with one; take "
            "score='logit' of a network that is convex in its input"
        )
    lipschitz: Any = given.lipschitz
    curvature: Any = given.curvature
    exact = EXACT in (lipschitz, curvature)
    if exact or (bounds is None and lipschitz is None and curvature is None and not given.convex):
        try:
            found = lipschitz_bounds(network, of=target, score=method.score)  # type: ignore[arg-type]
        except (TypeError, ValueError):  # a layer without constants
            if exact:
                raise
        else:
            lipschitz = found.lipschitz if lipschitz == EXACT or not exact else lipschitz
            curvature = (found.curvature, found.curvature) if curvature == EXACT or not exact else curvature
    lam, beta = curvature or (math.inf, math.inf)
    bounds, steep = bounds or (-math.inf, math.inf), math.inf if lipschitz is None else lipschitz
    return KnownScore(bounds, steep, (0.0 if given.convex else lam, beta), given.convex)


def choose_recipe(recipe: str | None, known: KnownScore, noise: Smoothing | None) -> str:
    """The recipe: as asked, if it is sound here; else the strongest that is."""
    frozen = noise is None or noise.fixed
    if recipe is None and frozen:
        recipe = "convex" if known.convex else "smooth"
    elif recipe is None:
        recipe = "lipschitz" if math.isfinite(known.lipschitz) else "local"
    if recipe in SAMPLED and frozen:  # constants of an average do not hold for a sum over frozen noise
        what = "no noise" if noise is None else "fixed noise, whose average has the curvature of the network itself"
        raise ValueError(
            f"recipe={recipe!r} rests on averaging over fresh noise, got {what}; take Smoothing(sigma=...), or "
            "recipe='smooth' with curvature=..., or recipe='convex'"
        )
    if recipe not in SAMPLED and not frozen:
        raise ValueError(
            f"recipe={recipe!r} rests on a score that is computed exactly, got fresh noise at each step; take "
            "smoothing=None or Smoothing(sigma=..., fixed=True), or recipe='local' or 'lipschitz'"
        )
    _check_met(recipe, known)
    return recipe


def _check_met(recipe: str, known: KnownScore) -> None:
    """What a recipe rests on must be known."""
    if recipe in ("range", "local") and not math.isfinite(known.width):
        raise ValueError(
            f"recipe={recipe!r} needs a score with a known range, got one without, as logits are; take "
            "score='prob', clip the logits (mg.Clipped), or give bounds=(low, high); with a known Lipschitz "
            "constant give lipschitz=..."
        )
    if recipe == "lipschitz" and not math.isfinite(known.lipschitz):
        way = "give lipschitz=..., or 'exact' for a network of layers with exact norms"
        theory.check_known("lipschitz", None, way)
    if recipe == "convex" and not known.convex:
        raise ValueError(
            "recipe='convex' needs a score that is convex in its input, got no such statement; give convex=True if it "
            "is, or recipe='smooth' with curvature=(lam, beta)"
        )
    if recipe == "smooth" and not math.isfinite(known.curvature[0]):
        raise ValueError(
            "recipe='smooth' needs bounds of the second derivatives, got none; give curvature=(lam, beta), or "
            "'exact' for a network of smooth layers with exact norms; ReLU has none: take fresh noise"
        )
