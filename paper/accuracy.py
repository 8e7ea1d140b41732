"""How well maps explain: insertion, deletion, sparsity, and on Tiny-ImageNet whether they lie on the object.

Clean maps of the network's own prediction, with equal budgets and a common seed; all metrics look at |map|.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

import moreaugrad as mg
from paper import dots, names, records, studies
from paper.datasets import Sample, sample
from paper.ledger import Ledger
from paper.records import Line, number
from paper.settings import Settings
from paper.stamps import facts, hardware
from paper.studies import LEVEL
from paper.summaries import MIDDLE, STATISTICS, difference, statistics

RANDOM = "random"
CHANCE, NETWORK = "chance", "network"  # in place of a method: the box's share, the share of right predictions
METHODS = (
    *("gradient", "integrated_gradients", "smoothgrad", "sparsified_smoothgrad"),
    *("moreau", "sparse_moreau", "group_sparse_moreau", "gradcam", RANDOM),
)
IDENTITY = ("dataset", "block", "method", "image", "key", "label", "predicted", "correct", "gradients")
FAITHFUL = ("insertion", "deletion", "deletion_blur")
SPARSE = ("nonzero_share", "gini", "hoyer")
ON_OBJECT = ("pointing_game", "energy_in_box")
METRICS = (*FAITHFUL, *SPARSE, *ON_OBJECT)
COLUMNS = (*IDENTITY, *METRICS, "box_share")
SUMMARY = ("dataset", "method", "metric", "over", "n", "counted", "undefined", *STATISTICS, "gradients")
PAIRED = ("dataset", "metric", "over", "method", "other", "n", "positive", *MIDDLE)
OTHER = "smoothgrad"  # that the other methods are set against, image by image
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
    compile: bool = False  # the network for such maps


FULL = Terms({"cifar10": 200, "tiny_imagenet": 120, "imagenet": 48}, budget=1600, points=57, seeds=(0,))
QUICK = Terms({"cifar10": 4, "tiny_imagenet": 2, "imagenet": 1}, budget=32, points=9, seeds=(0,))


def make(settings: Settings) -> bool:
    """accuracy_rows.csv and accuracy.json as it goes; the rest, of what is there, at the end. False: go on later."""
    terms, out = _terms(settings), settings.out
    ledger = Ledger(out / "accuracy_rows.csv", out / "accuracy.json", COLUMNS)
    if not settings.redraw and not _measured(ledger, terms, settings):
        return False
    if not (rows := ledger.read()):
        return True
    lines = summarise(rows)
    records.write(out / "accuracy.csv", lines, SUMMARY)
    records.write(out / "accuracy_paired.csv", paired(rows), PAIRED)
    dots.draw(lines, out / "accuracy.png", _note(lines, terms))
    return True


def _measured(ledger: Ledger, terms: Terms, settings: Settings) -> bool:
    """Goes on with the rows; whether all are there."""
    until = settings.deadline()
    if settings.place.type == "cuda":  # float16 moves such maps by less than another seed
        terms = replace(terms, rows=256, precision="float16")
    samples = {name: sample(name, settings, terms.counts[name]) for name in settings.datasets}
    if settings.restart:
        ledger.restart(samples)
    ledger.describe({name: _told(each, terms, settings) for name, each in samples.items()}, facts("accuracy", settings))
    plan = {(name, str(block.start), method): block for name, block, method in _plan(samples)}
    sizes = {cell: block.stop - block.start for cell, block in plan.items()}
    with studies.ready(settings.datasets, settings):
        return ledger.go_on(sizes, lambda cell: measure(samples[cell[0]], plan[cell], cell[2], terms), until)


def _terms(settings: Settings) -> Terms:
    """With fewer images or gradients where that is asked for."""
    terms = QUICK if settings.quick else FULL
    counts = {name: min(count, settings.images or count) for name, count in terms.counts.items()}
    return replace(terms, counts=counts, budget=min(terms.budget, settings.budget or terms.budget))


def _told(of: Sample, terms: Terms, settings: Settings) -> dict[str, Any]:
    """What must be the same for rows to be gone on with."""
    told = {"images": len(of), "budget": terms.budget, "points": terms.points, "seeds": terms.seeds}
    told["noise_level"] = LEVEL
    network = {"model": settings.model(of.name), "trained": of.trained, "digest": of.digest}
    return (
        told
        | network
        | {"device": hardware(settings.place), "precision": terms.precision, "methods": METHODS}
        | {"compile": _compiled(of, terms)}
    )


def _compiled(of: Sample, terms: Terms) -> bool:
    return terms.precision is not None and of.name in studies.COMPILED


def _plan(samples: Mapping[str, Sample]) -> Iterator[tuple[str, slice, str]]:
    for name, each in samples.items():
        for start in range(0, len(each), BLOCKS[name]):
            for method in METHODS:
                yield name, slice(start, min(start + BLOCKS[name], len(each))), method


def measure(of: Sample, block: slice, method: str, terms: Terms) -> list[Line]:
    """One row per image."""
    x, labels = of.x[block], of.labels[block]
    with torch.no_grad():
        predicted = of.classifier(x).argmax(1)
    terms = replace(terms, compile=_compiled(of, terms))
    maps, gradients = explained(of.classifier, x, predicted, method, block.start, terms)
    figures: dict[str, Any] = faithfulness(maps, x, of.classifier, predicted, terms)
    figures |= {name: mg.METRICS[name](maps) for name in SPARSE}
    if of.boxes is not None:
        boxes = of.boxes[block]
        figures |= {name: mg.METRICS[name](maps, boxes) for name in ON_OBJECT}
        figures["box_share"] = mg.METRICS["energy_in_box"](torch.ones_like(maps), boxes)
    columns = {name: values.tolist() for name, values in figures.items()}
    columns |= {"label": labels.tolist(), "predicted": predicted.tolist(), "gradients": gradients}
    columns["correct"] = (predicted == labels).tolist()
    columns["image"] = list(range(block.start, block.stop))
    columns["key"] = of.keys[block]
    shared = {"dataset": of.name, "block": block.start, "method": method}
    return [shared | {name: column[place] for name, column in columns.items()} for place in range(len(x))]


def explained(
    model: Any, x: Tensor, target: Tensor, method: str, first: int, terms: Terms
) -> tuple[Tensor, Sequence[int]]:
    """The maps, and the gradients that each took."""
    if method == RANDOM:  # each image by a seed of its own, so that the same comes in any block
        drawn = [
            torch.rand(1, *x.shape[2:], generator=torch.Generator().manual_seed(first + place))
            for place in range(len(x))
        ]
        return torch.stack(drawn).to(x.device), [0] * len(x)
    found = maker(method, model, terms).explain(x, target)
    return found.map.detach(), found.gradients.tolist()


def maker(method: str, model: Any, terms: Terms) -> Any:
    """The method with its own defaults but for the common budget and level of noise; seed 0."""
    made = mg.METHODS[method](model)
    if hasattr(made, "smoothing"):
        noise, way = (
            replace(made.smoothing, noise_level=LEVEL),
            {"precision": terms.precision, "compile": terms.compile},
        )
        if hasattr(made, "budget"):
            return replace(made, smoothing=noise, budget=terms.budget, **way)
        return replace(made, smoothing=replace(noise, samples=terms.budget), **way)
    return replace(made, steps=terms.budget) if hasattr(made, "steps") else made


def faithfulness(maps: Tensor, x: Tensor, model: Any, target: Tensor, terms: Terms) -> dict[str, Tensor]:
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
    wanted = dict.fromkeys(METHODS, METRICS) | {CHANCE: ("box_share",), NETWORK: ("correct",)}
    for dataset in dict.fromkeys(row["dataset"] for row in rows):
        for method, metrics in wanted.items():
            of = method if method in METHODS else RANDOM
            some = [row for row in rows if (row["dataset"], row["method"]) == (dataset, of)]
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


def paired(rows: Sequence[Mapping[str, str]]) -> list[Line]:
    """Each method less SmoothGrad, image by image, over all images and over those whose prediction is right."""
    by: dict[tuple[str, str, str], dict[str, Mapping[str, str]]] = {}
    for row in rows:
        for over in ("all", "correct") if row["correct"] == "1" else ("all",):
            by.setdefault((row["dataset"], over, row["method"]), {})[row["key"]] = row
    found: list[Line] = []
    for (dataset, over, method), some in by.items():
        two = by.get((dataset, over, OTHER), {})
        for metric in (*FAITHFUL, *ON_OBJECT) if method != OTHER and some.keys() & two.keys() else ():
            told = {"dataset": dataset, "metric": metric, "over": over, "method": method, "other": OTHER}
            told |= difference(some, two, metric)
            found += [told] if told["n"] else []
    return found


def _note(lines: Sequence[Line], terms: Terms) -> str:
    counts = {line["dataset"]: line["n"] for line in lines if line["over"] == "all"}
    images = ", ".join(f"{count} of {names.dataset(name)}" for name, count in counts.items())
    return (
        f"means with 95 % intervals; {images}; {terms.budget:,} gradients a map where a method has a choice; "
        "dotted: share of the image that the box takes"
    )
