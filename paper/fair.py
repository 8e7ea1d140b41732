"""The fair test: equal budgets, one level of noise, absolute maps, own predictions, the strongest of several attacks.

Every map that is judged costs 1,600 gradients where a method has a choice, every one inside an attack 64. MoreauGrad is
attacked along three derivatives, all methods also at the points that were found against the others; a map of 320
gradients with noise of its own names the strongest of these, and the judge sees that one.
"""

from __future__ import annotations

import moreaugrad as mg
from paper import studies
from paper.settings import Settings
from paper.studies import Part

IMAGES = {"cifar10": 256, "tiny_imagenet": 120, "imagenet": 48}
FULL = {"budget": studies.BUDGET, "scout": 320}  # gradients
QUICK = {"cifar10": 2, "tiny_imagenet": 2, "imagenet": 1}


def parts(settings: Settings) -> list[Part]:
    """By data set, a study for each shard of the images."""
    images = studies.counted(settings, IMAGES, QUICK)
    return [
        part for name in settings.datasets for part in studies.shards("fair", name, images[name], study(name, settings))
    ]


def study(dataset: str, settings: Settings) -> mg.Study:
    full = {name: studies.scaled(settings, count) for name, count in FULL.items()}
    unrolled, implicit = ("1x2", "1x2") if settings.quick else ("1x16", "4x16")
    return mg.Study(
        studies.methods(settings, dataset, draws=16, points=32, apart=studies.APART[dataset]),
        {"topk": {"steps": 1 if settings.quick else 4, "surrogate": None}},  # differences see the kinks themselves
        studies.SIZES[dataset][2:3] if settings.quick else studies.SIZES[dataset],
        modes=("frozen", f"unrolled:{unrolled}", f"implicit:{implicit}", "transfer"),
        metrics=studies.METRICS,
        **(studies.FEW | {"scout": 4} if settings.quick else full | {"attack_budget": min(64, full["budget"] // 8)}),
    )


def make(settings: Settings) -> bool:
    note = "means over images with a valid attack, 95 % intervals; dotted: two seeds without an attack"
    return studies.make("fair", parts, settings, "On equal terms: the strongest of several attacks", note)
