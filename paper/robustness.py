"""The published curves by the published protocol, beside the published values.

The authors' sample counts for every map that is judged (8,192 for SmoothGrad, 256 for its sparsified form, 19,200 for
MoreauGrad), the attack that steps along signs, frozen derivatives, and noise that the two maps do not share.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import moreaugrad as mg
from paper import curves, jumps, records, studies
from paper.records import Line
from paper.settings import DATASETS, Settings
from paper.studies import Part, Row
from paper.summaries import DRAWN, FLOOR, STRONGEST, is_true

IMAGES = {"cifar10": 64, "tiny_imagenet": 24, "imagenet": 16}
QUICK = {"cifar10": 2, "tiny_imagenet": 2, "imagenet": 1}
# by methods: gradients of a map that is judged, and inside the attack
COUNTS = {
    ("gradient", "integrated_gradients"): (1, 1),
    ("smoothgrad",): (8192, 64),
    ("smoothgrad_400",): (400, 64),  # about as many as the published curve looks like
    ("smoothgrad_quiet",): (200, 64),  # with the noise of the other methods, not that of the authors' program
    ("sparsified_smoothgrad",): (256, 64),
    ("moreau", "sparse_moreau"): (19200, 160),
}
LARGER = ("moreau", "smoothgrad_quiet")  # at the larger norms only, which tell most: MoreauGrad's maps are the dearest

FLOORS = (*jumps.FLOORS, "samples", "epsilon", "published", "samples_of_published")


def parts(settings: Settings) -> list[Part]:
    """Studies by data set and by how many gradients a map has."""
    images = studies.counted(settings, IMAGES, QUICK)
    return [
        part
        for name in settings.datasets
        for labels, counts in COUNTS.items()
        for part in studies.shards(f"published_{labels[-1]}", name, images[name], study(name, labels, counts, settings))
    ]


def study(dataset: str, labels: tuple[str, ...], counts: tuple[int, int], settings: Settings) -> mg.Study:
    kinks = _apart(settings, dataset) is not None
    larger = settings.quick or labels[0] in LARGER
    full = {name: min(count, studies.scaled(settings, count)) for name, count in zip(studies.FEW, counts, strict=True)}
    return mg.Study(
        {label: options for label, options in methods(settings, dataset).items() if label in labels},
        {"topk": {"rule": "sign", "steps": 1 if settings.quick else 10, **({"surrogate": None} if kinks else {})}},
        studies.SIZES[dataset][2:] if larger else studies.SIZES[dataset],
        modes=("frozen",),
        metrics=(*studies.METRICS, *studies.FLAGGED),
        **(studies.FEW if settings.quick else full),
        common_noise=False,
    )


def _apart(settings: Settings, dataset: str) -> float | None:
    """The authors' networks are smooth, as ours for CIFAR-10 is; the others have no second derivative to follow."""
    return studies.APART[dataset] if settings.quick or dataset != "cifar10" else None


def methods(settings: Settings, dataset: str) -> dict[str, dict[str, Any]]:
    """With the options of the authors' programs: 50 points of a path, noise of level 0.15 for SmoothGrad alone."""
    found = studies.methods(settings, dataset, draws=16, points=50, apart=_apart(settings, dataset))
    found["smoothgrad_quiet"] = found["smoothgrad"] | {"method": "smoothgrad"}
    found["smoothgrad"]["smoothing"] = mg.Smoothing(0.15)
    found["smoothgrad_400"] = found["smoothgrad"] | {"method": "smoothgrad"}
    return found


def floors(lines: Sequence[Line], published: Sequence[Mapping[str, Any]]) -> list[Line]:
    """What two seeds alone differ by, beside the published value at the smallest norm.

    A mean over N noise vectors has an error of 1/sqrt(N), so N (floor / published)^2 of them differ by that value: if
    the attack had done nothing at all, the published maps were means over so many.
    """
    samples = {label: counts[0] for labels, counts in COUNTS.items() for label in labels}
    found = []
    for line in lines:
        of = (line["dataset"], line["method"], DRAWN[0])
        told = [each for each in published if (each["dataset"], each["method"], each["metric"]) == of]
        if told:
            least = min(told, key=lambda each: float(each["epsilon"]))
            known = line | {"samples": samples[of[1]], "epsilon": least["epsilon"], "published": least["value"]}
            found.append(known | {"samples_of_published": samples[of[1]] * (line["mean"] / least["value"]) ** 2})
    return found


def with_failures(rows: Sequence[Row]) -> list[Row]:
    """As the authors' program counts: an image without a valid attack stays as it is, and noise alone moves its map."""
    still = {(row["method"], row["key"]): row for row in rows if row["mode"] == FLOOR}
    return [
        row
        if row["mode"] != STRONGEST or is_true(row["valid"])
        else {**still[row["method"], row["key"]], **{name: row[name] for name in ("attack", "epsilon", "mode")}}
        for row in rows
    ]


def make(settings: Settings) -> bool:
    """Goes on with the studies, then robustness.csv, ordering.csv and robustness.png of what is there."""
    done = studies.run(parts(settings), settings)
    rows = studies.rows(parts(replace(settings, datasets=DATASETS)), settings)
    lines = [line for name, some in rows.items() for line in curves.summarise(some, name, "published")]
    if not lines:
        return done
    curves.write(settings.out / "robustness.csv", lines)
    every = [
        line for name, some in rows.items() for line in curves.summarise(with_failures(some), name, "with failures")
    ]
    curves.write(settings.out / "robustness_all.csv", every)
    published = curves.read_published()
    curves.write_orderings(settings.out / "ordering.csv", lines, published, every=every)
    if not settings.quick and settings.budget is None:  # the counts are the authors' then
        seeds = [line for name, some in rows.items() for line in jumps.floors(some, name)]
        records.write(settings.out / "floors.csv", floors(seeds, published), FLOORS)
        apart = [line for name, some in rows.items() for line in jumps.without(some, name, published)]
        records.write(settings.out / "jumps.csv", apart, jumps.WITHOUT)
    curves.draw(
        lines,
        settings.out / "robustness.png",
        published,
        title="The published protocol",
        note="means over images with a valid attack, 95 % intervals; dashed: published; dotted: two seeds, no attack",
    )
    return done
