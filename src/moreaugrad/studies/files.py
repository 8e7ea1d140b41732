"""`robustness`: words and files in, a study in a folder out, and what it says in a few lines."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from moreaugrad import validate
from moreaugrad.cli.jobs import load, prepare
from moreaugrad.cli.request import Request
from moreaugrad.cli.terminal import Terminal
from moreaugrad.data.arrays import read_cifar10
from moreaugrad.data.images import find_images, unique_names
from moreaugrad.models.classifier import Classifier
from moreaugrad.studies.plan import DISTANCE, FLOOR, STRONGEST, Study, names
from moreaugrad.studies.resumable_csv import Row
from moreaugrad.studies.run import Standing, run_study
from moreaugrad.studies.setup import settable, shared_out
from moreaugrad.studies.sources import Files, Pixels, Source
from moreaugrad.training.trainer import DONE, NOT_FINISHED


@dataclass(frozen=True, slots=True)
class Asked:
    """Which images, how long, and the words of the command."""

    images: tuple[str, ...]
    data: Path | None = None
    count: int | None = None  # the first so many
    minutes: float | None = None
    command: str = ""

    def __post_init__(self) -> None:
        if bool(self.images) == (self.data is not None):
            raise ValueError("give images or --data, and not both, got " + ("both" if self.images else "neither"))
        if self.count is not None:
            validate.at_least("--images", self.count, 1)
        if self.minutes is not None:
            validate.positive("--minutes", self.minutes)

    def source(self, classifier: Classifier, out: Path) -> Source:
        if self.data is not None:
            return Pixels(read_cifar10(self.data).x_test[: self.count], classifier)
        paths = find_images(self.images, skip=out)[: self.count]
        return Files(paths, unique_names(paths), classifier)


def study_files(
    words: Mapping[str, str], terms: Mapping[str, Any], asked: Asked, request: Request, terminal: Terminal
) -> int:
    """Runs a study, or goes on with it; the exit code."""
    terminal.hear_warnings()
    study = made(words, terms, request.options)
    prepare(request.out, (), ())
    classifier = load(request, terminal)
    with terminal.busy("reading the images"):
        source = asked.source(classifier, request.out)
    with terminal.bar(f"robustness: {len(source.keys)} images") as watch:
        standing = run_study(
            study,
            classifier,
            source,
            request.out,
            minutes=asked.minutes,
            watch=watch,
            name=request.model,
            command=asked.command,
        )
    for line in lines(study, standing):
        terminal.say(line)
    if standing.finished:
        terminal.say(f"-> {request.out}: rows.csv, table.csv, curves.png, study.json")
        return DONE
    terminal.say(
        f"stopped after {standing.done} of {standing.total} cells; the same command goes on from {request.out}"
    )
    return NOT_FINISHED


def made(words: Mapping[str, str], terms: Mapping[str, Any], options: Mapping[str, Any]) -> Study:
    """The study that was asked for in words."""
    methods, attacks = names(words["methods"]), names(words["attacks"])
    of_methods, of_attacks = shared_out(options, methods, attacks)
    for name, given in of_attacks.items():
        for option in ("steps", "restarts"):
            if option in settable(name):
                given.setdefault(option, terms[option])
    return Study(
        of_methods,
        of_attacks,
        tuple(_number(each) for each in names(words["norms"])),
        terms["norm"],
        tuple(names(words["modes"])),
        tuple(names(words["metrics"])),
        terms["budget"],
        terms["attack_budget"],
        terms["seed"],
    )


def lines(study: Study, standing: Standing) -> list[str]:
    """The distance by method, attack and size: what noise alone does, and what the strongest attack does."""
    found: dict[tuple[str, str], list[Row]] = {}
    for line in standing.table:
        if line["metric"] == DISTANCE and (line["mode"], line["over"]) in ((STRONGEST, "valid"), (FLOOR, "all")):
            found.setdefault((line["method"], line["attack"]), []).append(line)
    told = [f"{DISTANCE.replace('_', ' ')}, median and 95 % interval over images with a valid attack:"] if found else []
    for (label, attack), some in found.items():
        told.append(f"{label}, {'two seeds' if attack == 'none' else attack}: " + "; ".join(map(_line, some)))
    return told + _drowned(found)


def _drowned(found: Mapping[tuple[str, str], list[Row]]) -> list[str]:
    """Methods whose own noise is larger than what any attack did to them: common noise then hides the attack."""
    told = []
    for label, floor in ((label, some[0]["median"]) for (label, attack), some in found.items() if attack == "none"):
        others = [some for (name, attack), some in found.items() if name == label and attack != "none"]
        reached = [line["median"] for some in others for line in some if line["valid_share"]]
        if reached and max(reached) < floor:
            told.append(f"{label}: two seeds differ more than any attack; its maps are mostly noise: raise --budget")
    return told


def _line(line: Row) -> str:
    size = "" if line["epsilon"] == 0 else f"{line['epsilon']:g}: "
    if not line["valid_share"]:
        return f"{size}none valid"
    share = "" if line["valid_share"] == 1 else f" ({line['valid_share']:.0%} valid)"
    return f"{size}{line['median']:.3f} [{line['low']:.3f}, {line['high']:.3f}]{share}"


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise ValueError(f"--norms must be numbers with commas, got {text!r}") from None
