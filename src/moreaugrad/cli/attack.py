"""`moreaugrad attack` and `moreaugrad robustness`: their options. Every import that costs time is made inside."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path
from typing import Annotated

import typer

from moreaugrad.attacks import ATTACKS
from moreaugrad.cli.request import Request
from moreaugrad.cli.terminal import Terminal
from moreaugrad.methods import METHODS
from moreaugrad.metrics import METRICS

KNOWN = ", ".join(name for name, each in ATTACKS.items() if "weights" not in each.flags)  # those that change images
Picture = Annotated[Path, typer.Argument(help="An image file.", show_default=False)]
Images = Annotated[list[str] | None, typer.Argument(help="Image files, folders or patterns.", show_default=False)]
Data = Annotated[
    Path | None, typer.Option(help="Instead of images: an .npz file of arrays; its test images are taken.")
]
Count = Annotated[int | None, typer.Option("--images", help="Take the first so many images.")]
ModelName = Annotated[str, typer.Option("--model", help="A name from `moreaugrad models`, or package.module:factory.")]
Weights = Annotated[str | None, typer.Option(help="A checkpoint file, or 'random'.")]
Labels = Annotated[Path | None, typer.Option(help="Class names: one per line, or JSON.")]
MethodName = Annotated[str, typer.Option("--method", help="A name from `moreaugrad methods`.")]
MethodNames = Annotated[str, typer.Option("--methods", help="Names from `moreaugrad methods`, with commas.")]
AttackName = Annotated[str, typer.Option("--attack", help=f"One of {KNOWN}.")]
AttackNames = Annotated[str, typer.Option("--attacks", help=f"Of {KNOWN}, with commas.")]
Epsilon = Annotated[
    float | None, typer.Option(help="Size of the change, in units of the network's input; else 3, or the attack's own.")
]
Epsilons = Annotated[str, typer.Option("--norms", help="Sizes of the change, with commas.")]
Norm = Annotated[str, typer.Option(help="How sizes are measured: l2 or linf; noise also knows plain.")]
OwnNorm = Annotated[str | None, typer.Option("--norm", help="l2, linf, or plain for noise; else the attack's own.")]
Mode = Annotated[
    str | None,
    typer.Option(
        "--grad-mode", help="Slope of MoreauGrad maps: implicit, unrolled, frozen, covariance; else implicit:5x16."
    ),
]
Modes = Annotated[
    str, typer.Option("--modes", help="Slopes of MoreauGrad maps, with commas; transfer: others' points.")
]
Metrics = Annotated[
    str, typer.Option("--metrics", help="Metrics of two maps, with commas; also with a flag: ssim:raw.")
]
Steps = Annotated[int | None, typer.Option(help="Of the attack; else its own number.")]
StudySteps = Annotated[int, typer.Option("--steps", help="Of the attacks that take steps.")]
Restarts = Annotated[int | None, typer.Option(help="Of the attack; else 1.")]
StudyRestarts = Annotated[int, typer.Option("--restarts", help="Of the attacks that start anew.")]
Budget = Annotated[int, typer.Option(help="Gradients of a map that is judged, for methods that have a choice.")]
AttackBudget = Annotated[int, typer.Option("--attack-budget", help="Gradients of a map inside the attack.")]
Class = Annotated[str | None, typer.Option("--target", help="Whose map is attacked: a class number or name.")]
Sparsity = Annotated[float | None, typer.Option(help="Share of the map to keep, for sparse methods.")]
Other = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="NAME=VALUE", help="Any other option of a method or attack: rho=2, topk.k=0.1."),
]
Seed = Annotated[int, typer.Option(help="Of all noise.")]
Device = Annotated[str, typer.Option(help="cpu, cuda, ...; auto takes a GPU where there is one.")]
Out = Annotated[Path, typer.Option(help="Folder for the results.")]
Minutes = Annotated[float | None, typer.Option(help="Stop after the cell in which they have passed.")]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="No progress bars, no lines but errors.")]


def attack(  # noqa: PLR0913, PLR0917
    image: Picture,
    method: MethodName = "sparse_moreau",
    attack: AttackName = "topk",
    epsilon: Epsilon = None,
    norm: OwnNorm = None,
    steps: Steps = None,
    restarts: Restarts = None,
    grad_mode: Mode = None,
    budget: Budget = 800,
    attack_budget: AttackBudget = 80,
    target: Class = None,
    sparsity: Sparsity = None,
    model: ModelName = "efficientnet_lite0",
    weights: Weights = None,
    labels: Labels = None,
    others: Other = None,
    seed: Seed = 0,
    device: Device = "auto",
    out: Out = Path("attacks"),
    quiet: Quiet = False,
) -> int:
    """Attack the map of an image, and show what became of it: OUT/<image>_attack.png and .json.

    The maps before and after are judged with noise that the attack has not seen, the same for both. A photo takes
    some minutes on a CPU; --steps 3 --grad-mode frozen is a first look.
    """
    given = locals()
    METHODS[method], ATTACKS[attack]
    known = {name: value for name, value in given.items() if name not in ("budget", "seed")}
    request = Request.of(known)
    for name in ("steps", "restarts"):
        if given[name] is not None and name in request.options:
            raise ValueError(f"--set must not repeat an option, got {name}={request.options[name]} and --{name}")
        if given[name] is not None:
            request.options[name] = given[name]
    from moreaugrad.cli.attack_job import Order, attack_image

    order = Order(method, attack, epsilon, norm, budget, attack_budget, seed, grad_mode)
    return attack_image(image, order, request, Terminal(quiet))


def robustness(  # noqa: PLR0913, PLR0917
    images: Images = None,
    data: Data = None,
    methods: MethodNames = "gradient,smoothgrad,sparse_moreau",
    attacks: AttackNames = "topk,noise",
    norms: Epsilons = "0.3,1,3,10",
    norm: Norm = "l2",
    modes: Modes = "frozen,unrolled,implicit",
    metrics: Metrics = "normalised_distance,topk_intersection,ssim",
    attack_budget: AttackBudget = 400,
    budget: Budget = 1600,
    steps: StudySteps = 10,
    restarts: StudyRestarts = 1,
    count: Count = None,
    sparsity: Sparsity = None,
    model: ModelName = "efficientnet_lite0",
    weights: Weights = None,
    labels: Labels = None,
    others: Other = None,
    seed: Seed = 0,
    device: Device = "auto",
    out: Out = Path("robustness"),
    minutes: Minutes = None,
    quiet: Quiet = False,
) -> int:
    """Compare how maps stand attacks, on equal budgets: OUT/rows.csv, table.csv, curves.png, study.json.

    The same command goes on where an earlier one stopped. With --sparsity the slope takes the eta that it chose for a
    constant, so attacks are weaker than they could be; --set eta=0.005 has no such gap.
    Exit code 0: done; 1: --minutes came first, run it again.
    """
    given = locals()
    for table, names in ((METHODS, methods), (ATTACKS, attacks), (METRICS, metrics)):
        for name in names.split(","):
            table[name.strip().partition(":")[0]]
    request = Request.of({name: value for name, value in given.items() if name not in ("budget", "seed")})
    from moreaugrad.cli.robustness import Asked, study_files

    asked = Asked(tuple(images or ()), data, count, minutes, shlex.join(["moreaugrad", *sys.argv[1:]]))
    terms = {name: given[name] for name in ("norm", "budget", "attack_budget", "seed")}
    words = {name: given[name] for name in ("methods", "attacks", "norms", "modes", "metrics")}
    return study_files(words, terms | {"steps": steps, "restarts": restarts}, asked, request, Terminal(quiet))
