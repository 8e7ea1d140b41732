"""The fair test: equal budgets, one level of noise, absolute maps, own predictions, the strongest of several attacks.

Every map that is judged costs 1,600 gradients where a method has a choice, every one inside an attack 64. MoreauGrad is
attacked along three derivatives, all methods also at the points that were found against the others; a map of 320
gradients with noise of its own names the strongest of these, and the judge sees that one. At the larger norms a second
attack with more steps, by the signs of the slope, goes through the same.
"""

from __future__ import annotations

from dataclasses import replace

import moreaugrad as mg
from paper import chance, curves, jumps, records, studies
from paper.settings import DATASETS, Settings
from paper.stronger import PAIRED, WAY, paired, stronger, way
from paper.studies import Part

IMAGES = {"cifar10": 256, "tiny_imagenet": 120, "imagenet": 48}
FULL = {"budget": studies.BUDGET, "scout": 320}  # gradients
QUICK = {"cifar10": 2, "tiny_imagenet": 1, "imagenet": 1}
UNROLLED, IMPLICIT = ("1x16", "4x16")
MODES = ("frozen", f"unrolled:{UNROLLED}", f"implicit:{IMPLICIT}", "transfer")
SIGNS = (f"implicit:{IMPLICIT}", "transfer")


def parts(settings: Settings, signs: bool = False) -> list[Part]:
    """By data set, a study for each shard of the images."""
    images, name = studies.counted(settings, IMAGES, QUICK), "fair_sign" if signs else "fair"
    return [
        part
        for dataset in settings.datasets
        for part in studies.shards(name, dataset, images[dataset], study(dataset, settings, signs))
    ]


def study(dataset: str, settings: Settings, signs: bool = False) -> mg.Study:
    full = {name: studies.scaled(settings, count) for name, count in FULL.items()}
    modes, steps, sizes = (SIGNS, 10, studies.SIZES[dataset][2:]) if signs else (MODES, 4, studies.SIZES[dataset])
    options = {"steps": 1 if settings.quick else steps, "surrogate": None}  # differences see the kinks themselves
    return mg.Study(
        studies.methods(settings, dataset, draws=16, points=32, apart=studies.APART[dataset]),
        {"topk": options | ({"rule": "sign"} if signs else {})},
        studies.SIZES[dataset][2:3] if settings.quick else sizes,
        modes=tuple(_small(mode) for mode in modes) if settings.quick else modes,
        metrics=studies.METRICS,
        **(studies.FEW | {"scout": 4} if settings.quick else full | {"attack_budget": min(64, full["budget"] // 8)}),
    )


def _small(mode: str) -> str:
    """With the least steps and samples."""
    name, colon, _ = mode.partition(":")
    return f"{name}:1x2" if colon else name


def make(settings: Settings) -> bool:
    """Goes on with the studies, then fair.csv, fair.png and paired.csv of what is there."""
    done = studies.run(parts(settings), settings) and studies.run(parts(settings, signs=True), settings)
    if done and not settings.redraw:
        with studies.ready(settings.datasets, settings):
            for name in settings.datasets:
                chance.make(settings, name, study(name, settings))
    everywhere = replace(settings, datasets=DATASETS)
    second = studies.rows(parts(everywhere, signs=True), settings)
    rows = {
        name: stronger(some, second.get(name, ())) for name, some in studies.rows(parts(everywhere), settings).items()
    }
    if not rows:
        return done
    lines = [line for name, some in rows.items() for line in curves.summarise(some, name, "fair")]
    if (settings.out / "chance.csv").is_file():
        levels = [line for line in records.read(settings.out / "chance.csv") if line["dataset"] in rows]
        lines += levels
        ways = [line for name, some in rows.items() for line in way(some, levels, name)]
        records.write(settings.out / "way.csv", ways, WAY)
    curves.write(settings.out / "fair.csv", lines)
    seeds = [line for name, some in rows.items() for line in jumps.floors(some, name)]
    records.write(settings.out / "fair_floors.csv", seeds, jumps.FLOORS)
    records.write(
        settings.out / "paired.csv", [line for name, some in rows.items() for line in paired(some, name)], PAIRED
    )
    note = (
        "means over images with a valid attack, 95 % intervals; dotted: two seeds, no attack; triangles: another image"
    )
    curves.draw(lines, settings.out / "fair.png", title="On equal terms: the strongest of several attacks", note=note)
    return done
