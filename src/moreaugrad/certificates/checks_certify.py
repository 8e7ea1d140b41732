"""Checks of `certify`: what is sound, with the condition that failed and the option that would meet it."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from moreaugrad.certificates.checks_theory import known, score_range
from moreaugrad.validate import number, one_of

COMPARED = dict.fromkeys(("ideal", "computed"))


def method(given: Any, family: tuple[type, ...]) -> None:
    if not isinstance(given, family):
        names = ", ".join(kind.__name__ for kind in family)
        raise TypeError(f"certify must be given one of {names} or their sparse forms, got {type(given).__name__}")


def own_way(given: Any, family: tuple[Any, ...]) -> None:
    """The map must be the one whose constants are known: a subclass may compute anything else."""
    if type(given).compute not in [kind.compute for kind in family]:
        raise TypeError(
            f"certify knows what {family[0].__name__} and {family[1].__name__} compute, got {type(given).__name__}, "
            "which overrides compute; override the prior alone"
        )


def certifiable_prior(prior: Any, known: tuple[type, ...]) -> None:
    """The constants hold for every convex prior, and for no other. What a known one says, its subclass must repeat."""
    own = [kind for kind in type(prior).__mro__ if kind not in known]
    says_so = getattr(prior, "convex", None) is True and any("convex" in vars(kind) for kind in own)
    if type(prior) not in known and not says_so:
        raise ValueError(
            f"the prior must be convex to be certified, got {type(prior).__name__}, which does not say so; give its "
            "class `convex = True` if it is, and if `prox` is its exact proximal map"
        )


def single(x: Any) -> None:
    if not isinstance(x, Tensor) or x.ndim < 2 or not len(x):
        raise TypeError(f"x must be one tensor, a batch of inputs, got {_told(x)}; certify inputs one by one")
    if x.dtype not in (torch.float32, torch.float64):
        raise TypeError(f"x must be float32 or float64, in which the noise is drawn, got {x.dtype}; call x.float()")


def _told(x: Any) -> str:
    return f"a tensor of shape {tuple(x.shape)}" if isinstance(x, Tensor) else type(x).__name__


def one_class_each(target: Any, images: int) -> list[int]:
    """A class number for every image."""
    given = target.reshape(-1).tolist() if isinstance(target, Tensor) else target
    given = [given] if isinstance(given, int) else given
    if not isinstance(given, list) or not all(isinstance(each, int) for each in given):
        raise TypeError(f"target must be a class number, or one for each image, got {target!r}")
    given = given * images if len(given) == 1 else given
    if len(given) != images:
        raise ValueError(f"target must be one class number for each of {images} images, got {len(given)}")
    return given


def class_scores(output: Tensor) -> Tensor:
    if output.ndim != 2 or output.shape[1] < 2:
        raise ValueError(
            f"target must be given where the model does not say (N, classes), got output of shape {tuple(output.shape)}"
        )
    return output


def ranks_alone(told: Mapping[str, Any]) -> None:
    """The certificate of Sparsified SmoothGrad rests on nothing but the noise."""
    given = [name for name, value in told.items() if value not in (None, False)]
    if given:
        raise ValueError(f"{', '.join(given)} must be left out for SparsifiedSmoothGrad, whose certificate takes none")


def not_both(bounded: bool, convex: bool) -> None:
    if bounded and convex:
        raise ValueError(
            "a score with a range cannot be convex, unless it is constant, got convex=True with one; take "
            "score='logit' of a network that is convex in its input"
        )


def several(given: Any, eta: Any) -> None:
    if given is not None or (isinstance(eta, Tensor) and eta.numel() > 1):
        raise ValueError("eta and sparsity must be one number in a certificate, got several; certify them one by one")


def absolute(smoothing: Any) -> None:
    """sigma must be a number: one tied to the image changes with the image."""
    if smoothing is not None and smoothing.sigma is None:
        raise ValueError(
            f"sigma must be a fixed number, got noise_level={smoothing.noise_level:g}, a share of each image's own "
            "range, with which no constant holds; take Smoothing(sigma=...), in units of the input"
        )


def sound(recipe: str, table: Mapping[str, Any], frozen: bool, bare: bool) -> None:
    """Constants of an average hold for the average, not for a sum over frozen noise; and the other way round."""
    one_of("recipe", recipe, table)
    noisy = recipe in ("range", "local", "lipschitz")
    if noisy and frozen:
        what = "no noise" if bare else "fixed noise, whose average has the curvature of the network itself"
        raise ValueError(
            f"recipe={recipe!r} rests on averaging over fresh noise, got {what}; take Smoothing(sigma=...), or "
            "recipe='smooth' with curvature=..., or recipe='convex'"
        )
    if not noisy and not frozen:
        raise ValueError(
            f"recipe={recipe!r} rests on a score that is computed exactly, got fresh noise at each step; take "
            "smoothing=None or Smoothing(sigma=..., fixed=True), or recipe='local' or 'lipschitz'"
        )


def met(recipe: str, bounds: Any, lipschitz: Any, curvature: Any, convex: bool) -> None:
    """What a recipe rests on must be known."""
    if recipe in ("range", "local"):
        if bounds is None:
            raise ValueError(
                f"recipe={recipe!r} needs a score with a known range, got one without, as logits are; take "
                "score='prob', clip the logits (mg.Clipped), or give bounds=(low, high); with a known Lipschitz "
                "constant give lipschitz=..."
            )
        score_range(*bounds)
    if recipe == "lipschitz":
        known("lipschitz", lipschitz, "give lipschitz=..., or 'exact' for a network of layers with exact norms")
    if recipe == "convex" and not convex:
        raise ValueError(
            "recipe='convex' needs a score that is convex in its input, got no such statement; give convex=True if it "
            "is, or recipe='smooth' with curvature=(lam, beta)"
        )
    if recipe == "smooth":
        if curvature is None:
            raise ValueError(
                "recipe='smooth' needs bounds of the second derivatives, got none; give curvature=(lam, beta), or "
                "'exact' for a network of smooth layers with exact norms; ReLU has none: take fresh noise"
            )
        known("lam", curvature[0])


def pair(given: Any) -> tuple[float, float] | None:
    if given is None:
        return None
    if not isinstance(given, tuple | list) or len(given) != 2:
        raise TypeError(f"bounds must be (low, high), got {given!r}")
    score_range(*given)
    return float(given[0]), float(given[1])


def constant(name: str, given: Any, exact: str) -> Any:
    """A number, the word for one that is computed, or None; curvature may be (lam, beta)."""
    if given is None or given == exact:
        return given
    if isinstance(given, str):
        raise ValueError(f"{name} must be a number or {exact!r}, got {given!r}")
    if name == "curvature" and isinstance(given, tuple | list):
        if len(given) != 2:
            raise TypeError(f"curvature must be a number or (lam, beta), got {given!r}")
        lam, beta = given
        known("lam", lam)
        number("beta", beta)
        return float(lam), float(beta)
    known(name, given)
    return float(given)


def chance(alpha: float, compared: str) -> None:
    if compared == "computed" and alpha >= 0.5:
        raise ValueError(
            f"alpha must be below 0.5 for compared='computed', where both maps may fail, got {alpha!r}; lower it, or "
            "take compared='ideal'"
        )


def enough(samples: int, least: int) -> None:
    if samples < least:
        raise ValueError(f"samples must be at least {least} under noise, got {samples}; thousands promise something")


def hidden(seed: int | None, own: Any, compared: str) -> None:
    """The noise of a certificate must be new, and unknown to whoever chooses the changed input."""
    if seed is not None and seed == own:
        raise ValueError(
            f"seed must not be the method's own, whose noise the solution already knows, got {seed} for both; "
            "leave seed out"
        )
    if seed is not None and compared == "computed":
        raise ValueError(
            f"compared='computed' speaks of an input chosen before the noise is drawn, got a seed, {seed}, to which an "
            "attacker may adapt; leave seed out, or take compared='ideal'"
        )


def steepness(longest: float, L: float) -> None:
    """What is said of a network must not be seen to be wrong."""
    if not longest <= L * (1 + 1e-4):
        raise ValueError(f"lipschitz must bound every gradient, got {L:g}, but one of length {longest:.6g} occurred")


def inside(low: float, high: float, bounds: tuple[float, float]) -> None:
    slack = 1e-3 * (bounds[1] - bounds[0])  # float32, and float16 more, lets a softmax leave [0, 1] by so little
    if not (low >= bounds[0] - slack and high <= bounds[1] + slack):
        raise ValueError(f"bounds must hold every score, got {bounds}, but scores {low:.6g} to {high:.6g} occurred")


def needs_gradient(grid: int | None, recipe: str) -> None:
    if grid is not None and recipe not in ("range", "local"):
        raise ValueError(
            f"grid is for recipes 'range' and 'local', which estimate few coordinates, got recipe={recipe!r}; drop it"
        )


def centrable(score: str, noisy: bool, recipe: str | None, told: bool) -> None:
    """Odds are made of logits, and have a range only."""
    if told:
        raise ValueError(
            "centred=True has a score of its own, of which bounds, lipschitz, curvature and convex say nothing, got "
            "one of them; drop it, or centred"
        )
    if score not in ("logit", "prob") or not noisy or recipe not in (None, "range", "local"):
        raise ValueError(
            f"centred=True takes the odds of logits under fresh noise, got score={score!r} and recipe={recipe!r}; "
            "take score='logit', Smoothing(sigma=...) and recipe='local'"
        )


def one_group_each(labels: bool) -> None:
    if labels:
        raise ValueError(
            "groups must be the cells of the grid in a certificate with grid=, got labels; give the same number"
        )


def convex_prior(penalised: bool, beta: float) -> None:
    if penalised and math.isinf(beta):
        raise ValueError(
            "a map with a prior needs an upper bound of the curvature, got none; give curvature=(0, beta), or take "
            "MoreauGrad, without a prior"
        )
