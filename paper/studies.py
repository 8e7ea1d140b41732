"""The studies behind the curves: which methods, attacks and sizes, on how many images and at what cost.

Each is a folder below OUT with rows.csv, table.csv, curves.png and study.json, and goes on where it was stopped.
"""

from __future__ import annotations

import csv
import shlex
import shutil
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import moreaugrad as mg
from moreaugrad.model.sharing import shared_engines
from paper import curves
from paper.datasets import load, sample
from paper.settings import DATASETS, Settings

Row = dict[str, str]
SIZES = {  # of attacks, as in the published figure; in the units of the normalised input
    "cifar10": (0.3, 1.0, 3.0, 10.0),
    "tiny_imagenet": (1.0, 3.0, 10.0, 20.0),
    "imagenet": (1.0, 3.0, 10.0, 20.0),
}
LEVEL = 0.1  # of the noise, relative to the range of an image
ETA = 0.005
APART = {"cifar10": 0.5, "tiny_imagenet": 2.0, "imagenet": 2.0}  # gradients whose difference is a second derivative;
# a smooth network has no kinks to be seen
FLAGGED = {  # figures as published code takes them -> their columns in the tables of the paper
    "normalised_distance:signed": "normalised_distance_signed",
    "topk_intersection:signed": "topk_signed",
    "ssim:raw": "ssim_raw",
}
METRICS = ("normalised_distance", "topk_intersection", "ssim")
BUDGET = 1600  # gradients of a map that is judged, for methods that have a choice
FEW = {"budget": 8, "attack_budget": 4}  # of a quick run


SHARD = {"cifar10": 64, "tiny_imagenet": 48, "imagenet": 16}  # images: whole blocks that fill a GPU
COMPILED = ("tiny_imagenet", "imagenet")  # whose networks are large enough for that to pay on a GPU


@dataclass(frozen=True, eq=False)
class Part:
    """One study on a shard of the images of one data set: what one run does in less than ten minutes on a large GPU."""

    name: str
    dataset: str
    number: int  # of the shard, from 1
    images: range
    study: mg.Study

    def folder(self, settings: Settings) -> Path:
        return settings.out / "studies" / f"{self.name}_{self.dataset}_{self.number}"


def shards(name: str, dataset: str, images: int, study: mg.Study, size: int | None = None) -> list[Part]:
    """One part for each so many images."""
    each = size or SHARD[dataset]
    pieces = [range(start, min(start + each, images)) for start in range(0, images, each)]
    return [Part(name, dataset, number, piece, study) for number, piece in enumerate(pieces, 1)]


def scaled(settings: Settings, count: int) -> int:
    """A number of gradients, less where the budget is less than the full one."""
    return max(8, round(count * (settings.budget or BUDGET) / BUDGET))


def counted(settings: Settings, full: Mapping[str, int], quick: Mapping[str, int]) -> Mapping[str, int]:
    """How many images of each data set."""
    of = quick if settings.quick else full
    return {name: min(count, settings.images or count) for name, count in of.items()}


def methods(
    settings: Settings, dataset: str, draws: int, points: int, apart: float | None = None
) -> dict[str, dict[str, Any]]:
    """The six methods of the published curves, with one level of noise: `draws` noise vectors per step of a solve,
    `points` of the path of integrated gradients, second derivatives from gradients so far `apart`."""
    on_gpu, second = settings.place.type == "cuda", {} if apart is None else {"apart": apart}
    fast, exact = (second | ({"precision": each} if on_gpu else {}) for each in ("float16", "tf32"))
    if on_gpu and dataset in COMPILED:
        fast["compile"] = True
    draws, points = (2, 4) if settings.quick else (min(draws, scaled(settings, 80)), min(points, scaled(settings, 320)))
    noise, solve = mg.Smoothing(LEVEL), mg.Smoothing(LEVEL, samples=draws)
    return {
        "gradient": dict(exact),
        "integrated_gradients": {"steps": points, **exact},
        "smoothgrad": {"smoothing": noise, **fast},
        "sparsified_smoothgrad": {"smoothing": noise, **fast},
        "moreau": {"smoothing": solve, **fast},
        "sparse_moreau": {"smoothing": solve, "eta": ETA, **fast},
    }


def run(parts: Sequence[Part], settings: Settings) -> bool:
    """Goes on with each study in turn, or with those of one shard; whether all of them are finished."""
    if settings.redraw:
        return True
    began, wanted = time.monotonic(), [part for part in parts if settings.shard in (None, part.number)]
    with ready({part.dataset for part in wanted}, settings):
        return all(_run(part, part is wanted[0], began, settings) for part in wanted)


@contextmanager
def ready(datasets: Iterable[str], settings: Settings) -> Iterator[None]:
    """Inside, the network of a data set is folded and compiled once, not for every study and method."""
    with ExitStack() as held:
        for name in datasets:
            held.enter_context(shared_engines(load(name, settings)))
        yield


def _run(part: Part, first: bool, began: float, settings: Settings) -> bool:
    """Goes on with a study; whether it is finished. Every run gets on: the first is never too late."""
    left = None if settings.minutes is None else settings.minutes - (time.monotonic() - began) / 60
    if left is not None and left <= 0 and not first:
        return False
    found, some = sample(part.dataset, settings, part.images.stop), slice(part.images.start, part.images.stop)
    folder, start = part.folder(settings), time.monotonic()
    if settings.restart and folder.is_dir():
        shutil.rmtree(folder)
    standing = mg.run_study(
        part.study,
        found.classifier,
        mg.Tensors(found.x[some], found.keys[some]),
        folder,
        minutes=left,
        watch=partial(_said, folder.name, [start]),
        name=settings.model(part.dataset),
        command=shlex.join(["python", "-m", "paper", *sys.argv[1:]]),
    )
    same = "the same command, without --restart," if settings.restart else "the same command"
    rest = "" if standing.finished else f"; {same} goes on"
    seconds = time.monotonic() - start
    print(f"{folder.name}: {standing.done} of {standing.total} cells, {seconds:.0f} s{rest}", flush=True)
    return standing.finished


def _said(name: str, last: list[float], step: int, total: int, info: Mapping[str, Any]) -> None:
    """A line now and then."""
    if "cell" in info and time.monotonic() - last[0] > 20:
        last[0] = time.monotonic()
        print(f"{name}: {100 * step // max(total, 1)} %, {info['cell']}", flush=True)


def rows(parts: Sequence[Part], settings: Settings) -> dict[str, list[Row]]:
    """What is there, by data set."""
    found: dict[str, list[Row]] = {}
    for part in parts:
        path = part.folder(settings) / "rows.csv"
        if path.is_file():
            with path.open(encoding="utf-8", newline="") as file:
                some = [{FLAGGED.get(name, name): value for name, value in row.items()} for row in csv.DictReader(file)]
            found.setdefault(part.dataset, []).extend(some)
    return found


def told(parts: Sequence[Part], settings: Settings, protocol: str) -> list[dict[str, Any]]:
    """What the rows say that are there, of all data sets."""
    return [line for name, some in rows(parts, settings).items() for line in curves.summarise(some, name, protocol)]


def make(name: str, parts: Callable[[Settings], list[Part]], settings: Settings, title: str, note: str) -> bool:
    """Goes on with the studies, then OUT/<name>.csv and .png of what is there."""
    done = run(parts(settings), settings)
    if lines := told(parts(replace(settings, datasets=DATASETS)), settings, name):
        curves.write(settings.out / f"{name}.csv", lines)
        curves.draw(lines, settings.out / f"{name}.png", title=title, note=note)
    return done
