"""Certifies the map of one picture, and tries the certificate with attacks.

An attack is led by cheap maps of the frozen method; the most promising change of each length is then measured.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from time import perf_counter
from typing import Any

import torch
from PIL import Image
from torch import Tensor

from moreaugrad.attacks.topk import TopK
from moreaugrad.certificates import assumptions, theory
from moreaugrad.certificates.assumptions import KnownScore, group_options
from moreaugrad.certificates.certificate import Certificate
from moreaugrad.certificates.certify import certify, make_plan
from moreaugrad.certificates.measurement import Subspace
from moreaugrad.cli import certify_report
from moreaugrad.cli.certify import CERTIFIED, EXACT, RANKS, CertifyOptions
from moreaugrad.cli.options import class_number
from moreaugrad.cli.report import Findings
from moreaugrad.cli.terminal import Terminal
from moreaugrad.envelope.derivative import parse_derivative
from moreaugrad.methods.moreau import GroupSparseMoreauGrad, MoreauGrad
from moreaugrad.methods.options import make_method
from moreaugrad.model.bounded import Clipped, Odds, Votes
from moreaugrad.model.lipschitz_bounds import lipschitz_bounds
from moreaugrad.model.smoothing import independent_seed
from moreaugrad.models.classifier import Classifier
from moreaugrad.models.pixels import in_pixels

log = logging.getLogger("moreaugrad")

MULTIPLES = (1, 2, 3)  # of the asked epsilon, at which a certificate is tried
RANDOM_DIRECTIONS = 4  # of each length
BUDGET, QUICK = 80, "implicit:5x16"  # gradients of a map inside the attack, and its derivative
NOISE_ALONE, DIRECTED, RANDOM = "new noise", "topk", "random"


@dataclass(frozen=True, eq=False)
class Case:
    """One image and class of one network, and the method that explains it."""

    classifier: Classifier
    method: Any
    x: Tensor
    target: int
    typed: CertifyOptions
    terms: Mapping[str, Any]  # options of `certify`
    forecast: str | None = None  # why nothing will be guaranteed, where that is known beforehand


@dataclass(frozen=True, slots=True)
class Trial:
    """A changed input, and how many of the top units are still on top of its map."""

    kind: str  # topk or random; "new noise": the input as it is
    epsilon: float
    length: float  # of the change
    overlap: int
    promised: int  # by the certificate, for changes of this length


def certify_picture(
    classifier: Classifier,
    picture: Image.Image,
    *,
    typed: CertifyOptions,
    terms: Mapping[str, Any],
    clip: tuple[float, float] | None = None,
    options: Mapping[str, Any],
    target: str | None = None,
    terminal: Terminal,
) -> Findings:
    """The certificate; and, where it guarantees anything at all, attacks that try it."""
    classifier = in_pixels(classifier) if typed.pixels else classifier
    x = classifier.preprocess(picture)[None].contiguous()
    case = open_case(classifier, x, class_number(target, classifier), typed, terms, clip, options)
    if case.forecast:
        log.warning(case.forecast)
    began = perf_counter()
    with terminal.busy(f"certifying {typed.method}"):
        (certificate,) = certify(case.method, x, case.target, typed.epsilon, **group_options(case.terms))
        seconds = {"certificate": round(perf_counter() - began, 3)}
        pointless = case.forecast or not typed.attack_steps or not certificate.at(0).topk.overlap
        trials = () if pointless else try_certificate(case, certificate)
    seconds["all"] = round(perf_counter() - began, 3)
    facts = certify_report.collect_facts(case, clip, certificate, trials, seconds)
    shown: dict[str, Any] = {"case": case, "found": certificate, "trials": trials}
    return facts, partial(certify_report.describe, **shown), partial(certify_report.draw, **shown)


def open_case(
    classifier: Classifier,
    x: Tensor,
    target: int | None,
    typed: CertifyOptions,
    terms: Mapping[str, Any],
    clip: tuple[float, float] | None,
    options: Mapping[str, Any],
) -> Case:
    """Refuse or forecast whatever is possible before a noisy copy is made."""
    if target is None:
        with torch.no_grad():
            target = int(classifier(x).argmax())
    network: Any = Votes(classifier) if typed.votes else classifier if clip is None else Clipped(classifier, *clip)
    score = choose_score(typed, classifier, target)
    given = {**options, "sigma": typed.noise or 0.0} | ({} if score is None else {"score": score})
    method = make_method(typed.method, network, given)
    if typed.method == RANKS:
        return Case(classifier, method, x, target, typed, terms)
    terms = {**terms, "rho": CERTIFIED if terms["rho"] is None else terms["rho"]}
    plan = make_plan(method, target, assumptions.CertifyOptions(**group_options(terms)))
    if typed.rho is None and not plan.known.bound_curvature(plan.recipe, plan.sigma)[0] > 0:
        terms["rho"] = None  # every rho is certified
    terms["recipe"] = plan.recipe
    return Case(classifier, method, x, target, typed, terms, forecast_vacuous(x, plan.recipe, plan.known, typed))


def choose_score(typed: CertifyOptions, classifier: Classifier, target: int) -> str | None:
    """The score asked for; else logits if they are clipped or their constants are known, and probabilities if not."""
    if typed.score is not None or typed.method == RANKS:
        return typed.score
    if typed.clip is not None or typed.votes or EXACT in (typed.lipschitz, typed.curvature):
        return "logit"
    if typed.centred or typed.recipe in ("range", "local"):
        return "prob"
    try:
        known = lipschitz_bounds(classifier, of=target)
    except (TypeError, ValueError):  # a layer without constants
        return "prob"
    return "logit" if typed.noise is not None or math.isfinite(known.curvature) else "prob"


def forecast_vacuous(x: Tensor, recipe: str, known: KnownScore, typed: CertifyOptions) -> str | None:
    """Why the certificate must be vacuous, if the error of sampling alone exceeds every gradient there can be."""
    if recipe not in ("range", "local") or known.bounds is None or typed.noise is None:
        return None
    size = Subspace(tuple(x.shape[1:]), typed.grid).size
    error = theory.err_stein(size, typed.samples, typed.alpha, typed.noise, known.width)
    longest = theory.gradient_cap(*known.bounds, typed.noise)
    if error <= longest:
        return None
    needed = typed.samples * (error / longest) ** 2
    digit = int(10 ** max(0, math.floor(math.log10(needed)) - 1))
    cells = max(each for each in range(1, 9) if not math.gcd(*x.shape[2:]) % each)
    coarser = f"--grid {cells} asks for {x.shape[1] * cells**2} numbers only, or "
    return (
        f"this certificate will be vacuous: {typed.samples:,} samples, each a forward pass, tell {size:,} numbers of a "
        f"map with an error of up to {error:.3g}, and no gradient is longer than {longest:.3g}; "
        f"{coarser if cells < (typed.grid or math.inf) else ''}give --samples of more than "
        f"{math.ceil(needed / digit) * digit:,}"
    )


def try_certificate(case: Case, certificate: Certificate) -> tuple[Trial, ...]:
    """The input itself on new noise, where there is any, and the best attack found of each length."""
    found = [_measure(case, certificate, NOISE_ALONE, 0.0, case.x, 0)] if certificate.accuracy.samples else []
    scout = make_cheap(case, certificate)
    top = _find_top(scout, case, certificate, case.x)
    for number, multiple in enumerate(MULTIPLES if certificate.epsilon > 0 else (), 1):
        epsilon = multiple * certificate.epsilon
        kind, at = min(
            propose_changes(scout, case, certificate.topk.k / top.numel(), epsilon),
            key=lambda each: int((top & _find_top(scout, case, certificate, each[1])).sum()),
        )
        found.append(_measure(case, certificate, kind, epsilon, at, number))
    return tuple(found)


def propose_changes(scout: Any, case: Case, share: float, epsilon: float) -> Iterator[tuple[str, Tensor]]:
    """Inputs within epsilon: by an attack on the map, if it can be differentiated, and in random directions."""
    x, generator = case.x, torch.Generator().manual_seed(1)
    if scout.differentiable:
        steps, box = case.typed.attack_steps, case.classifier.box
        attack = TopK(scout, epsilon, k=share, per_pixel=x.ndim == 4, steps=steps, box=box)
        try:
            yield DIRECTED, attack.perturb(x, case.target).x
        except (ValueError, TypeError, RuntimeError) as error:  # no copy of the network, or no second derivative
            log.warning("the attack led by the map was left out: %s", error)
    for _ in range(RANDOM_DIRECTIONS):
        way = torch.randn(x.shape, generator=generator).to(x)
        yield RANDOM, x + epsilon * way / way.norm()


def make_cheap(case: Case, certificate: Certificate) -> Any:
    """The frozen method with few gradients, on a network that can be differentiated and copied.

    Votes have no derivative, so probabilities stand in for them; the prior of a grid is none of pixels.
    """
    method = certificate.method
    if not isinstance(method, MoreauGrad):
        return replace(method, smoothing=replace(method.smoothing, samples=BUDGET))
    network: Any = method.forward_func
    if isinstance(network, Odds):
        network = Odds(case.classifier, network.centre, network.scale)
    elif case.typed.votes:
        network = case.classifier
    cheap: dict[str, Any] = {"forward_func": network, "budget": BUDGET, "derivative": parse_derivative(QUICK)}
    cheap |= {"score": "prob"} if case.typed.votes else {}
    if case.typed.grid is None:
        return replace(method, **cheap)
    return MoreauGrad(**{"rho": method.rho, "smoothing": method.smoothing, "score": method.score} | cheap)


def _find_top(scout: Any, case: Case, certificate: Certificate, at: Tensor) -> Tensor:
    found = scout.attribute(at, case.target).detach()
    return certificate.top(Subspace(tuple(at.shape[1:]), case.typed.grid).project(found)[0].to(certificate.map))


def _measure(case: Case, certificate: Certificate, kind: str, epsilon: float, at: Tensor, number: int) -> Trial:
    """The map of the changed input by the same terms, with everything frozen that was found at the input itself."""
    method, terms = certificate.method, {**case.terms, "k": certificate.topk.k}
    if case.typed.method != RANKS:
        terms |= {"rho": None, "centred": False}  # the method has both
    if isinstance(method, GroupSparseMoreauGrad) and terms["grid"] is not None:
        method = replace(method, groups=terms["grid"])
    if terms["seed"] is not None:
        terms["seed"] = independent_seed(terms["seed"], 10 + number)  # not the noise that the certificate knows
    (other,) = certify(method, at, case.target, 0.0, **group_options(terms))
    length = float((at - case.x).double().norm())
    promised = certificate.at(max(epsilon, length)).topk.overlap
    return Trial(kind, epsilon, length, certificate.overlap_with(other.map), promised)
