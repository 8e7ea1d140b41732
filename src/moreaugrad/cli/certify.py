"""`certify`: its options, the certificate of one picture's map, and attacks that try it. Heavy imports are made inside.

An attack is led by cheap maps of the frozen method; the most promising change of each length is then measured.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import MISSING, asdict, dataclass, replace
from functools import partial
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING, Any, ClassVar

import moreaugrad as mg
from moreaugrad.cli.checks import class_number, open_image
from moreaugrad.cli.command import complete, option
from moreaugrad.cli.options import ImageFile, Json, ModelOptions, Out, PriorOptions, Quiet, TargetClass
from moreaugrad.cli.terminal import Terminal
from moreaugrad.methods import METHODS

if TYPE_CHECKING:
    from PIL import Image
    from torch import Tensor

    from moreaugrad.certificates.assumptions import KnownScore
    from moreaugrad.certificates.certificate import Certificate
    from moreaugrad.cli.report import Facts, Findings
    from moreaugrad.models.classifier import Classifier

log = logging.getLogger("moreaugrad")

MULTIPLES = (1, 2, 3)  # of the asked epsilon, at which a certificate is tried
RANDOM_DIRECTIONS = 4  # of each length
BUDGET, QUICK = 80, "implicit:5x16"  # gradients of a map inside the attack, and its derivative
NOISE_ALONE, DIRECTED, RANDOM = "new noise", "topk", "random"
EXACT, CERTIFIED = "exact", "certified"
RANKS = "sparsified_smoothgrad"  # certified by the ranks of its map, without constants of the score
CERTIFIABLE = ("moreau", "sparse_moreau", "group_sparse_moreau", RANKS)
VOTES = "votes"  # the statistic that is certified of any network, at rho = 0
SCORE_FACTS = ("bounds", "lipschitz", "curvature", "convex")  # what may be known of a score
OWN = {
    "sigma": "sigma",
    "smoothing": "sigma",
    "rho": "rho",
    "samples": "samples",
    "score": "score",
    "statistic": "statistic",
}


@dataclass(frozen=True)
class CertifyOptions:
    """What to certify, and how."""

    panel: ClassVar[str] = "Certificate"

    epsilon: float = option("l2 length of the changes, in units of the input; see --pixels.", default=MISSING)
    method: str = option(
        f"One of {', '.join(CERTIFIABLE)}, or a registered one.",
        default="moreau",
        autocompletion=complete(lambda: CERTIFIABLE),
    )
    statistic: str | None = option(
        "votes: how often a unit is among the largest, at the input; certified for any network.", shown="mean"
    )
    sigma: float | None = option("Of the noise, in the units of epsilon.", shown="0.25")
    no_noise: bool = option("Use the score without noise; its curvature must be known.", "--no-noise", default=False)
    score: str | None = option("prob, logit or logprob.", shown="logit if layers have exact norms, else prob")
    recipe: str | None = option("range, local, lipschitz, smooth or convex.", shown="the strongest that holds")
    bounds: str | None = option("Bounds of all values of the score.", metavar="LOW,HIGH")
    clip: str | None = option("Certify logits clipped to this range.", metavar="LOW,HIGH")
    votes: bool = option("Certify 1 for the predicted class, else 0; with --grid.", "--votes", default=False)
    centred: bool = option("Certify odds of the class, centred here; with --grid.", "--centred", default=False)
    lipschitz: str | None = option("Lipschitz constant of the score; exact: from the layers.", metavar="NUMBER|exact")
    curvature: str | None = option("Second derivatives are in [-LAM, BETA].", metavar="NUMBER|LAM,BETA|exact")
    convex: bool = option("The score is convex in the input.", "--convex", default=False)
    rho: str | None = option("Envelope radius.", shown="theta of the largest sound one", metavar="NUMBER|certified")
    theta: float = option("Share of the largest certified rho.", default=0.5)
    grid: int | None = option("Certify a map of this many cells per side instead of pixels.")
    samples: int = option("Fresh noise vectors.", default=10000)
    alpha: float = option("Probability that the certificate is wrong.", default=0.001)
    k: int | None = option("Number of top units.", "--k", shown="a tenth of all")
    units: str | None = option("What is ranked: pixels, entries or groups.")
    compared: str = option("Compare with the ideal or a computed map of a changed input.", default="ideal")
    pixels: bool = option("Pixels 0..1 are the input, for epsilon, sigma and rho too.", "--pixels", default=False)
    attack_steps: int = option("Steps of the attack that tries the certificate; 0 for none.", default=10)
    seed: int | None = option("Seed of the fresh noise.", shown="from the system, unknown to anyone")

    def __post_init__(self) -> None:
        _ = METHODS[self.method]
        if self.method not in CERTIFIABLE and "solver" not in METHODS[self.method].flags:
            raise ValueError(
                f"--method must be one of {list(CERTIFIABLE)}, whose maps have certificates, got {self.method!r}"
            )
        if self.no_noise and self.sigma is not None:
            raise ValueError(f"--sigma and --no-noise exclude each other, got both, with sigma {self.sigma:g}")
        if self.sigma is not None and not 0 < self.sigma < math.inf:
            raise ValueError(f"--sigma must be a positive number, got {self.sigma:g}; --no-noise is for none")
        if self.attack_steps < 0:
            raise ValueError(f"attack_steps must be at least 0, got {self.attack_steps}")
        if self.statistic not in (None, "mean", VOTES):
            raise ValueError(f"--statistic must be mean or {VOTES} to be certified, got {self.statistic!r}")
        _ = self.terms(), self.clip_range  # refuses what is no number
        self._check_score()

    def _check_score(self) -> None:
        """Refuse options that contradict each other."""
        said = [name for name in SCORE_FACTS if getattr(self, name) and getattr(self, name) != EXACT]
        wrapped = [name for name in ("clip", "votes") if getattr(self, name)]
        scores = [*wrapped, *(["centred"] if self.centred else [])]
        if len(scores) > 1:
            raise ValueError(f"--{scores[0]} and --{scores[1]} exclude each other, got both")
        if wrapped and self.score not in (None, "logit"):
            raise ValueError(f"--{wrapped[0]} makes logits with a range, got --score {self.score}; leave --score out")
        if said and self.centred:
            raise ValueError(f"--centred has a range of its own, got --{said[0]} too; leave that out")
        if said and not wrapped and self.score is None:
            raise ValueError(
                f"--{said[0]} holds for one kind of score, got none; say which: --score logit or --score prob"
            )
        useless = [*scores, *(name for name in (*SCORE_FACTS, "recipe", "rho", "grid") if getattr(self, name))]
        if self.rests_on_noise and useless:
            which, by = (RANKS, "the ranks of its map") if self.method == RANKS else (f"--statistic {VOTES}", "noise")
            raise ValueError(f"--{useless[0]} must be left out with {which}, which is certified by {by} alone")
        if self.statistic and self.method == RANKS:
            raise ValueError(f"--statistic must be left out with {RANKS}, which takes votes by itself")

    @property
    def rests_on_noise(self) -> bool:
        """Whether nothing need be known of the score."""
        return self.method == RANKS or self.statistic == VOTES

    @property
    def noise(self) -> float | None:
        """sigma, or None for a score without noise."""
        return None if self.no_noise else 0.25 if self.sigma is None else self.sigma

    @property
    def clip_range(self) -> tuple[float, float] | None:
        return parse_pair("clip", self.clip)

    def terms(self) -> dict[str, Any]:
        """The options of the function `certify`."""
        names = ("recipe", "theta", "grid", "samples", "alpha", "k", "units", "compared", "convex", "centred", "seed")
        return {name: getattr(self, name) for name in names} | {
            "bounds": parse_pair("bounds", self.bounds),
            **{name: parse_constant(name, getattr(self, name)) for name in ("lipschitz", "curvature", "rho")},
        }


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


def certify(
    image: ImageFile,
    *,
    typed: CertifyOptions,
    target: TargetClass = None,
    options: PriorOptions,
    model: ModelOptions,
    out: Out = Path("certificates"),
    json: Json = False,
    quiet: Quiet = False,
) -> int:
    """Certify what stays of a map when the image changes: OUT/<image>_certificate.png and .json.

    A certificate that guarantees nothing says VACUOUS. So do those of photos at full resolution; --grid 8 asks for
    less, and the networks `lipschitz` and `lipschitz_cifar10` allow more.
    """
    path, given, terminal = open_image(image), options.given(), Terminal(quiet, json)
    from moreaugrad.cli.report import report_on_image

    if typed.statistic is not None:
        given.pop("statistic", None)  # the same option, which `typed` has too
    check_method_options(given)
    examine = partial(certify_picture, typed=typed, options=given, target=target, terminal=terminal)
    return report_on_image(path, "certificate", model, out, examine, terminal)


def certify_picture(
    classifier: Classifier,
    photo: Image.Image,
    *,
    typed: CertifyOptions,
    options: Mapping[str, Any],
    target: str | None = None,
    terminal: Terminal,
) -> Findings:
    """The certificate; and, where it guarantees anything at all, attacks that try it."""
    from moreaugrad.cli import certify_report
    from moreaugrad.cli.report import to_picture
    from moreaugrad.models.units import in_pixels

    classifier = in_pixels(classifier) if typed.pixels else classifier
    x = classifier.preprocess(photo)[None].contiguous()
    case = open_case(classifier, x, class_number(target, classifier), typed, options)
    if case.forecast:
        log.warning(case.forecast)
    began = perf_counter()
    with terminal.busy(f"certifying {typed.method}"):
        certificate = certify_case(case, case.method, x, typed.epsilon, case.terms)
        seconds = {"certificate": round(perf_counter() - began, 3)}
        pointless = case.forecast or not typed.attack_steps or not certificate.at(0).topk.overlap
        trials = () if pointless else try_certificate(case, certificate)
    seconds["all"] = round(perf_counter() - began, 3)
    facts, picture = collect_facts(case, certificate, trials, seconds), to_picture(x, classifier)
    draw = partial(certify_report.draw, found=certificate, picture=picture)
    return facts, partial(certify_report.describe, found=certificate), draw


def certify_case(case: Case, method: Any, at: Tensor, epsilon: float, terms: Mapping[str, Any]) -> Certificate:
    from moreaugrad.certificates.assumptions import group_options

    return mg.certify(method, at, case.target, epsilon, **group_options(terms))[0]


def open_case(
    classifier: Classifier, x: Tensor, target: int | None, typed: CertifyOptions, options: Mapping[str, Any]
) -> Case:
    """Refuse or forecast whatever is possible before a noisy copy is made."""
    from moreaugrad.attacks.base import predict_logits
    from moreaugrad.certificates import assumptions
    from moreaugrad.certificates.certify import make_plan
    from moreaugrad.methods.options import make_method

    target = int(predict_logits(classifier, x).argmax()) if target is None else target
    clip, terms, score = typed.clip_range, typed.terms(), choose_score(typed, classifier, target)
    network: Any = mg.Votes(classifier) if typed.votes else mg.Clipped(classifier, *clip) if clip else classifier
    given = {**options, "sigma": typed.noise or 0.0} | ({} if score is None else {"score": score})
    given |= {"statistic": VOTES, "rho": 0.0} if typed.statistic == VOTES else {}
    method = make_method(typed.method, network, given)
    if typed.rests_on_noise:
        return Case(classifier, method, x, target, typed, terms)
    terms["rho"] = CERTIFIED if terms["rho"] is None else terms["rho"]
    plan = make_plan(method, target, assumptions.CertifyOptions(**assumptions.group_options(terms)))
    if typed.rho is None and not plan.known.bound_curvature(plan.recipe, plan.sigma)[0] > 0:
        terms["rho"] = None  # every rho is certified
    terms["recipe"] = plan.recipe
    return Case(classifier, method, x, target, typed, terms, forecast_vacuous(x, plan.recipe, plan.known, typed))


def choose_score(typed: CertifyOptions, classifier: Classifier, target: int) -> str | None:
    """The score asked for; else logits if they are clipped or their constants are known, and probabilities if not."""
    if typed.score is not None or typed.rests_on_noise:
        return typed.score
    if typed.clip is not None or typed.votes or EXACT in (typed.lipschitz, typed.curvature):
        return "logit"
    if typed.centred or typed.recipe in ("range", "local"):
        return "prob"
    try:
        known = mg.lipschitz_bounds(classifier, of=target)
    except (TypeError, ValueError):  # a layer without constants
        return "prob"
    return "logit" if typed.noise is not None or math.isfinite(known.curvature) else "prob"


def forecast_vacuous(x: Tensor, recipe: str, known: KnownScore, typed: CertifyOptions) -> str | None:
    """Why the certificate must be vacuous, if the error of sampling alone exceeds every gradient there can be."""
    if recipe not in ("range", "local") or typed.noise is None:
        return None
    from moreaugrad.certificates import theory
    from moreaugrad.certificates.measurement import Subspace

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
    import torch

    x, generator = case.x, torch.Generator().manual_seed(1)
    if scout.differentiable:
        steps, box = case.typed.attack_steps, case.classifier.box
        attack = mg.TopK(scout, epsilon, k=share, per_pixel=x.ndim == 4, steps=steps, box=box)
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
    from moreaugrad.envelope.derivative import parse_derivative

    method = _find_method(certificate)
    if case.typed.statistic == VOTES:  # without the threshold, which is none of the surrogate that leads the attack
        noise = replace(method.smoothing, samples=BUDGET)
        return mg.SmoothGrad(method.forward_func, noise, score=method.score, statistic=VOTES, tau=method.tau)
    if not isinstance(method, mg.MoreauGrad):
        return replace(method, smoothing=replace(method.smoothing, samples=BUDGET))
    network: Any = method.forward_func
    if isinstance(network, mg.Odds):
        network = mg.Odds(case.classifier, network.centre, network.scale)
    elif case.typed.votes:
        network = case.classifier
    cheap: dict[str, Any] = {"forward_func": network, "budget": BUDGET, "derivative": parse_derivative(QUICK)}
    cheap |= {"score": "prob"} if case.typed.votes else {}
    if case.typed.grid is None:
        return replace(method, **cheap)
    return mg.MoreauGrad(**{"rho": method.rho, "smoothing": method.smoothing, "score": method.score} | cheap)


def _find_method(certificate: Certificate) -> Any:
    """The frozen method, which votes of groups have inside."""
    return getattr(certificate.method, "method", certificate.method)


def _find_top(scout: Any, case: Case, certificate: Certificate, at: Tensor) -> Tensor:
    from moreaugrad.certificates.measurement import Subspace

    found = scout.attribute(at, case.target).detach()
    return certificate.top(Subspace(tuple(at.shape[1:]), case.typed.grid).project(found)[0].to(certificate.map))


def _measure(case: Case, certificate: Certificate, kind: str, epsilon: float, at: Tensor, number: int) -> Trial:
    """The map of the changed input by the same terms, with everything frozen that was found at the input itself."""
    from moreaugrad.model.smoothing import independent_seed

    method, terms = _find_method(certificate), {**case.terms, "k": certificate.topk.k}
    if not case.typed.rests_on_noise:
        terms |= {"rho": None, "centred": False}  # the method has both
    if isinstance(method, mg.GroupSparseMoreauGrad) and terms["grid"] is not None:
        method = replace(method, groups=terms["grid"])
    if terms["seed"] is not None:
        terms["seed"] = independent_seed(terms["seed"], 10 + number)  # not the noise that the certificate knows
    other = certify_case(case, method, at, 0.0, terms)
    length = float((at - case.x).double().norm())
    promised = certificate.at(max(epsilon, length)).topk.overlap
    return Trial(kind, epsilon, length, certificate.overlap_with(other.map), promised)


def collect_facts(case: Case, found: Certificate, trials: Sequence[Trial], seconds: Mapping[str, float]) -> Facts:
    """Everything that is known, as it is stored."""
    from moreaugrad.attacks.base import predict_logits
    from moreaugrad.cli.certify_report import make_curve
    from moreaugrad.methods.options import describe_options, versions

    chances = predict_logits(case.classifier, case.x).double().softmax(1)[0].cpu()
    typed, curve = case.typed, make_curve(found)
    eta = getattr(_find_method(found), "eta", None)
    frozen = {"rho": found.constants.rho, "eta": eta if isinstance(eta, float) else None}  # at this input
    words = ("method", "statistic", "epsilon", "score", "votes", "pixels", "attack_steps")
    asked = {name: getattr(typed, name) for name in words}
    return {
        "model": case.classifier.name,
        "method": typed.method,
        "score": _find_method(found).score,
        "pixels": typed.pixels,
        "target": case.target,
        "label": case.classifier.label(case.target),
        "predicted": int(chances.argmax()),
        "probability_of_target": float(chances[case.target]),
        "vacuous": found.vacuous,
        "foreseen": case.forecast,
        "certificate": found.record(),
        "words": str(found),
        "map_shape": list(found.map.shape),
        "top": found.top(found.map).nonzero().flatten().tolist(),
        "members": None if found.topk.members is None else found.topk.members.nonzero().flatten().tolist(),
        "radii": {name: "any" if each == math.inf else each for name, each in curve.radii.items()},
        "curve": {"epsilon": curve.epsilons, "overlap": curve.overlaps, "logarithmic": curve.logarithmic},
        "trials": [asdict(each) for each in trials],
        "seconds": dict(seconds),
        "options": {
            "method": describe_options(case.method) | {name: each for name, each in frozen.items() if each is not None},
            "certify": dict(case.terms),
            "asked": asked | {"sigma": typed.noise, "clip": typed.clip_range},
        },
        "versions": versions(),
    }


def check_method_options(options: Mapping[str, Any]) -> None:
    """Refuse options of the method that this command has a meaning of its own for."""
    for name, value in options.items():
        if name == "noise_level":
            raise ValueError(
                f"noise must have a fixed sigma, got --set noise_level={value}, a share of each image's own range, "
                "with which no constant holds; give --sigma"
            )
        if name in OWN:
            raise ValueError(f"--set must not repeat an option of this command, got {name}; give --{OWN[name]}")


def parse_pair(name: str, text: str | None) -> tuple[float, float] | None:
    """LOW,HIGH"""
    if text is None:
        return None
    low, comma, high = text.partition(",")
    if not comma:
        raise ValueError(f"--{name} must be two numbers with a comma, got {text!r}")
    return _parse_number(name, low), _parse_number(name, high)


def parse_constant(name: str, text: str | None) -> float | tuple[float, float] | str | None:
    """NUMBER, LAM,BETA, exact or certified"""
    if text is None or text == (CERTIFIED if name == "rho" else EXACT):
        return text
    return parse_pair(name, text) if name == "curvature" and "," in text else _parse_number(name, text)


def _parse_number(name: str, text: str) -> float:
    try:
        return float(text)
    except ValueError:
        words = {"rho": f" or {CERTIFIED}", "lipschitz": f" or {EXACT}", "curvature": f", LAM,BETA or {EXACT}"}
        raise ValueError(f"--{name} must be a number{words.get(name, '')}, got {text!r}") from None
