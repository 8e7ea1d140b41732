"""The level of chance: how far the map of one image is from that of another, by each method's own maps.

No attack needs to go farther: there a map says no more of its image than of another. Noise, budget and metrics are
those of the fair test's judge; each image is compared with the next one of the seeded choice.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import moreaugrad as mg
from benchmarks.record import hardware
from paper import names
from paper.data import records
from paper.data.datasets import sample
from paper.report.summaries import CHANCE, GROUP, STATISTICS, statistics
from paper.settings import Settings

IMAGES = {"cifar10": 64, "tiny_imagenet": 24, "imagenet": 16}
QUICK = 2
COLUMNS = (*GROUP, "metric", "n", "counted", "undefined", *STATISTICS, "gradients", "device")


def make(settings: Settings, dataset: str, study: mg.Study) -> None:
    """Add the lines of one data set to chance.csv, where they are not there yet."""
    path = settings.out / "chance.csv"
    if not settings.restart and any(line["dataset"] == dataset for line in _read(path)):
        return
    count = QUICK if settings.quick else IMAGES[dataset]
    found, lines = sample(dataset, settings, max(2, count)), []
    for label in study.methods:
        maps = study.budgeted(label).make_judge(found.classifier).explain(found.x)
        shared: dict[str, Any] = {"dataset": dataset, "protocol": "fair", "method": label, "attack": "none"}
        shared |= {"epsilon": 0.0, "mode": CHANCE, "n": len(found.x), "gradients": int(maps.gradients.max())}
        shared["device"] = hardware(str(settings.place))
        for metric in names.COMPARED:
            values = mg.METRICS[metric](maps.map, maps.map.roll(-1, 0)).tolist()
            lines.append(shared | {"metric": metric} | statistics(values))
    # read again: a second run may have written another data set's lines in the meantime
    records.write(path, [line for line in _read(path) if line["dataset"] != dataset] + lines, COLUMNS)


def _read(path: Path) -> list[dict[str, str]]:
    return records.read(path) if path.is_file() else []
