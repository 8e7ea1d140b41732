"""The published curves under random noise instead of an attack: a random point at the same distance.

On equal terms: 1,600 gradients a map, one level of noise, the clean and the changed map under the same noise.
"""

from __future__ import annotations

import moreaugrad as mg
from paper import names
from paper.figures import study_runs
from paper.figures.study_runs import Part
from paper.report import curve_plot, summaries
from paper.settings import Settings

IMAGES = {"cifar10": 64, "tiny_imagenet": 24, "imagenet": 16}
QUICK = {"cifar10": 2, "tiny_imagenet": 2, "imagenet": 1}
TITLE = "Random noise of the same length"
NOTE = "means over images whose prediction is kept, 95 % intervals; dotted: two seeds without noise"


def make_parts(settings: Settings) -> list[Part]:
    images = QUICK if settings.quick else IMAGES
    return study_runs.split_shards("noise", settings, images, lambda dataset: make_study(dataset, settings))


def make_study(dataset: str, settings: Settings) -> mg.Study:
    sizes = study_runs.SIZES[dataset]
    full = {"budget": study_runs.BUDGET, "attack_budget": 16}
    return mg.Study(
        study_runs.choose_methods(settings, dataset, draws=16, points=64),
        {"noise": {}},
        sizes[2:] if settings.quick else sizes,
        metrics=names.COMPARED,
        **(study_runs.FEW if settings.quick else full),
    )


def make(settings: Settings) -> bool:
    """Run or resume the studies, then write noise.csv and noise.png of the rows that are there."""
    done = study_runs.run(make_parts(settings), settings)
    rows = study_runs.read_rows(make_parts, settings)
    if lines := [line for name, some in rows.items() for line in summaries.summarise(some, name, "noise")]:
        summaries.write(settings.out / "noise.csv", lines)
        curve_plot.save(curve_plot.draw(lines, title=TITLE, note=NOTE), settings.out / "noise.png")
    return done
