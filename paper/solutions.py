"""Whether the problem behind a map has one solution: MoreauGrad under two seeds, for several rho, without any attack.

Two maps of one solution differ by the noise of their samples, on all images about alike. Where the weight of the
distance is small beside the curvature of the score (large rho) there may be several solutions, and the noise decides
which one is found: then the maps of some images lie far apart, and so can those of an image and its neighbour.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.figure import Figure

import moreaugrad as mg
from paper import names, records, studies
from paper.curves import save
from paper.datasets import Sample, sample
from paper.jumps import SPREAD, spread
from paper.ledger import Ledger
from paper.records import Line, number
from paper.settings import Settings
from paper.stamps import facts, hardware
from paper.studies import LEVEL, counted

RHOS = (0.1, 0.3, 1.0)
IMAGES = {"cifar10": 24, "tiny_imagenet": 24, "imagenet": 16}
QUICK = {"cifar10": 2, "tiny_imagenet": 1, "imagenet": 1}
BUDGET, FEW = 800, 48  # gradients of a map
BLOCK = 8  # images that are explained together
COLUMNS = (
    *("dataset", "block", "method", "image", "key", "rho"),
    *("distance", "length", "other_length", "envelope", "other_envelope"),
)
SUMMARY = ("dataset", "rho", *SPREAD, "gradients")


def make(settings: Settings) -> bool:
    """solutions_rows.csv and solutions.json as it goes; solutions.csv and solutions.png of what is there."""
    out, budget = settings.out, FEW if settings.quick else min(BUDGET, settings.budget or BUDGET)
    ledger = Ledger(out / "solutions_rows.csv", out / "solutions.json", COLUMNS)
    done = settings.redraw or _measured(ledger, budget, settings)
    if rows := ledger.read():
        records.write(out / "solutions.csv", summarise(rows, ledger.told()), SUMMARY)
        draw(rows, out / "solutions.png")
    return done


def _measured(ledger: Ledger, budget: int, settings: Settings) -> bool:
    until, counts = settings.deadline(), counted(settings, IMAGES, QUICK)
    samples = {name: sample(name, settings, counts[name]) for name in settings.datasets}
    if settings.restart:
        ledger.restart(samples)
    told = {
        name: {"images": len(each), "budget": budget, "trained": each.trained, "digest": each.digest}
        | {"noise_level": LEVEL, "device": hardware(settings.place)}
        for name, each in samples.items()
    }
    ledger.describe(told, facts("solutions", settings))
    plan = {(name, str(block.start), f"moreau_{rho:g}"): (block, rho) for name, block, rho in _plan(samples)}
    sizes = {cell: block.stop - block.start for cell, (block, _) in plan.items()}
    with studies.ready(settings.datasets, settings):
        return ledger.go_on(sizes, lambda cell: measure(samples[cell[0]], *plan[cell], budget), until)


def _plan(samples: Mapping[str, Sample]) -> Iterator[tuple[str, slice, float]]:
    for name, each in samples.items():
        for start in range(0, len(each), BLOCK):
            for rho in RHOS:
                yield name, slice(start, min(start + BLOCK, len(each))), rho


def measure(of: Sample, block: slice, rho: float, budget: int) -> list[Line]:
    """One row per image: two maps of it with other noise."""
    way = {"precision": "float16", "compile": of.name in studies.COMPILED} if of.x.is_cuda else {}
    one, two = (
        mg.MoreauGrad(of.classifier, rho, smoothing=mg.Smoothing(LEVEL), budget=budget, seed=seed, **way).explain(
            of.x[block]
        )
        for seed in (0, 1)
    )
    columns: dict[str, Any] = {
        "image": range(block.start, block.stop),
        "key": of.keys[block],
        "distance": mg.METRICS["normalised_distance"](one.map, two.map).tolist(),
    }
    for name, found in (("", one), ("other_", two)):
        columns[f"{name}length"] = found.map.flatten(1).norm(dim=1).tolist()
        columns[f"{name}envelope"] = found.envelope.tolist()
    shared = {"dataset": of.name, "block": block.start, "method": f"moreau_{rho:g}", "rho": rho}
    return [
        shared | {name: column[place] for name, column in columns.items()} for place in range(block.stop - block.start)
    ]


def summarise(rows: Sequence[Mapping[str, str]], told: Mapping[str, Mapping[str, Any]]) -> list[Line]:
    """By data set and rho: how far two maps are apart, and the share of images on which that is no noise.

    `told`: what the rows of each data set were made with; this run may be told something else.
    """
    groups: dict[tuple[str, float], list[float]] = {}
    for row in rows:
        groups.setdefault((row["dataset"], number(row["rho"])), []).append(number(row["distance"]))
    order = list(names.DATASETS)
    return [
        {"dataset": dataset, "rho": rho}
        | spread(groups[dataset, rho])
        | {"gradients": told.get(dataset, {}).get("budget")}
        for dataset, rho in sorted(groups, key=lambda of: (order.index(of[0]), of[1]))
    ]


def draw(rows: Sequence[Mapping[str, str]], path: Path) -> None:
    """A dot for each image."""
    datasets = [name for name in names.DATASETS if any(row["dataset"] == name for row in rows)]
    figure = Figure(figsize=(2.6 * len(datasets) + 0.6, 2.9), dpi=100, facecolor="white", layout="constrained")
    places = figure.subplots(1, len(datasets), squeeze=False, sharey=True)[0]
    for axes, dataset in zip(places, datasets, strict=True):
        for place, rho in enumerate(RHOS):
            some = [row for row in rows if (row["dataset"], number(row["rho"])) == (dataset, rho)]
            aside = np.linspace(-0.25, 0.25, max(len(some), 2))[: len(some)]
            axes.plot(place + aside, [number(row["distance"]) for row in some], "o", color="#0072B2", markersize=3.5)
        axes.set_xticks(range(len(RHOS)), [f"{rho:g}" for rho in RHOS])
        axes.set_xlabel("rho")
        axes.set_title(names.dataset(dataset), fontsize=10)
        axes.set_ylim(bottom=0)
        axes.grid(alpha=0.25)
        axes.spines[["top", "right"]].set_visible(False)
    places[0].set_ylabel("distance of two seeds' maps")
    figure.suptitle("MoreauGrad without an attack: a dot is an image", fontsize=10)
    save(figure, path)
