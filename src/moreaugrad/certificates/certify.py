"""`certify`: from a method and an input to certificates."""

from __future__ import annotations

import math
import secrets
import warnings
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from moreaugrad import validate
from moreaugrad.certificates import theory
from moreaugrad.certificates.assumptions import (
    CERTIFIED,
    GROUP_OF,
    OPTIONS,
    SAMPLED,
    Assumptions,
    CertifiedProblem,
    CertifyOptions,
    FreshNoise,
    KnownScore,
    ReportOptions,
    choose_recipe,
    gather_knowledge,
    group_options,
)
from moreaugrad.certificates.certificate import Certificate
from moreaugrad.certificates.evidence import Evidence, Plan, certify_ranks, measure
from moreaugrad.certificates.measurement import find_prior, make_runner
from moreaugrad.certificates.votes import check_votes, count, plan_votes, refuse_constants
from moreaugrad.envelope.groups import take_groups
from moreaugrad.envelope.priors import Group, Zero
from moreaugrad.methods.moreau import MoreauGrad
from moreaugrad.methods.smoothgrad import SmoothGrad
from moreaugrad.methods.sparsified import SparsifiedSmoothGrad
from moreaugrad.model.bounded import Odds
from moreaugrad.types import Images

FAMILY = (MoreauGrad, SmoothGrad, SparsifiedSmoothGrad)


def certify(
    method: MoreauGrad | SmoothGrad | SparsifiedSmoothGrad,
    x: Tensor,
    target: Any = None,
    epsilon: float = 0.1,
    *,
    assume: Assumptions | None = None,
    problem: CertifiedProblem | None = None,
    noise: FreshNoise | None = None,
    report: ReportOptions | None = None,
    **former: Any,
) -> list[Certificate]:
    """What surely holds for the maps of all inputs within epsilon of x, one certificate per image.

    With the Lipschitz constant Lip of the ideal map and the error e of the computed one, maps move by at most
    `Lip * epsilon + e`; statements on top units, direction and support follow. The score must have a known range
    (score="prob", `Clipped`, `Votes`), a known Lipschitz constant or curvature, or be convex. The certified map is
    that of the method's own prior, which must be convex. Of `statistic="votes"` with rho=0 nothing need be known: each
    share of votes is bounded by itself, for any network, and so is what a frozen threshold keeps of it. With groups
    the votes are those of groups, by the l2 norm of their gradients.

    Args:
        method: MoreauGrad with any convex prior; MoreauGrad(rho=0) or SmoothGrad with statistic="votes"; or
            SparsifiedSmoothGrad. Noise with a fixed sigma or none.
        x: a batch of inputs, float32 or float64.
        target: the class, one or one per image; None: the predicted ones. It is the same at the changed input.
        epsilon: l2 length of the changes, in units of x.
        assume: what is known of the score; nothing but what the score and the layers say by themselves.
        problem: another rho, a grid of cells, centred odds; the method as it is.
        noise: number of fresh samples, the chance of failure for each image, the seed; 10,000 samples and 0.001.
        report: how many top units of which kind, and which pair of maps is compared; a tenth of the pixels.
        **former: the fields of the four options as keywords of their own; deprecated.

    Returns:
        One `Certificate` per image. One that promises nothing says so (`vacuous`).

    Raises:
        ValueError: something the certificate rests on is not known or does not hold; the message says what to do.
        TypeError: the method has no certificate.

    Example:
        >>> method = mg.MoreauGrad(net, score="prob", smoothing=mg.Smoothing(sigma=0.5))
        >>> problem, noise = mg.CertifiedProblem(rho="certified", grid=2), mg.FreshNoise(samples=256, seed=1)
        >>> found = mg.certify(method, x, epsilon=0.01, problem=problem, noise=noise)
        >>> [(each.recipe, each.topk.units, each.vacuous) for each in found]
        [('local', 'cells', True), ('local', 'cells', True)]
        >>> voted = mg.MoreauGrad(net, rho=0, statistic="votes", smoothing=mg.Smoothing(sigma=0.5), prior=mg.L1())
        >>> found = mg.certify(voted, x[:1], epsilon=0.01, noise=mg.FreshNoise(samples=256, seed=1))[0]
        >>> found.recipe, found.support.active
        ('votes', 38)
    """
    given = {"assume": assume, "problem": problem, "noise": noise, "report": report}
    options = _read_options(given, former)
    _check_call(method, x, epsilon, options)
    x = x.detach()
    methods = [_choose_groups(method, x, number) for number in range(len(x))]
    grouped = isinstance(method, MoreauGrad) and type(find_prior(methods[0], x[:1])) is Group
    grid = options.problem.grid
    units = options.report.choose_units(grouped, x.ndim > 2, grid is not None)
    options = replace(options, report=replace(options.report, units=units))
    seed = options.noise.seed
    generator = torch.Generator(x.device).manual_seed(secrets.randbits(62) if seed is None else seed)
    if isinstance(method, SparsifiedSmoothGrad):
        return _certify_ranks(method, x, target, epsilon, options, generator)
    way = _certify_votes if method.counts_votes else _certify_solutions
    return way(methods, x, target, epsilon, options, generator)


def _certify_solutions(
    methods: Sequence[MoreauGrad],
    x: Images,
    target: Any,
    epsilon: float,
    options: CertifyOptions,
    generator: torch.Generator,
) -> list[Certificate]:
    """Of maps that are solutions; all refusals come before any model call but that for the class."""
    classes, images = _choose_classes(methods[0], x, target), x.split(1)
    plans = [make_plan(own, c, options) for own, c in zip(methods, classes, strict=True)]
    run = make_runner(methods[0], images[0], classes, plans[0].recipe in ("range", "local"))
    measured = [measure(plan, one, run, generator) for plan, one in zip(plans, images, strict=True)]
    return [Evidence(*each).certify(epsilon) for each in zip(plans, measured, strict=True)]


def _certify_votes(
    methods: Sequence[MoreauGrad | SmoothGrad],
    x: Images,
    target: Any,
    epsilon: float,
    options: CertifyOptions,
    generator: torch.Generator,
) -> list[Certificate]:
    """Of votes at the input."""
    images = x.split(1)
    plans = [plan_votes(own, one, epsilon, options) for own, one in zip(methods, images, strict=True)]
    classes = _choose_classes(methods[0], x, target)
    run = make_runner(methods[0], images[0], classes, coarse=False)
    counted = [count(*each, run, generator) for each in zip(plans, images, classes, strict=True)]
    return [each.certify(epsilon) for each in counted]


def _certify_ranks(
    method: SparsifiedSmoothGrad,
    x: Images,
    target: Any,
    epsilon: float,
    options: CertifyOptions,
    generator: torch.Generator,
) -> list[Certificate]:
    """Of Sparsified SmoothGrad."""
    classes, images = _choose_classes(method, x, target), x.split(1)
    seeds = [int(torch.randint(2**62, (), generator=generator, device=x.device)) for _ in images]
    made = zip(images, classes, seeds, strict=True)
    return [certify_ranks(method, one, c, options.noise, options.report, own)(epsilon) for one, c, own in made]


def _read_options(given: dict[str, Any], former: dict[str, Any]) -> CertifyOptions:
    """The groups, with the keywords of the former flat call put where they belong."""
    for name, kind in OPTIONS.items():
        if given[name] is not None and not isinstance(given[name], kind):
            raise TypeError(f"{name} must be mg.{kind.__name__}(...), got {given[name]!r}")
    for name in former:
        validate.one_of("an option of certify", name, dict.fromkeys((*OPTIONS, *GROUP_OF)))
    if former:
        now = ", ".join(f"{GROUP_OF[name]}=mg.{OPTIONS[GROUP_OF[name]].__name__}({name}=...)" for name in former)
        warnings.warn(f"the options of certify are grouped now; write {now}", DeprecationWarning, stacklevel=3)
    return CertifyOptions(**group_options(former, **given))


def _check_call(method: Any, x: Any, epsilon: float, options: CertifyOptions) -> None:
    """What can be refused before anything is computed."""
    names = ", ".join(kind.__name__ for kind in (MoreauGrad, SparsifiedSmoothGrad))
    if not isinstance(method, FAMILY) or (isinstance(method, SmoothGrad) and not method.counts_votes):
        raise TypeError(
            f"certify must be given one of {names} or their sparse forms, or SmoothGrad(statistic='votes'), got "
            f"{type(method).__name__}"
        )
    for name in ("compute", "attribute", "explain", "_explain", "_in_blocks"):
        if getattr(type(method), name) not in [getattr(kind, name) for kind in FAMILY]:
            raise TypeError(
                f"certify knows what {names} and SmoothGrad compute, got {type(method).__name__}, which overrides "
                f"{name}; override the prior alone"
            )
    validate.plain_score(method, "certify")
    if not isinstance(x, Tensor) or x.ndim < 2 or not len(x):
        what = f"a tensor of shape {tuple(x.shape)}" if isinstance(x, Tensor) else type(x).__name__
        raise TypeError(f"x must be one tensor, a batch of inputs, got {what}; certify inputs one by one")
    if x.dtype not in (torch.float32, torch.float64):
        raise TypeError(f"x must be float32 or float64, in which the noise is drawn, got {x.dtype}; call x.float()")
    validate.one_input(x)
    theory.check(epsilon=epsilon)
    eta = getattr(method, "eta", None)
    if method.several is not None or (isinstance(eta, Tensor) and eta.numel() > 1):
        raise ValueError("eta and sparsity must be one number in a certificate, got several; certify them one by one")
    if method.smoothing is not None and method.smoothing.sigma is None:
        own, which = float(method.smoothing.scale(x[:1])), "this image" if len(x) == 1 else "the first image"
        raise ValueError(
            f"sigma must be a fixed number, got noise_level={method.smoothing.noise_level:g}, a share of each image's "
            f"own range, with which no constant holds; take Smoothing(sigma={own:.4g}), that share of {which}, in "
            "units of the input"
        )
    _check_statistic(method, options)
    _check_chance(options.noise, options.report.compared, method.seed)


def _check_statistic(method: Any, options: CertifyOptions) -> None:
    """Of what a certificate is known, and the options that have no use there."""
    if isinstance(method, SparsifiedSmoothGrad):
        refuse_constants(options, "SparsifiedSmoothGrad")
    elif method.counts_votes:
        check_votes(method, options)
    elif method.statistic != "mean":
        raise ValueError(
            f"statistic must be 'votes', with rho=0, or 'mean' to be certified, got {method.statistic!r}, of which no "
            "bound is known; take statistic='votes'"
        )
    elif method.rho == 0 and options.problem.rho is None:
        raise ValueError(
            "rho must be positive in a certificate of the mean, got 0; take CertifiedProblem(rho='certified', "
            "theta=0.01), which is close to it, or statistic='votes'"
        )


def _check_chance(noise: FreshNoise, compared: str, own: Any) -> None:
    """The noise of a certificate must be new, and unknown to whoever chooses the changed input."""
    if compared == "computed" and noise.alpha >= 0.5:
        raise ValueError(
            f"alpha must be below 0.5 for compared='computed', where both maps may fail, got {noise.alpha!r}; lower "
            "it, or take compared='ideal'"
        )
    if noise.seed is not None and noise.seed == own:
        raise ValueError(
            f"seed must not be the method's own, whose noise the solution already knows, got {noise.seed} for both; "
            "leave seed out"
        )
    if noise.seed is not None and compared == "computed":
        raise ValueError(
            f"compared='computed' speaks of an input chosen before the noise is drawn, got a seed, {noise.seed}, to "
            "which an attacker may adapt; leave seed out, or take compared='ideal'"
        )


def _choose_classes(method: Any, x: Images, target: Any) -> list[int]:
    """The class of each image: as given, else the predicted one; it stays the same at the changed input."""
    if target is None:
        validate.evaluating(method.forward_func)
        with torch.no_grad():
            output = validate.output(method.forward_func(x.clone()), len(x))
        if output.ndim != 2 or output.shape[1] < 2:
            raise ValueError(
                "target must be given where the model does not say (N, classes), got output of shape "
                f"{tuple(output.shape)}"
            )
        target = output.argmax(1)
    target = validate.target(target, len(x))
    given = target.reshape(-1).tolist() if isinstance(target, Tensor) else target
    given = [given] if isinstance(given, int) else given
    if not isinstance(given, list) or not all(isinstance(each, int) for each in given):
        raise TypeError(f"target must be a class number, or one for each image, got {target!r}")
    return given * len(x) if len(given) == 1 else given


def _choose_groups(method: Any, x: Images, number: int) -> Any:
    """The method for one image of the batch, where its label maps hold one for each."""
    prior = getattr(method, "prior", None)
    if type(prior) is not Group or len(x) == 1:
        return method
    groups = take_groups(prior.groups, (tuple(x.shape[1:]),), len(x), slice(number, number + 1))
    return replace(method, groups=groups) if hasattr(method, "groups") else replace(method, prior=Group(groups))


def make_plan(method: MoreauGrad, target: int, options: CertifyOptions) -> Plan:
    """The recipe and rho of one image; refuses what is not sound. Runs no network."""
    assume, problem, noise = options.assume, options.problem, method.smoothing
    if problem.centred:
        _check_centred(method, assume)
        known = KnownScore(Odds.bounds)
    else:
        known = gather_knowledge(method, target, assume)
    recipe = choose_recipe(assume.recipe, known, noise)
    least = 64 if recipe in SAMPLED else 4
    if options.noise.samples < least:
        raise ValueError(
            f"samples must be at least {least} under noise, got {options.noise.samples}; thousands promise something"
        )
    if problem.grid is not None and recipe not in ("range", "local"):
        raise ValueError(
            f"grid is for recipes 'range' and 'local', which estimate few coordinates, got recipe={recipe!r}; drop it"
        )
    sigma = float(noise.sigma or 0.0) if noise else 0.0
    lam, beta = known.bound_curvature(recipe, sigma)
    if type(method.prior) is not Zero and math.isinf(beta):
        raise ValueError(
            "a map with a prior needs an upper bound of the curvature, got none; give curvature=(0, beta), or take "
            "MoreauGrad, without a prior"
        )
    rho: Any = method.rho if problem.rho is None else problem.rho
    if rho == CERTIFIED:
        rho = problem.theta / lam if lam > 0 else method.rho  # of a convex score any is certified
    if recipe != "local":  # which may certify more than what holds everywhere
        theory.check_convexity(rho, lam)
    return Plan(replace(method, rho=float(rho)), target, recipe, known, sigma, options)


def _check_centred(method: MoreauGrad, assume: Assumptions) -> None:
    """Odds are made of logits, and have a range only."""
    if replace(assume, recipe=None) != Assumptions():
        raise ValueError(
            "centred=True has a score of its own, of which bounds, lipschitz, curvature and convex say nothing, got "
            "one of them; drop it, or centred"
        )
    noisy = method.smoothing is not None and not method.smoothing.fixed
    if method.score not in ("logit", "prob") or not noisy or assume.recipe not in (None, "range", "local"):
        raise ValueError(
            f"centred=True takes the odds of logits under fresh noise, got score={method.score!r} and "
            f"recipe={assume.recipe!r}; take score='logit', Smoothing(sigma=...) and recipe='local'"
        )
