"""`certify`: one image, its map, what is promised of it, and what was tried against the promise."""

from __future__ import annotations

import logging
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from time import perf_counter
from typing import Any

import torch
from torch import Tensor

from moreaugrad import validate
from moreaugrad.certificates import checks_theory as conditions
from moreaugrad.certificates import theory
from moreaugrad.certificates.assumptions import Facts, choose, gather
from moreaugrad.certificates.certificate import Certificate
from moreaugrad.certificates.certify import certify
from moreaugrad.certificates.lipschitz_bounds import smoothness
from moreaugrad.certificates.measurement import bends
from moreaugrad.certificates.subspace import space_of
from moreaugrad.cli import certify_report
from moreaugrad.cli.certify import CERTIFIED, EXACT, RANKS
from moreaugrad.cli.certify_trials import Trial, try_out
from moreaugrad.cli.jobs import DONE, class_number, load, prepare
from moreaugrad.cli.method_options import make_method
from moreaugrad.cli.request import Request
from moreaugrad.cli.terminal import Terminal
from moreaugrad.data.images import read_image
from moreaugrad.model.bounded import Clipped, Odds, Votes
from moreaugrad.models.classifier import Classifier
from moreaugrad.models.pixels import in_pixels
from moreaugrad.types import Item

log = logging.getLogger("moreaugrad")

OF_THE_SCORE = ("bounds", "lipschitz", "curvature", "convex")  # what may be said of it


@dataclass(frozen=True, slots=True)
class Asked:
    """What is to be certified, and how."""

    method: str
    epsilon: float
    score: str | None = None  # None: chosen by what is known of the network
    sigma: float | None = 0.25  # None: no noise
    clip: tuple[float, float] | None = None
    votes: bool = False
    pixels: bool = False
    attack_steps: int = 10
    terms: Mapping[str, Any] = field(default_factory=dict)  # options of `certify`

    def __post_init__(self) -> None:
        conditions.radius(self.epsilon)
        conditions.level(self.terms["alpha"])
        validate.at_least("attack_steps", self.attack_steps, 0)
        if self.clip is not None:
            conditions.score_range(*self.clip)
        self._no_contradiction()

    def _no_contradiction(self) -> None:
        given = {name for name, value in self.terms.items() if value is not None and value is not False}
        said = [name for name in OF_THE_SCORE if name in given and self.terms[name] != EXACT]
        wrapped = [name for name, there in (("clip", self.clip), ("votes", self.votes)) if there]
        scores = [*wrapped, *(["centred"] if "centred" in given else [])]
        if len(scores) > 1:
            raise ValueError(f"--{scores[0]} and --{scores[1]} exclude each other, got both")
        if wrapped and self.score not in (None, "logit"):
            raise ValueError(f"--{wrapped[0]} makes logits with a range, got --score {self.score}; leave --score out")
        if said and "centred" in given:
            raise ValueError(f"--centred has a range of its own, got --{said[0]} too; leave that out")
        if said and not wrapped and self.score is None:
            raise ValueError(
                f"--{said[0]} holds for one kind of score, got none; say which: --score logit or --score prob"
            )
        if self.method == RANKS:
            useless = [*scores, *(name for name in (*OF_THE_SCORE, "recipe", "rho", "grid") if name in given)]
            if useless:
                raise ValueError(
                    f"--{useless[0]} must be left out with {RANKS}, which is certified by the ranks of its map alone"
                )


@dataclass(frozen=True, eq=False)
class Case:
    """One image of one class before one network, and the method that explains it."""

    classifier: Classifier
    method: Any
    x: Tensor
    target: int
    asked: Asked
    terms: Mapping[str, Any]  # of `certify`, all settled
    hopeless: str | None = None  # why nothing will be promised, where that is known beforehand


@dataclass(frozen=True, eq=False)
class Verdict:
    """What is promised, and what was tried."""

    case: Case
    certificate: Certificate
    trials: tuple[Trial, ...] = ()
    seconds: Mapping[str, float] = field(default_factory=dict)


def certify_image(image: Path, asked: Asked, request: Request, terminal: Terminal) -> int:
    """OUT/<image>_certificate.png and OUT/<image>_certificate.json, and the certificate in words."""
    terminal.hear_warnings()
    item = Item(Path(image).stem, read_image(image))
    stem = request.out / f"{item.key}_certificate"
    prepare(request.out, [f"{stem.name}.png", f"{stem.name}.json"], [image])
    classifier = load(request, terminal)
    classifier = in_pixels(classifier) if asked.pixels else classifier
    x = classifier.preprocess(item.pixels)[None].contiguous()
    case = open_case(classifier, x, class_number(request.target, classifier), asked, request.options)
    if case.hopeless:
        log.warning(case.hopeless)
    with terminal.busy(f"certifying {asked.method}"):
        verdict = judge(case)
    facts = {"file": str(image), "key": item.key} | certify_report.facts(verdict)
    certify_report.write(verdict, facts, stem)
    for line in certify_report.lines(verdict, facts):
        terminal.say(line)
    terminal.say(f"-> {stem}.png, {stem}.json")
    return DONE


def open_case(classifier: Classifier, x: Tensor, target: int | None, asked: Asked, options: Mapping[str, Any]) -> Case:
    """Everything that can be refused or foreseen is, before a noisy copy is made."""
    if target is None:
        with torch.no_grad():
            target = int(classifier(x).argmax())
    network: Any = classifier
    if asked.clip is not None:
        network = Clipped(classifier, *asked.clip)
    elif asked.votes:
        network = Votes(classifier)
    score = _score(asked, classifier, target)
    told = {"sigma": asked.sigma or 0.0} | ({} if score is None else {"score": score})
    method = make_method(asked.method, network, {**options, **told})
    if asked.method == RANKS:
        return Case(classifier, method, x, target, asked, asked.terms)
    given = Facts(asked.terms["bounds"], convex=asked.terms["convex"])
    facts = (
        Facts(Odds.bounds)
        if asked.terms["centred"]
        else gather(method, target, given, asked.terms["lipschitz"], asked.terms["curvature"])
    )
    recipe = choose(asked.terms["recipe"], facts, method.smoothing)
    rho = asked.terms["rho"]
    if rho is None and bends(recipe, facts, asked.sigma)[0] > 0:  # else every rho is certified
        rho = CERTIFIED
    terms = {**asked.terms, "recipe": recipe, "rho": rho}
    return Case(classifier, method, x, target, asked, terms, foreseen(x, recipe, facts, asked))


def _score(asked: Asked, classifier: Classifier, target: int) -> str | None:
    """As asked; else logits where they are clipped or their constants are known, and probabilities elsewhere."""
    if asked.score is not None or asked.method == RANKS:
        return asked.score
    if asked.clip is not None or asked.votes or EXACT in (asked.terms["lipschitz"], asked.terms["curvature"]):
        return "logit"
    if asked.terms["centred"] or asked.terms["recipe"] in ("range", "local"):
        return "prob"
    try:
        known = smoothness(classifier, of=target)
    except (TypeError, ValueError):  # a layer without constants
        return "prob"
    return "logit" if asked.sigma is not None or math.isfinite(known.curvature) else "prob"


def foreseen(x: Tensor, recipe: str, facts: Facts, asked: Asked) -> str | None:
    """Why the certificate must be vacuous, where the error of sampling alone passes every gradient there can be."""
    if recipe not in ("range", "local"):
        return None
    assert facts.bounds is not None
    assert asked.sigma is not None
    grid, samples, alpha = (asked.terms[name] for name in ("grid", "samples", "alpha"))
    size = space_of(x, grid).size
    conditions.score_range(*facts.bounds)
    error = theory.err_stein(size, samples, alpha, asked.sigma, facts.width)
    longest = theory.gradient_cap(*facts.bounds, asked.sigma)
    if error <= longest:
        return None
    needed = _round_up(samples * (error / longest) ** 2)
    cells = max(each for each in range(1, 9) if not math.gcd(*x.shape[2:]) % each)
    coarser = f"--grid {cells} asks for {x.shape[1] * cells**2} numbers only, or " if cells < (grid or math.inf) else ""
    return (
        f"this certificate will be vacuous: {samples:,} samples, each a forward pass, tell {size:,} numbers of a map "
        f"with an error of up to {error:.3g}, and no gradient is longer than {longest:.3g}; {coarser}give --samples of "
        f"more than {needed:,}"
    )


def _round_up(value: float) -> int:
    """To two digits."""
    step = int(10 ** max(0, math.floor(math.log10(value)) - 1))
    return math.ceil(value / step) * step


def judge(case: Case) -> Verdict:
    """The certificate; and, where it promises anything at all, attacks that try it."""
    began = perf_counter()
    (certificate,) = certify(case.method, case.x, case.target, case.asked.epsilon, **case.terms)
    seconds = {"certificate": round(perf_counter() - began, 3)}
    pointless = case.hopeless or not case.asked.attack_steps or not certificate.at(0).overlap
    trials = () if pointless else try_out(case, certificate)
    return Verdict(case, certificate, trials, seconds | {"all": round(perf_counter() - began, 3)})
