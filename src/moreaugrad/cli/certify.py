"""`moreaugrad certify`: its options, and what they say in numbers. Every import that costs time is made inside."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Annotated, Any

import typer

from moreaugrad.cli.request import Request
from moreaugrad.cli.terminal import Terminal
from moreaugrad.methods import METHODS

EXACT, CERTIFIED = "exact", "certified"
RANKS = "sparsified_smoothgrad"
CERTIFIABLE = ("moreau", "sparse_moreau", "group_sparse_moreau", RANKS)
OWN = {"sigma": "sigma", "smoothing": "sigma", "rho": "rho", "samples": "samples", "score": "score"}

Picture = Annotated[Path, typer.Argument(help="An image file.", show_default=False)]
Epsilon = Annotated[
    float,
    typer.Option(help="l2 length of the changes, in units of the network's input; of pixels 0..1 with --pixels."),
]
MethodName = Annotated[str, typer.Option("--method", help=f"One of {', '.join(CERTIFIABLE)}.")]
Sigma = Annotated[float | None, typer.Option(help="Of the noise, in the units of epsilon; else 0.25.")]
NoNoise = Annotated[bool, typer.Option("--no-noise", help="The score as it is; its curvature must be known.")]
ScoreKind = Annotated[
    str | None,
    typer.Option("--score", help="prob, logit or logprob; else logit where layers have exact norms, else prob."),
]
Recipe = Annotated[
    str | None, typer.Option(help="range, local, lipschitz, smooth or convex; else the strongest of those that hold.")
]
Bounds = Annotated[str | None, typer.Option(metavar="LOW,HIGH", help="All values of the score lie between them.")]
Clip = Annotated[str | None, typer.Option(metavar="LOW,HIGH", help="Certify logits that are clipped to this range.")]
Votes = Annotated[bool, typer.Option("--votes", help="Certify 1 for the predicted class, else 0; with --grid.")]
Centred = Annotated[
    bool, typer.Option("--centred", help="Certify the odds of the class, centred at this image; with --grid.")
]
Lipschitz = Annotated[str | None, typer.Option(metavar="NUMBER|exact", help="Of the score; exact: from the layers.")]
Curvature = Annotated[
    str | None,
    typer.Option(metavar="NUMBER|LAM,BETA|exact", help="Second derivatives of the score lie in [-LAM, BETA]."),
]
Convex = Annotated[bool, typer.Option("--convex", help="The score is convex in the input.")]
Rho = Annotated[
    str | None,
    typer.Option(metavar="NUMBER|certified", help="Envelope radius; else certified: theta of the largest that is."),
]
Theta = Annotated[float, typer.Option(help="Share of the largest certified rho.")]
Grid = Annotated[int | None, typer.Option(help="Certify a map of so many cells per side instead of pixels.")]
Samples = Annotated[int, typer.Option(help="Fresh noise vectors.")]
Alpha = Annotated[float, typer.Option(help="Chance that the certificate is wrong.")]
Top = Annotated[int | None, typer.Option("--k", help="How many units are the top; else a tenth of them.")]
Units = Annotated[str | None, typer.Option(help="What is ranked: pixels, entries or groups.")]
Compared = Annotated[str, typer.Option(help="With the ideal map of a changed input, or with a computed one.")]
Pixels = Annotated[bool, typer.Option("--pixels", help="Take pixels 0..1 as the input: epsilon, sigma, rho and map.")]
Steps = Annotated[int, typer.Option("--attack-steps", help="Of the attack that tries the certificate; 0 for none.")]
Class = Annotated[str | None, typer.Option("--target", help="A class number or name; else the predicted class.")]
Eta = Annotated[float | None, typer.Option(help="Weight of the prior, for sparse methods.")]
Sparsity = Annotated[float | None, typer.Option(help="Share of the map to keep, for sparse methods.")]
Groups = Annotated[str | None, typer.Option(help="Cells per side, 'superpixels' or 'channels'.")]
Other = Annotated[
    list[str] | None, typer.Option("--set", metavar="NAME=VALUE", help="Any other option of the method: tau=0.2.")
]
ModelName = Annotated[str, typer.Option("--model", help="A name from `moreaugrad models`, or package.module:factory.")]
Weights = Annotated[str | None, typer.Option(help="A checkpoint file, or 'random'.")]
Labels = Annotated[Path | None, typer.Option(help="Class names: one per line, or JSON.")]
Seed = Annotated[int | None, typer.Option(help="Of the fresh noise; else the system's, which nobody knows.")]
Device = Annotated[str, typer.Option(help="cpu, cuda, ...; auto takes a GPU where there is one.")]
Out = Annotated[Path, typer.Option(help="Folder for the results.")]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="No lines but errors.")]


def certify(  # noqa: PLR0913, PLR0917
    image: Picture,
    epsilon: Epsilon,
    method: MethodName = "moreau",
    sigma: Sigma = None,
    no_noise: NoNoise = False,
    score: ScoreKind = None,
    recipe: Recipe = None,
    bounds: Bounds = None,
    clip: Clip = None,
    votes: Votes = False,
    centred: Centred = False,
    lipschitz: Lipschitz = None,
    curvature: Curvature = None,
    convex: Convex = False,
    rho: Rho = None,
    theta: Theta = 0.5,
    grid: Grid = None,
    samples: Samples = 10_000,
    alpha: Alpha = 0.001,
    k: Top = None,
    units: Units = None,
    compared: Compared = "ideal",
    pixels: Pixels = False,
    attack_steps: Steps = 10,
    target: Class = None,
    eta: Eta = None,
    sparsity: Sparsity = None,
    groups: Groups = None,
    others: Other = None,
    model: ModelName = "efficientnet_lite0",
    weights: Weights = None,
    labels: Labels = None,
    seed: Seed = None,
    device: Device = "auto",
    out: Out = Path("certificates"),
    quiet: Quiet = False,
) -> int:
    """Say what surely stays of a map when the image changes: OUT/<image>_certificate.png and .json.

    A certificate that promises nothing says VACUOUS. That is so for photos at full resolution; --grid 8 asks for less,
    and the networks `lipschitz` and `lipschitz_cifar10` promise more.
    """
    given = locals()
    request = _request(given)
    terms = {name: given[name] for name in ("recipe", "theta", "grid", "samples", "alpha", "k", "units", "compared")}
    terms |= {
        "bounds": pair("bounds", bounds),
        "lipschitz": constant("lipschitz", lipschitz),
        "curvature": constant("curvature", curvature),
        "convex": convex,
        "centred": centred,
        "rho": None if rho is None else rho if rho == CERTIFIED else _number("rho", rho),
        "seed": seed,
    }
    sigma, clipped = noise(sigma, no_noise), pair("clip", clip)
    from moreaugrad.cli.certify_job import Asked, certify_image

    asked = Asked(method, epsilon, score, sigma, clipped, votes, pixels, attack_steps, terms)
    return certify_image(image, asked, request, Terminal(quiet))


def _request(given: dict[str, Any]) -> Request:
    """The options of the method; those that mean more here than to a method are not among them."""
    method = given["method"]
    METHODS[method]
    if method not in CERTIFIABLE:
        raise ValueError(f"--method must be one of {list(CERTIFIABLE)}, whose maps have certificates, got {method!r}")
    request = Request.of({name: value for name, value in given.items() if name not in (*OWN, "seed")})
    for name, value in request.options.items():
        if name == "noise_level":
            raise ValueError(
                f"noise must have a fixed sigma, got --set noise_level={value}, a share of each image's own range, "
                "with which no constant holds; give --sigma"
            )
        if name in OWN:
            raise ValueError(f"--set must not repeat an option of this command, got {name}; give --{OWN[name]}")
    return request


def noise(sigma: float | None, none: bool) -> float | None:
    """sigma, or None for a score without noise."""
    if none and sigma is not None:
        raise ValueError(f"--sigma and --no-noise exclude each other, got both, with sigma {sigma:g}")
    if sigma is not None and not 0 < sigma < math.inf:
        raise ValueError(f"--sigma must be a positive number, got {sigma:g}; --no-noise is for none")
    return None if none else 0.25 if sigma is None else sigma


def pair(name: str, text: str | None) -> tuple[float, float] | None:
    """LOW,HIGH"""
    if text is None:
        return None
    low, comma, high = text.partition(",")
    if not comma:
        raise ValueError(f"--{name} must be two numbers with a comma, got {text!r}")
    return _number(name, low), _number(name, high)


def constant(name: str, text: str | None) -> float | tuple[float, float] | str | None:
    """NUMBER, LAM,BETA or exact"""
    if text is None or text == EXACT:
        return text
    return pair(name, text) if name == "curvature" and "," in text else _number(name, text)


def _number(name: str, text: str) -> float:
    try:
        return float(text)
    except ValueError:
        words = {"rho": f" or {CERTIFIED}", "lipschitz": f" or {EXACT}", "curvature": f", LAM,BETA or {EXACT}"}
        raise ValueError(f"--{name} must be a number{words.get(name, '')}, got {text!r}") from None
