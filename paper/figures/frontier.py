"""Sparse and robust: how far attacks move each statistic of the gradients, against how well its maps explain.

For every noise level and rho one set of gradients gives all statistics, each dense and soft-thresholded to a tenth and
a twentieth of its entries. Several attacks, led by the slopes of different statistics, are made on each image, and the
strongest counts for each statistic. The movement is divided by the distance between the maps of different images, so
that maps which all look alike gain nothing.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

from moreaugrad.models.classifier import ViewChange
from moreaugrad.models.custom import as_classifier
from moreaugrad.studies.resumable_csv import ResumableCsv, describe_study
from paper.data import records
from paper.data.datasets import Sample, sample
from paper.data.records import Line
from paper.figures.figure_cache import describe_run
from paper.figures.frontier_rows import (
    COLUMNS,
    IDENTITY,
    RELAXED,
    SPARSE,
    SPARSIFIED,
    Block,
    Setting,
    Terms,
    identify,
)
from paper.figures.study_runs import HESSIAN_STEP
from paper.report import curve_plot, frontier_plot, frontier_tables
from paper.settings import DATASETS, Settings

CLEAN, RHO = "frontier_clean", "frontier_rho"
NOISE = (0.05, 0.1, 0.15, 0.2, 0.3, 0.4)
RHOS = (0.1, 0.3, 1.0)  # beside 0
PUBLISHED = (Setting(0.1, 1.0, SPARSE), Setting(0.1, 0.0, SPARSIFIED))
EPSILONS = {"cifar10": (0.3, 1.0, 3.0), "tiny_imagenet": (1.0, 3.0, 10.0), "imagenet": (1.0, 3.0, 10.0)}
SHARD = {"cifar10": 32, "tiny_imagenet": 16, "imagenet": 12}  # images of one shard

FULL = Terms(  # for a large GPU
    counts={"cifar10": 128, "tiny_imagenet": 64, "imagenet": 48},
    clean={"cifar10": 128, "tiny_imagenet": 64, "imagenet": 48},
    rhos={"cifar10": 32, "tiny_imagenet": 16, "imagenet": 12},
    grid=tuple(product(NOISE, RHOS)),
    settings=(*(Setting(noise, 0.0) for noise in NOISE), *PUBLISHED),
    epsilons=EPSILONS,
    slopes=(*product((0.1, 0.2), ("mean", "square")), (0.35, "square"), (0.1, RELAXED)),
    budget=384,
    attack_budget=64,
    steps=8,
    points=29,
    block={"cifar10": 16, "tiny_imagenet": 8, "imagenet": 6},
    precision=dict.fromkeys(DATASETS, "float16"),
    rows=512,
)
SMALL = Terms(  # for a CPU: photos of 128 pixels, with changes that are as large per pixel as those of 224
    counts={"cifar10": 8, "tiny_imagenet": 4, "imagenet": 8},
    clean={"cifar10": 24, "tiny_imagenet": 24, "imagenet": 24},
    rhos={"cifar10": 8, "tiny_imagenet": 4, "imagenet": 8},
    grid=((0.1, 0.3), (0.2, 0.3), (0.2, 1.0), (0.3, 1.0)),
    settings=(Setting(0.1, 0.0), Setting(0.2, 0.0), Setting(0.3, 0.0), Setting(0.1, 1.0), *PUBLISHED),
    epsilons={"cifar10": (1.0, 3.0)} | dict.fromkeys(("tiny_imagenet", "imagenet"), (3 * 128 / 224, 10 * 128 / 224)),
    slopes=(*product((0.1, 0.2), ("mean", "square")), (0.1, RELAXED)),
    budget=384,
    attack_budget=32,
    steps=8,
    points=21,
    block=dict.fromkeys(DATASETS, 4),
    sizes={"imagenet": 128},
    precision={"cifar10": "bfloat16"},
)
QUICK = Terms(
    counts={"cifar10": 2, "tiny_imagenet": 2, "imagenet": 2},
    clean={"cifar10": 2, "tiny_imagenet": 2, "imagenet": 2},
    rhos={"cifar10": 2},
    grid=((0.1, 0.3), (0.1, 1.0)),
    settings=(Setting(0.1, 0.0), Setting(0.2, 0.0), Setting(0.1, 1.0), *PUBLISHED),
    epsilons={"cifar10": (3.0,)} | dict.fromkeys(("tiny_imagenet", "imagenet"), (3.0,)),
    slopes=((0.1, "mean"), (0.1, "square"), (0.1, RELAXED)),
    budget=16,
    attack_budget=4,
    steps=1,
    points=5,
    block=dict.fromkeys(DATASETS, 2),
    sizes={"imagenet": 64},
)


@dataclass(frozen=True)
class Shard:
    """Some images of one data set: what one run does in less than ten minutes on a large GPU."""

    dataset: str
    number: int  # from 1
    images: range
    terms: Terms
    name: str = "frontier"

    def folder(self, settings: Settings) -> Path:
        return settings.out / "studies" / f"{self.name}_{self.dataset}_{self.number}"


def choose_terms(settings: Settings) -> Terms:
    """By what the device can do in a reasonable time."""
    if settings.quick:
        return QUICK
    return FULL if settings.place.type == "cuda" else SMALL


def split_shards(datasets: tuple[str, ...], terms: Terms) -> list[Shard]:
    """Images that are attacked, the first of them again for every rho, then further ones that are not."""
    found = []
    for name in datasets:
        first, stop = terms.counts[name], terms.counts[name] + terms.clean[name]
        found += [Shard(name, *piece, terms) for piece in _pieces(0, first, SHARD[name])]
        rest, grid = terms.without_attacks(), terms.with_rhos(name)
        found += [Shard(name, *piece, grid, RHO) for piece in _pieces(0, terms.rhos.get(name, 0), SHARD[name])]
        found += [Shard(name, *piece, rest, CLEAN) for piece in _pieces(first, stop, 2 * SHARD[name])]
    return found


def _pieces(first: int, stop: int, size: int) -> Iterator[tuple[int, range]]:
    """Numbered from 1."""
    return enumerate((range(start, min(start + size, stop)) for start in range(first, stop, size)), 1)


def make(settings: Settings) -> bool:
    """Run or resume the shards, then write the tables and the picture of all rows that are there."""
    terms = choose_terms(settings)
    done = settings.redraw or _run(settings, terms)
    rows = read_rows(settings)
    if rows:
        _write(rows, settings.out)
    return done


def _run(settings: Settings, terms: Terms) -> bool:
    until = None if settings.minutes is None else time.monotonic() + 60 * settings.minutes
    shards = split_shards(settings.datasets, terms)
    return all(_run_shard(each, settings, until) for each in shards if settings.shard in (None, each.number))


def _run_shard(shard: Shard, settings: Settings, until: float | None) -> bool:
    """Measure what is missing of a shard, block by block; whether it is whole. Every run makes progress."""
    folder, terms = shard.folder(settings), shard.terms
    if settings.restart and folder.is_dir():
        shutil.rmtree(folder)
    folder.mkdir(parents=True, exist_ok=True)
    size = (terms.sizes or {}).get(shard.dataset)
    found = sample(shard.dataset, settings, shard.images.stop, change=None if size is None else partial(resize, size))
    file = open_rows(folder)
    describe_study(
        folder / "study.json", _describe(shard, found, settings), describe_run("frontier", settings), file.path
    )
    block = terms.block[shard.dataset]
    starts = range(shard.images.start, shard.images.stop, block)
    blocks = [slice(start, min(start + block, shard.images.stop)) for start in starts]
    _, done = file.resume(identify(found, some, terms) for some in blocks)
    for number, some in enumerate(blocks[done:]):
        if number and until is not None and time.monotonic() >= until:
            return False
        began = time.monotonic()
        file.append(Block(found, some, terms, HESSIAN_STEP[shard.dataset]).measure())
        print(
            f"{folder.name}: images to {some.stop} of {shard.images.stop}, {time.monotonic() - began:.0f} s", flush=True
        )
    return True


def resize(size: int, classifier: Any) -> Any:
    """The classifier for pictures of that many pixels a side."""
    return as_classifier(classifier, name=classifier.name, change=ViewChange(size=size))


def open_rows(folder: Path) -> ResumableCsv:
    return ResumableCsv(folder / "rows.csv", COLUMNS, IDENTITY, hint="name another --out, or start over with --restart")


def _describe(shard: Shard, found: Sample, settings: Settings) -> dict[str, Any]:
    """What must be the same for a shard to be resumed."""
    name, terms = shard.dataset, shard.terms
    apart = ("counts", "clean", "rhos", "grid", "epsilons", "sizes", "block", "rows")  # other images may join a study
    known = {key: value for key, value in asdict(terms).items() if key not in apart}
    known |= {"epsilons": terms.epsilons[name], "size": (terms.sizes or {}).get(name)}
    known |= {"precision": (terms.precision or {}).get(name), "hessian_step": HESSIAN_STEP[name]}
    known |= {"block": terms.block[name]}
    images = {"first": shard.images.start, "stop": shard.images.stop, "digest": found.digest}
    return {"dataset": name, "model": settings.model(name), "images": images, "device": settings.place.type, **known}


def read_rows(settings: Settings) -> list[Line]:
    """The rows of every shard that is there, with the name of their data set."""
    found: list[Line] = []
    for name in DATASETS:
        parent = settings.out / "studies"  # the name of one data set ends another's, hence the digit
        folders = [each for what in ("frontier", CLEAN, RHO) for each in parent.glob(f"{what}_{name}_[0-9]*")]
        for folder in sorted(each for each in folders if (each / "rows.csv").is_file()):
            found += [{"dataset": name} | row for row in open_rows(folder).read()]
    return found


def _write(rows: list[Line], out: Path) -> None:
    lines = frontier_tables.summarise(rows)
    records.write(out / "frontier.csv", lines, frontier_tables.COLUMNS)
    records.write(out / "frontier_goal.csv", frontier_tables.compare(rows), frontier_tables.GOAL)
    records.write(out / "frontier_attacks.csv", frontier_tables.rank_attacks(rows), frontier_tables.ATTACKS)
    curve_plot.save(frontier_plot.draw(lines), out / "frontier.png")
