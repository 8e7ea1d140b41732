"""`certify`: its options, and what they say in numbers. Heavy imports are made inside."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import MISSING, dataclass
from functools import partial
from pathlib import Path
from typing import Any

from moreaugrad.cli.options import ImageFile, ModelOptions, Out, PriorOptions, Quiet, TargetClass, option
from moreaugrad.cli.terminal import Terminal
from moreaugrad.methods import METHODS

EXACT, CERTIFIED = "exact", "certified"
RANKS = "sparsified_smoothgrad"  # certified by the ranks of its map, without constants of the score
CERTIFIABLE = ("moreau", "sparse_moreau", "group_sparse_moreau", RANKS)
SCORE_FACTS = ("bounds", "lipschitz", "curvature", "convex")  # what may be known of a score
OWN = {"sigma": "sigma", "smoothing": "sigma", "rho": "rho", "samples": "samples", "score": "score"}


@dataclass(frozen=True)
class CertifyOptions:
    """What is to be certified, and how."""

    epsilon: float = option(
        "l2 length of the changes, in units of the network's input; with --pixels of pixels 0..1.", default=MISSING
    )
    method: str = option(f"One of {', '.join(CERTIFIABLE)}, or a registered one.", default="moreau")
    sigma: float | None = option("Of the noise, in the units of epsilon; default: 0.25.")
    no_noise: bool = option("Use the score without noise; its curvature must be known.", "--no-noise", default=False)
    score: str | None = option("prob, logit or logprob; default: logit if layers have exact norms, else prob.")
    recipe: str | None = option("range, local, lipschitz, smooth or convex; default: the strongest that holds.")
    bounds: str | None = option("Bounds of all values of the score.", metavar="LOW,HIGH")
    clip: str | None = option("Certify logits clipped to this range.", metavar="LOW,HIGH")
    votes: bool = option("Certify 1 for the predicted class, else 0; with --grid.", "--votes", default=False)
    centred: bool = option(
        "Certify the odds of the class, centred at this image; with --grid.", "--centred", default=False
    )
    lipschitz: str | None = option("Lipschitz constant of the score; exact: from the layers.", metavar="NUMBER|exact")
    curvature: str | None = option(
        "Second derivatives of the score lie in [-LAM, BETA].", metavar="NUMBER|LAM,BETA|exact"
    )
    convex: bool = option("The score is convex in the input.", "--convex", default=False)
    rho: str | None = option(
        "Radius of the envelope; default: theta of the largest sound one.", metavar="NUMBER|certified"
    )
    theta: float = option("Share of the largest certified rho.", default=0.5)
    grid: int | None = option("Certify a map of this many cells per side instead of pixels.")
    samples: int = option("Fresh noise vectors.", default=10000)
    alpha: float = option("Probability that the certificate is wrong.", default=0.001)
    k: int | None = option("Number of top units; default: a tenth of all.", "--k")
    units: str | None = option("What is ranked: pixels, entries or groups.")
    compared: str = option(
        "ideal: with the ideal map of a changed input; computed: with a computed one.", default="ideal"
    )
    pixels: bool = option(
        "Take pixels 0..1 as the input: for epsilon, sigma, rho and the map.", "--pixels", default=False
    )
    attack_steps: int = option("Steps of the attack that tries the certificate; 0 for none.", default=10)
    seed: int | None = option("Seed of the fresh noise; default: from the system, unknown to anyone.")

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
        self.terms()  # refuses what is no number
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
        if self.method == RANKS and useless:
            raise ValueError(
                f"--{useless[0]} must be left out with {RANKS}, which is certified by the ranks of its map alone"
            )

    @property
    def noise(self) -> float | None:
        """sigma, or None for a score without noise."""
        return None if self.no_noise else 0.25 if self.sigma is None else self.sigma

    def terms(self) -> dict[str, Any]:
        """The options of the function `certify`."""
        names = ("recipe", "theta", "grid", "samples", "alpha", "k", "units", "compared", "convex", "centred", "seed")
        return {name: getattr(self, name) for name in names} | {
            "bounds": parse_pair("bounds", self.bounds),
            "lipschitz": parse_constant("lipschitz", self.lipschitz),
            "curvature": parse_constant("curvature", self.curvature),
            "rho": None if self.rho is None else self.rho if self.rho == CERTIFIED else _parse_number("rho", self.rho),
        }


def certify(
    image: ImageFile,
    *,
    typed: CertifyOptions,
    target: TargetClass = None,
    options: PriorOptions,
    model: ModelOptions,
    out: Out = Path("certificates"),
    quiet: Quiet = False,
) -> int:
    """Certify what stays of a map when the image changes: OUT/<image>_certificate.png and .json.

    A certificate that guarantees nothing says VACUOUS. So do those of photos at full resolution; --grid 8 asks for
    less, and the networks `lipschitz` and `lipschitz_cifar10` allow more.
    """
    given, terms, clip = options.given(), typed.terms(), parse_pair("clip", typed.clip)
    check_method_options(given)
    from moreaugrad.cli.certify_job import certify_picture
    from moreaugrad.cli.report import report_on_image

    terminal = Terminal(quiet)
    examine = partial(
        certify_picture, typed=typed, terms=terms, clip=clip, options=given, target=target, terminal=terminal
    )
    return report_on_image(image, "certificate", model, out, examine, terminal)


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
    """NUMBER, LAM,BETA or exact"""
    if text is None or text == EXACT:
        return text
    return parse_pair(name, text) if name == "curvature" and "," in text else _parse_number(name, text)


def _parse_number(name: str, text: str) -> float:
    try:
        return float(text)
    except ValueError:
        words = {"rho": f" or {CERTIFIED}", "lipschitz": f" or {EXACT}", "curvature": f", LAM,BETA or {EXACT}"}
        raise ValueError(f"--{name} must be a number{words.get(name, '')}, got {text!r}") from None
