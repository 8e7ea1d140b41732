"""Whether the problem behind a map has one solution: MoreauGrad under two seeds, for several rho, without any attack.

Two maps of one solution differ by the noise of their samples, on all images about alike. Where the weight of the
distance is small beside the curvature of the score (large rho) there may be several solutions, and the noise decides
which one is found: then the maps of some images lie far from each other, and so can those of an image and its
neighbour.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.figure import Figure

import moreaugrad as mg
from benchmarks.record import hardware
from moreaugrad.studies.summary import group_rows
from paper import names
from paper.data import records
from paper.data.datasets import Sample
from paper.data.recipes import LEVEL
from paper.data.records import Line, number
from paper.figures import study_runs
from paper.figures.row_runs import RowFile, make_lines, measure_rows
from paper.report.bimodality import SPREAD, spread
from paper.report.curve_plot import save
from paper.settings import Settings

RHOS = (0.1, 0.3, 1.0)
METHODS = {f"moreau_{rho:g}": rho for rho in RHOS}
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
    """solutions_rows.csv and solutions.json as it goes; solutions.csv and solutions.png of the rows that are there."""
    budget = FEW if settings.quick else BUDGET
    file = RowFile(settings.out, "solutions", COLUMNS)
    done = settings.redraw or _measure_all(file, budget, settings)
    if rows := file.read():
        records.write(settings.out / "solutions.csv", summarise(rows, file.settings()), SUMMARY)
        save(draw(rows), settings.out / "solutions.png")
    return done


def _measure_all(file: RowFile, budget: int, settings: Settings) -> bool:
    def describe(of: Sample) -> dict[str, Any]:
        found = {"images": len(of), "budget": budget, "trained": of.trained, "digest": of.digest}
        return found | {"noise_level": LEVEL, "device": hardware(str(settings.place))}

    def measure_cell(of: Sample, block: slice, method: str) -> list[Line]:
        return measure(of, block, METHODS[method], budget)

    return measure_rows(
        file, settings, QUICK if settings.quick else IMAGES, BLOCK, tuple(METHODS), describe, measure_cell
    )


def measure(of: Sample, block: slice, rho: float, budget: int) -> list[Line]:
    """One row per image: two maps of it with other noise."""
    engine = {"precision": "float16", "compile": of.name in study_runs.COMPILED} if of.x.is_cuda else {}
    one, two = (
        mg.MoreauGrad(of.classifier, rho, smoothing=mg.Smoothing(LEVEL), budget=budget, seed=seed, **engine).explain(
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
    return make_lines({"dataset": of.name, "block": block.start, "method": f"moreau_{rho:g}", "rho": rho}, columns)


def summarise(rows: Sequence[Mapping[str, str]], settings: Mapping[str, Mapping[str, Any]]) -> list[Line]:
    """By data set and rho: how far two maps lie from each other, and the share of images on which that is no noise.

    `settings`: those that the rows of each data set were made with, whatever those of this run are.
    """
    groups = group_rows(rows, ("dataset", "rho"))
    order = list(names.DATASETS)
    return [
        {"dataset": dataset, "rho": number(rho)}
        | spread([number(row["distance"]) for row in groups[dataset, rho]])
        | {"gradients": settings.get(dataset, {}).get("budget")}
        for dataset, rho in sorted(groups, key=lambda of: (order.index(of[0]), number(of[1])))
    ]


def draw(rows: Sequence[Mapping[str, str]]) -> Figure:
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
    return figure
