"""The published curves under random noise instead of an attack: a random point at the same distance.

On equal terms: 1,600 gradients a map, one level of noise, the clean and the changed map under the same noise.
"""

from __future__ import annotations

import moreaugrad as mg
from paper import studies
from paper.settings import Settings
from paper.studies import Part

IMAGES = {"cifar10": 64, "tiny_imagenet": 24, "imagenet": 16}
QUICK = {"cifar10": 2, "tiny_imagenet": 2, "imagenet": 1}


def parts(settings: Settings) -> list[Part]:
    """By data set, a study for each shard of the images."""
    images = studies.counted(settings, IMAGES, QUICK)
    return [
        part
        for name in settings.datasets
        for part in studies.shards("noise", name, images[name], study(name, settings))
    ]


def study(dataset: str, settings: Settings) -> mg.Study:
    sizes = studies.SIZES[dataset]
    return mg.Study(
        studies.methods(settings, dataset, draws=16, points=64),
        {"noise": {}},
        sizes[2:] if settings.quick else sizes,
        metrics=studies.METRICS,
        **(
            studies.FEW if settings.quick else {"budget": studies.scaled(settings, studies.BUDGET), "attack_budget": 16}
        ),
    )


def make(settings: Settings) -> bool:
    note = "means over images whose prediction is kept, 95 % intervals; dotted: two seeds without noise"
    return studies.make("noise", parts, settings, "Random noise of the same length", note)
