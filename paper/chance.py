"""The level of chance: how far the map of one image is from that of another, by each method's own maps.

No attack needs to go farther: there a map says no more of its image than of another. Noise, budget and metrics are
those of the fair test's judge; each image is set against the next one of the seeded choice.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import moreaugrad as mg
from paper import records
from paper.datasets import sample
from paper.settings import Settings
from paper.stamps import hardware
from paper.summaries import CHANCE, DRAWN, GROUP, STATISTICS, statistics

IMAGES = {"cifar10": 64, "tiny_imagenet": 24, "imagenet": 16}
QUICK = 2
COLUMNS = (*GROUP, "metric", "n", "counted", "undefined", *STATISTICS, "gradients", "device")


def make(settings: Settings, dataset: str, study: mg.Study) -> None:
    """Lines of chance.csv for one data set, where they are not there yet."""
    path = settings.out / "chance.csv"
    if not settings.restart and any(line["dataset"] == dataset for line in _known(path)):
        return
    count = QUICK if settings.quick else min(IMAGES[dataset], settings.images or IMAGES[dataset])
    found, lines = sample(dataset, settings, max(2, count)), []
    for label in study.methods:
        told = study.contender(label).judged(found.classifier).explain(found.x)
        shared: dict[str, Any] = {"dataset": dataset, "protocol": "fair", "method": label, "attack": "none"}
        shared |= {"epsilon": 0.0, "mode": CHANCE, "n": len(found.x), "gradients": int(told.gradients.max())}
        shared["device"] = hardware(settings.place)
        for metric in DRAWN:
            values = mg.METRICS[metric](told.map, told.map.roll(-1, 0)).tolist()
            lines.append(shared | {"metric": metric} | statistics(values))
    # Read again: another data set's lines may have been written by a second run in the meantime.
    records.write(path, [line for line in _known(path) if line["dataset"] != dataset] + lines, COLUMNS)


def _known(path: Path) -> list[dict[str, str]]:
    return records.read(path) if path.is_file() else []
