"""`robustness`: a study of methods under attack, in a folder, and its result in a few lines. Heavy imports inside."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar

import typer

from moreaugrad.attacks import ATTACKS
from moreaugrad.cli.attack import NAMES, AttackBudget
from moreaugrad.cli.checks import make_output, refuse_missing
from moreaugrad.cli.command import complete, option
from moreaugrad.cli.options import ACCURACY, ModelOptions, Out, PriorOptions, Quiet, Seed, complete_several_methods
from moreaugrad.cli.terminal import Terminal
from moreaugrad.data.sources import find_images, unique_names
from moreaugrad.methods import METHODS
from moreaugrad.metrics import METRICS

if TYPE_CHECKING:
    from moreaugrad.models.classifier import Classifier
    from moreaugrad.studies.plan import Study
    from moreaugrad.studies.run import StudyRow
    from moreaugrad.studies.sources import Source

DONE, NOT_FINISHED = 0, 1
Minutes = Annotated[float | None, typer.Option(help="Stop after the cell in which they have passed.")]


@dataclass(frozen=True)
class SourceOptions:
    """The images of a study."""

    images: Annotated[
        list[str] | None, typer.Argument(help="Image files, folders or patterns.", show_default=False)
    ] = None
    data: Path | None = option("Instead of images: an .npz file, whose test images are used.")  # noqa: RUF009
    job: Path | None = option("Instead of images: the folder of a job of `moreaugrad bulk`.")  # noqa: RUF009
    count: int | None = option("Use this many images, from the first.", "--images")

    def __post_init__(self) -> None:
        given = [name for name in ("images", "data", "job") if getattr(self, name)]
        if len(given) != 1:
            raise ValueError(f"give images, --data or --job, one of them, got {' and '.join(given) or 'none'}")
        if self.count is not None and self.count < 1:
            raise ValueError(f"--images must be at least 1, got {self.count}")

    def find(self, out: Path) -> list[Path]:
        """The files; none at all raises."""
        paths = find_images(self.images or (), skip=out)
        if self.images:
            refuse_missing(paths)
        return paths[: self.count]

    def open(self, classifier: Classifier, paths: Sequence[Path]) -> Source:
        from moreaugrad.data.arrays import read_cifar10
        from moreaugrad.studies.sources import PictureSource

        if self.job is not None:
            return PictureSource(*_read_job(self.job, self.count), classifier)
        if self.data is not None:
            pixels = read_cifar10(self.data).x_test[: self.count]
            return PictureSource(list(pixels), [str(number) for number in range(len(pixels))], classifier)
        return PictureSource(paths, unique_names(paths), classifier)


@dataclass(frozen=True)
class StudyOptions:
    """What is compared, and how."""

    panel: ClassVar[str] = "Study"

    methods: str = option(
        "Names from `moreaugrad methods`, with commas.",
        default="gradient,smoothgrad,sparse_moreau",
        autocompletion=complete_several_methods,
    )
    attacks: str = option(
        f"Of {NAMES}, or registered ones, with commas.",
        default="topk,noise",
        autocompletion=complete(lambda: ATTACKS, lists=True),
    )
    norms: str = option("Sizes of the change, with commas.", default="0.3,1,3,10")
    norm: str = option("How sizes are measured: l2 or linf; also plain, for noise.", default="l2")
    modes: str = option(
        "Derivatives of MoreauGrad maps, with commas; transfer: others' points.",
        "--modes",
        "--derivatives",
        default="frozen,unrolled,implicit",
    )
    metrics: str = option(
        "Metrics of two maps, with commas; also with a flag: ssim:raw.",
        default="normalised_distance,topk_intersection,ssim",
        autocompletion=complete(lambda: METRICS, lists=True),
    )
    attack_budget: AttackBudget = 400
    budget: int = option(
        "Gradients of a map that is judged, for methods that have a choice.", default=1600, rich_help_panel=ACCURACY
    )
    steps: int = option("Steps of the attacks that take steps.", default=10)
    restarts: int = option("Restarts of the attacks that have them.", default=1)
    seed: Seed = 0

    def __post_init__(self) -> None:
        for table, names in ((METHODS, self.methods), (ATTACKS, self.attacks), (METRICS, self.metrics)):
            for name in names.split(","):
                _ = table[name.strip().partition(":")[0]]

    def make(self, options: Mapping[str, Any]) -> Study:
        """The study; each option goes to the methods or attacks that take it."""
        from moreaugrad.studies.plan import Study
        from moreaugrad.studies.setup import assign_options, attack_options

        methods, attacks, norms, modes, metrics = (
            [each.strip() for each in text.split(",") if each.strip()]
            for text in (self.methods, self.attacks, self.norms, self.modes, self.metrics)
        )
        of_methods, of_attacks = assign_options(options, methods, attacks)
        for name, given in of_attacks.items():
            for each in ("steps", "restarts"):
                if each in attack_options(name):
                    given.setdefault(each, getattr(self, each))
        sizes = tuple(map(_read_size, norms))
        terms = {name: getattr(self, name) for name in ("norm", "budget", "attack_budget", "seed")}
        return Study(of_methods, of_attacks, sizes, modes=tuple(modes), metrics=tuple(metrics), **terms)


def robustness(
    *,
    source: SourceOptions,
    study: StudyOptions,
    options: PriorOptions,
    model: ModelOptions,
    out: Out = Path("robustness"),
    minutes: Minutes = None,
    quiet: Quiet = False,
) -> int:
    """Compare how maps withstand attacks, on equal budgets: OUT/rows.csv, table.csv, curves.png, study.json.

    The same command resumes a study that was stopped. With --sparsity the derivative treats the eta that it chose as a
    constant, so attacks are weaker than they could be; --set eta=0.005 has no such gap.
    Exit code 0: done; 1: --minutes came first, run it again.
    """
    if minutes is not None and not minutes > 0:
        raise ValueError(f"--minutes must be a positive number, got {minutes}")
    terminal = Terminal(quiet)
    terminal.hear_warnings()
    paths = source.find(out)
    from moreaugrad.studies.run import run_study

    plan = study.make(options.given())
    make_output(out)
    classifier = model.load(terminal)
    with terminal.busy("reading the images"):
        images = source.open(classifier, paths)
    command = shlex.join(["moreaugrad", *sys.argv[1:]])
    with terminal.bar(f"robustness: {len(images.keys)} images") as watch:
        result = run_study(
            plan, classifier, images, out, minutes=minutes, watch=watch, name=model.model, command=command
        )
    for line in describe(result.table):
        terminal.say(line)
    if result.finished:
        terminal.say(f"-> {out}: rows.csv, table.csv, curves.png, study.json")
        return DONE
    terminal.say(f"stopped after {result.done} of {result.total} cells; the same command resumes it in {out}")
    return NOT_FINISHED


def _read_job(folder: Path, count: int | None) -> tuple[list[Any], list[str]]:
    """The pictures that a job explained without an error, and their names."""
    import numpy as np

    from moreaugrad.bulk_jobs.maps import open_maps
    from moreaugrad.bulk_jobs.thumbnails import find_source
    from moreaugrad.data.images import read_image

    maps = open_maps(folder)
    failed = maps.errors
    keys = [key for key in maps.keys if key not in failed][:count]
    try:
        source = find_source(maps)
        places = {key: row for row, key in enumerate(source.keys)}
        found = [source.read(places[key]).image for key in keys]
    except (ValueError, KeyError, OSError) as error:
        raise ValueError(
            f"--job must be of images that are still where they were, got {str(folder)!r}: {error}; name the images"
        ) from error
    return [each if isinstance(each, Path) else np.asarray(read_image(each)) for each in found], keys


def describe(table: list[StudyRow]) -> list[str]:
    """The distance by method, attack and size: what noise alone does, and what the strongest attack does."""
    from moreaugrad.studies.plan import DISTANCE, FLOOR, STRONGEST

    found: dict[tuple[str, str], list[StudyRow]] = {}
    for row in table:
        if row["metric"] == DISTANCE and (row["mode"], row["over"]) in ((STRONGEST, "valid"), (FLOOR, "all")):
            found.setdefault((row["method"], row["attack"]), []).append(row)
    title = f"{DISTANCE.replace('_', ' ')}, median and 95 % interval over images with a valid attack:"
    lines = [title] if found else []
    for (label, attack), rows in found.items():
        lines.append(f"{label}, {'two seeds' if attack == 'none' else attack}: " + "; ".join(map(_cell, rows)))
    for (label, attack), rows in found.items():
        others = [each for (name, other), each in found.items() if name == label and other != "none"]
        reached = [row["median"] for each in others for row in each if row["valid_share"]]
        if attack == "none" and reached and max(reached) < rows[0]["median"]:
            lines.append(f"{label}: two seeds differ more than any attack; its maps are mostly noise: raise --budget")
    return lines


def _cell(row: StudyRow) -> str:
    size = "" if row["epsilon"] == 0 else f"{row['epsilon']:g}: "
    if not row["valid_share"]:
        return f"{size}none valid"
    share = "" if row["valid_share"] == 1 else f" ({row['valid_share']:.0%} valid)"
    return f"{size}{row['median']:.3f} [{row['low']:.3f}, {row['high']:.3f}]{share}"


def _read_size(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise ValueError(f"--norms must be numbers with commas, got {text!r}") from None
