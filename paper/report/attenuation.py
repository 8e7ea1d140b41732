"""What maps of few gradients say of maps of many: Spearman's correction for attenuation.

A map of N gradients is a mean plus noise whose square falls as 1/N. Two maps of one image with noise of their own have
the cosine r = 1/(1 + q), q the noise's square over the mean's, and the maps of two images c r, c the cosine of the
means. So two seeds tell r, and c follows from maps under attack; at M gradients q is N/M of what it is at N. It takes
the noise to be as large for both maps, and maps with signs.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from moreaugrad.studies.plan import FLOOR
from paper.data.records import number

SIGNED, FULL = "normalised_distance_signed", "normalised_distance_full"


def extrapolate(distance: float, floor: float, ratio: float) -> float:
    """The normalised distance of two maps of so many times the gradients.

    `distance`: of maps with noise of their own; `floor`: of two maps of one image; both between signed maps.
    """
    seeds = 1 - floor**2 / 2
    if not seeds > 0:
        return math.nan  # nothing but noise
    noise = (1 / seeds - 1) / ratio
    means = min((1 - distance**2 / 2) / seeds, 1.0)
    return math.sqrt(2 * (1 - means / (1 + noise)))


def extrapolate_rows(rows: Sequence[Mapping[str, str]], ratio: float, metric: str = SIGNED) -> list[dict[str, str]]:
    """Rows of a study with fresh noise, with the distances that so many times the gradients would give."""
    floors = {(row["method"], row["key"]): number(row[metric]) for row in rows if row["mode"] == FLOOR}
    found = []
    for row in rows:
        value = extrapolate(number(row[metric]), floors[row["method"], row["key"]], ratio)
        found.append({**row, metric: "" if math.isnan(value) else str(value)})
    return found
