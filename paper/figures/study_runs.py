"""The studies behind the curves: which methods and sizes, on how many images and at what cost.

Each is a folder below OUT with rows.csv, table.csv, curves.png and study.json, and can be resumed.
"""

from __future__ import annotations

import shlex
import shutil
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import moreaugrad as mg
from paper.data import records
from paper.data.datasets import sample
from paper.data.recipes import LEVEL
from paper.settings import DATASETS, Settings

Row = dict[str, str]
SIZES = {  # of attacks, as in the published figure; in the units of the normalised input
    "cifar10": (0.3, 1.0, 3.0, 10.0),
    "tiny_imagenet": (1.0, 3.0, 10.0, 20.0),
    "imagenet": (1.0, 3.0, 10.0, 20.0),
}
ETA = 0.005
# step of the finite-difference Hessian products: large enough to cross the kinks of networks that have some
HESSIAN_STEP = {"cifar10": 0.5, "tiny_imagenet": 2.0, "imagenet": 2.0}
FLAGGED = {  # metrics as published code computes them -> their columns in the tables of the paper
    "normalised_distance:signed": "normalised_distance_signed",
    "topk_intersection:signed": "topk_signed",
    "ssim:raw": "ssim_raw",
}
BUDGET = 1600  # gradients of a judged map, for methods that have a choice
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
    change: Callable[[Any], Any] | None = None  # makes another classifier of the data set's own

    def folder(self, settings: Settings) -> Path:
        return settings.out / "studies" / f"{self.name}_{self.dataset}_{self.number}"


def split_shards(
    name: str, settings: Settings, images: Mapping[str, int], make_study: Callable[[str], mg.Study]
) -> list[Part]:
    """By data set, a study for each so many images."""
    found = []
    for dataset in settings.datasets:
        each, study = SHARD[dataset], make_study(dataset)
        pieces = [range(start, min(start + each, images[dataset])) for start in range(0, images[dataset], each)]
        found += [Part(name, dataset, number, piece, study) for number, piece in enumerate(pieces, 1)]
    return found


def choose_methods(
    settings: Settings, dataset: str, draws: int, points: int, hessian_step: float | None = None
) -> dict[str, dict[str, Any]]:
    """The six methods of the published curves, with one level of noise.

    `draws`: noise vectors per step of a solve; `points`: of the path of integrated gradients; `hessian_step`: of
    finite-difference Hessian products.
    """
    on_gpu, second = settings.place.type == "cuda", {} if hessian_step is None else {"hessian_step": hessian_step}
    fast, exact = (second | ({"precision": each} if on_gpu else {}) for each in ("float16", "tf32"))
    if on_gpu and dataset in COMPILED:
        fast["compile"] = True
    draws, points = (2, 4) if settings.quick else (draws, points)
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
    """Run or resume each study in turn, or those of one shard; whether all of them are finished."""
    if settings.redraw:
        return True
    began, wanted = time.monotonic(), [part for part in parts if settings.shard in (None, part.number)]
    return all(_run_part(part, part is wanted[0], began, settings) for part in wanted)


def _run_part(part: Part, first: bool, began: float, settings: Settings) -> bool:
    """Run or resume a study; whether it is finished. Every run makes progress: the first is never too late."""
    left = None if settings.minutes is None else settings.minutes - (time.monotonic() - began) / 60
    if left is not None and left <= 0 and not first:
        return False
    found = sample(part.dataset, settings, part.images.stop, change=part.change)
    some = slice(part.images.start, part.images.stop)
    folder, start = part.folder(settings), time.monotonic()
    if settings.restart and folder.is_dir():
        shutil.rmtree(folder)
    result = mg.run_study(
        part.study,
        found.classifier,
        mg.TensorSource(found.x[some], found.keys[some]),
        folder,
        minutes=None if left is None else max(left, 1e-9),  # the first study always makes progress
        watch=partial(_report, folder.name, [start]),
        name=settings.model(part.dataset) + (f", {part.change}" if part.change else ""),
        command=shlex.join(["python", "-m", "paper", *sys.argv[1:]]),
    )
    same = "the same command, without --restart," if settings.restart else "the same command"
    rest = "" if result.finished else f"; {same} goes on"
    print(f"{folder.name}: {result.done} of {result.total} cells, {time.monotonic() - start:.0f} s{rest}", flush=True)
    return result.finished


def _report(name: str, last: list[float], step: int, total: int, info: Mapping[str, Any]) -> None:
    """Print a line now and then, where a cell begins."""
    if "cell" in info and time.monotonic() - last[0] > 20:
        last[0] = time.monotonic()
        print(f"{name}: {100 * step // max(total, 1)} %, {info['cell']}", flush=True)


def read_rows(make_parts: Callable[[Settings], list[Part]], settings: Settings) -> dict[str, list[Row]]:
    """The rows that are there, by data set, whatever data sets this run is about."""
    found: dict[str, list[Row]] = {}
    for part in make_parts(replace(settings, datasets=DATASETS)):
        if some := read_part(part, settings):
            found.setdefault(part.dataset, []).extend(some)
    return found


def read_part(part: Part, settings: Settings) -> list[Row]:
    """The rows of one study that are there, with the columns' names in the tables of the paper."""
    path = part.folder(settings) / "rows.csv"
    if not path.is_file():
        return []
    return [{FLAGGED.get(name, name): value for name, value in row.items()} for row in records.read(path)]
