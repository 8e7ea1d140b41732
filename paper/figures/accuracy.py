"""How well maps explain: insertion, deletion, sparsity, and on Tiny-ImageNet whether they lie on the object.

Clean maps of the network's own prediction, with equal budgets and a common seed; all metrics look at |map|.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

import moreaugrad as mg
from benchmarks.record import hardware
from moreaugrad.studies.summary import group_rows
from paper import names
from paper.data import records
from paper.data.datasets import Sample
from paper.data.recipes import ETA, LEVEL
from paper.data.records import Line, number
from paper.figures import study_runs
from paper.figures.row_runs import RowFile, make_lines, measure_rows
from paper.report import curve_plot, dot_plot
from paper.report.summaries import CHANCE, MIDDLE, STATISTICS, difference, statistics
from paper.settings import Settings

RANDOM, NETWORK = "random", "network"  # in place of a method: a random map, the share of right predictions
METHODS = names.ACCURACY_METHODS
IDENTITY = ("dataset", "block", "method", "image", "key", "label", "predicted", "correct", "gradients")
FAITHFUL, SPARSE, ON_OBJECT = names.ACCURACY[:3], names.ACCURACY[3:6], names.ACCURACY[6:]
COLUMNS = (*IDENTITY, *names.ACCURACY, "box_share")
SUMMARY = ("dataset", "method", "metric", "over", "n", "counted", "undefined", *STATISTICS, "gradients")
PAIRED = ("dataset", "metric", "over", "method", "other", "n", "positive", *MIDDLE)
OTHER = "smoothgrad"  # that the other methods are compared with, image by image
BLOCKS = {"cifar10": 50, "tiny_imagenet": 50, "imagenet": 16}  # images that are explained together


@dataclass(frozen=True)
class Terms:
    """How much is spent, the same for all methods."""

    counts: Mapping[str, int]  # images of each data set
    budget: int  # gradients of a map, where a method has a choice
    points: int  # of the curves of insertion and deletion, ends included
    seeds: tuple[int, ...]  # orders of equal pixels that are averaged over
    rows: int = 64  # that reach the network at once
    precision: str | None = None  # of maps that are averages over noise; None: the library's choice

    def compiles(self, dataset: str) -> bool:
        """Whether the network is compiled for such maps."""
        return self.precision is not None and dataset in study_runs.COMPILED


FULL = Terms({"cifar10": 200, "tiny_imagenet": 120, "imagenet": 48}, budget=1600, points=57, seeds=(0,))
QUICK = Terms({"cifar10": 4, "tiny_imagenet": 2, "imagenet": 1}, budget=32, points=9, seeds=(0,))


def make(settings: Settings) -> bool:
    """accuracy_rows.csv and accuracy.json as it goes; the rest, from the rows that are there, at the end."""
    terms, out = QUICK if settings.quick else FULL, settings.out
    file = RowFile(out, "accuracy", COLUMNS)
    if not settings.redraw and not _measure_all(file, terms, settings):
        return False
    if rows := file.read():
        lines = summarise(rows)
        records.write(out / "accuracy.csv", lines, SUMMARY)
        records.write(out / "accuracy_paired.csv", pair_methods(rows), PAIRED)
        curve_plot.save(dot_plot.draw(lines, _note(lines, terms)), out / "accuracy.png")
    return True


def _measure_all(file: RowFile, terms: Terms, settings: Settings) -> bool:
    if settings.place.type == "cuda":  # float16 moves such maps by less than another seed
        terms = replace(terms, rows=256, precision="float16")

    def describe(of: Sample) -> dict[str, Any]:
        return {
            "images": len(of),
            "budget": terms.budget,
            "points": terms.points,
            "seeds": terms.seeds,
            "noise_level": LEVEL,
            "model": settings.model(of.name),
            "trained": of.trained,
            "digest": of.digest,
            "device": hardware(str(settings.place)),
            "precision": terms.precision,
            "methods": METHODS,
            "compile": terms.compiles(of.name),
        }

    def measure_cell(of: Sample, block: slice, method: str) -> list[Line]:
        return measure(of, block, method, terms)

    return measure_rows(file, settings, terms.counts, BLOCKS, METHODS, describe, measure_cell)


def measure(of: Sample, block: slice, method: str, terms: Terms) -> list[Line]:
    """One row per image."""
    x, labels = of.x[block], of.labels[block]
    with torch.no_grad():
        predicted = of.classifier(x).argmax(1)
    maps, gradients = explain(of, block, predicted, method, terms)
    values: dict[str, Tensor] = measure_faithfulness(maps, x, of.classifier, predicted, terms)
    values |= {name: mg.METRICS[name](maps) for name in SPARSE}
    if of.boxes is not None:
        boxes = of.boxes[block]
        values |= {name: mg.METRICS[name](maps, boxes) for name in ON_OBJECT}
        values["box_share"] = mg.METRICS["energy_in_box"](torch.ones_like(maps), boxes)
    values |= {"label": labels, "predicted": predicted, "correct": predicted == labels}
    columns: dict[str, Sequence[Any]] = {name: each.tolist() for name, each in values.items()}
    columns |= {"image": range(block.start, block.stop), "key": of.keys[block], "gradients": gradients}
    return make_lines({"dataset": of.name, "block": block.start, "method": method}, columns)


def explain(of: Sample, block: slice, target: Tensor, method: str, terms: Terms) -> tuple[Tensor, Sequence[int]]:
    """The maps of a block, and the gradients that each took."""
    x = of.x[block]
    if method == RANDOM:  # each image by a seed of its own, so that its map is the same in any block
        seeds = range(block.start, block.start + len(x))
        maps = [torch.rand(1, *x.shape[2:], generator=torch.Generator().manual_seed(seed)) for seed in seeds]
        return torch.stack(maps).to(x.device), [0] * len(x)
    found = make_method(method, of.classifier, terms, terms.compiles(of.name)).explain(x, target)
    return found.map.detach(), found.gradients.tolist()


def make_method(method: str, model: Any, terms: Terms, compile: bool = False) -> Any:
    """The method with its own defaults but for the common budget and level of noise; seed 0."""
    made = mg.METHODS[method](model, **({"eta": ETA[method]} if method in ETA else {}))
    if not hasattr(made, "smoothing"):
        return replace(made, steps=terms.budget) if hasattr(made, "steps") else made
    noise, engine = replace(made.smoothing, noise_level=LEVEL), {"precision": terms.precision, "compile": compile}
    if hasattr(made, "budget"):
        return replace(made, smoothing=noise, budget=terms.budget, **engine)
    return replace(made, smoothing=replace(noise, samples=terms.budget), **engine)


def measure_faithfulness(maps: Tensor, x: Tensor, model: Any, target: Tensor, terms: Terms) -> dict[str, Tensor]:
    pixels = x.shape[-2] * x.shape[-1]
    step = max(x.shape[-1], -(-pixels // (terms.points - 1)))  # never finer than a row of pixels, as is usual
    options = {"step": step, "seeds": terms.seeds, "internal_batch_size": terms.rows}
    return {
        "insertion": mg.METRICS["insertion"](maps, x, model, target, **options),
        "deletion": mg.METRICS["deletion"](maps, x, model, target, **options),
        "deletion_blur": mg.METRICS["deletion"](maps, x, model, target, baseline="blur", **options),
    }


def summarise(rows: Sequence[Mapping[str, str]]) -> list[Line]:
    """Over all images, and over those whose prediction is right; methods first, then what belongs to the images."""
    found: list[Line] = []
    wanted = dict.fromkeys(METHODS, names.ACCURACY) | {CHANCE: ("box_share",), NETWORK: ("correct",)}
    groups = group_rows(rows, ("dataset", "method"))
    for dataset in dict.fromkeys(row["dataset"] for row in rows):
        for method, metrics in wanted.items():
            some = groups.get((dataset, method if method in METHODS else RANDOM), [])
            for over in ("all", "correct"):
                chosen = [row for row in some if over == "all" or row["correct"] == "1"]
                shared = {"dataset": dataset, "method": method, "over": over, "n": len(chosen)}
                shared["gradients"] = max((int(row["gradients"]) for row in chosen), default=0)
                given = {metric: [number(row[metric]) for row in chosen] for metric in metrics}
                found += [
                    shared | {"metric": metric} | statistics(values)
                    for metric, values in given.items()
                    if not np.isnan(values).all()
                ]
    return found


def pair_methods(rows: Sequence[Mapping[str, str]]) -> list[Line]:
    """Each method minus SmoothGrad, image by image, over all images and over those whose prediction is right."""
    by: dict[tuple[str, str, str], dict[str, Mapping[str, str]]] = {}
    for row in rows:
        for over in ("all", "correct") if row["correct"] == "1" else ("all",):
            by.setdefault((row["dataset"], over, row["method"]), {})[row["key"]] = row
    found: list[Line] = []
    for (dataset, over, method), some in by.items():
        two = by.get((dataset, over, OTHER), {})
        for metric in (*FAITHFUL, *ON_OBJECT) if method != OTHER and some.keys() & two.keys() else ():
            line = {"dataset": dataset, "metric": metric, "over": over, "method": method, "other": OTHER}
            line |= difference(some, two, metric)
            found += [line] if line["n"] else []
    return found


def _note(lines: Sequence[Line], terms: Terms) -> str:
    counts = {line["dataset"]: line["n"] for line in lines if line["over"] == "all"}
    images = ", ".join(f"{count} of {names.dataset(name)}" for name, count in counts.items())
    return (
        f"means with 95 % intervals; {images}; {terms.budget:,} gradients a map where a method has a choice; "
        "dotted: share of the image that the box takes"
    )
