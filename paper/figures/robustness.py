"""The published curves by the published protocol, beside the published values.

The authors' sample counts for every judged map (8,192 for SmoothGrad, 256 for its sparsified form, 19,200 for
MoreauGrad), the attack that steps along signs, frozen derivatives, and noise that the two maps do not share.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import moreaugrad as mg
from moreaugrad.studies.plan import FLOOR, STRONGEST
from paper import names
from paper.data import records
from paper.data.records import Line
from paper.figures import study_runs
from paper.figures.study_runs import Part, Row
from paper.report import bimodality, curve_plot, ordering, summaries
from paper.report.summaries import DISTANCE, is_true
from paper.settings import Settings

IMAGES = {"cifar10": 64, "tiny_imagenet": 24, "imagenet": 16}
QUICK = {"cifar10": 2, "tiny_imagenet": 2, "imagenet": 1}
# by methods: gradients of a judged map, and inside the attack
COUNTS = {
    ("gradient", "integrated_gradients"): (1, 1),
    ("smoothgrad",): (8192, 64),
    ("smoothgrad_400",): (400, 64),  # about as many as the published curve looks like
    ("smoothgrad_quiet",): (200, 64),  # with the noise of the other methods, not that of the authors' program
    ("sparsified_smoothgrad",): (256, 64),
    ("moreau", "sparse_moreau"): (19200, 160),
}
LARGER = ("moreau", "smoothgrad_quiet")  # only at the larger norms, which say most: MoreauGrad's maps cost the most
FLOORS = (*bimodality.FLOORS, "samples", "epsilon", "published", "samples_of_published")
TITLE = "The published protocol"
NOTE = "means over images with a valid attack, 95 % intervals; dashed: published; dotted: two seeds, no attack"


def make_parts(settings: Settings) -> list[Part]:
    """Studies by data set and by how many gradients a map has."""
    images = QUICK if settings.quick else IMAGES
    found = []
    for labels, counts in COUNTS.items():
        make = partial(make_study, labels=labels, counts=counts, settings=settings)
        found += study_runs.split_shards(f"published_{labels[-1]}", settings, images, make)
    return found


def make_study(dataset: str, labels: tuple[str, ...], counts: tuple[int, int], settings: Settings) -> mg.Study:
    # the authors' networks are smooth, as ours for CIFAR-10 is; the others have no second derivative to follow
    kinks = settings.quick or dataset != "cifar10"
    methods = choose_methods(settings, dataset, study_runs.HESSIAN_STEP[dataset] if kinks else None)
    larger = settings.quick or labels[0] in LARGER
    return mg.Study(
        {label: options for label, options in methods.items() if label in labels},
        {"topk": {"rule": "sign", "steps": 1 if settings.quick else 10, **({"surrogate": None} if kinks else {})}},
        study_runs.SIZES[dataset][2:] if larger else study_runs.SIZES[dataset],
        modes=("frozen",),
        metrics=(*names.COMPARED, *study_runs.FLAGGED),
        **(study_runs.FEW if settings.quick else dict(zip(study_runs.FEW, counts, strict=True))),
        common_noise=False,
    )


def choose_methods(settings: Settings, dataset: str, hessian_step: float | None) -> dict[str, dict[str, Any]]:
    """With the options of the authors' programs: 50 points of a path, noise of level 0.15 for SmoothGrad alone."""
    found = study_runs.choose_methods(settings, dataset, draws=16, points=50, hessian_step=hessian_step)
    found["smoothgrad_quiet"] = found["smoothgrad"] | {"method": "smoothgrad"}
    found["smoothgrad"]["smoothing"] = mg.Smoothing(0.15)
    found["smoothgrad_400"] = found["smoothgrad"] | {"method": "smoothgrad"}
    return found


def compare_floors(lines: Sequence[Line], published: Sequence[Mapping[str, Any]]) -> list[Line]:
    """What two seeds alone differ by, beside the published value at the smallest norm.

    A mean over N noise vectors has an error of 1/sqrt(N), so N (floor / published)^2 of them differ by that value: if
    the attack had done nothing at all, the published maps were means over so many.
    """
    samples = {label: counts[0] for labels, counts in COUNTS.items() for label in labels}
    found = []
    for line in lines:
        of = (line["dataset"], line["method"], DISTANCE)
        values = [each for each in published if (each["dataset"], each["method"], each["metric"]) == of]
        if values:
            least = min(values, key=lambda each: float(each["epsilon"]))
            known = line | {"samples": samples[of[1]], "epsilon": least["epsilon"], "published": least["value"]}
            found.append(known | {"samples_of_published": samples[of[1]] * (line["mean"] / least["value"]) ** 2})
    return found


def count_failures(rows: Sequence[Row]) -> list[Row]:
    """As the authors' program counts: an image without a valid attack stays as it is, and noise alone moves its map."""
    still = {(row["method"], row["key"]): row for row in rows if row["mode"] == FLOOR}
    return [
        row
        if row["mode"] != STRONGEST or is_true(row["valid"])
        else {**still[row["method"], row["key"]], **{name: row[name] for name in ("attack", "epsilon", "mode")}}
        for row in rows
    ]


def make(settings: Settings) -> bool:
    """Run or resume the studies, then write robustness.csv, robustness.png and what else the rows say."""
    done = study_runs.run(make_parts(settings), settings)
    rows = study_runs.read_rows(make_parts, settings)
    if any(rows.values()):
        _write(rows, settings)
    return done


def _write(rows: Mapping[str, list[Row]], settings: Settings) -> None:
    out, each, published = settings.out, rows.items(), summaries.read_published()
    lines = [line for name, some in each for line in summaries.summarise(some, name, "published")]
    every = [line for name, some in each for line in summaries.summarise(count_failures(some), name, "with failures")]
    summaries.write(out / "robustness.csv", lines)
    summaries.write(out / "robustness_all.csv", every)
    records.write(out / "ordering.csv", ordering.compare_orders(lines, published, every), ordering.COLUMNS)
    if not settings.quick:  # the counts are the authors' then
        floors = [line for name, some in each for line in bimodality.floors(some, name)]
        records.write(out / "floors.csv", compare_floors(floors, published), FLOORS)
        without = [line for name, some in each for line in bimodality.without_jumps(some, name, published)]
        records.write(out / "jumps.csv", without, bimodality.WITHOUT)
    curve_plot.save(curve_plot.draw(lines, published, TITLE, NOTE), out / "robustness.png")
