"""Measures of maps. A new one is one function in a file here and one line in `METRICS`.

Listing the table imports no torch; `METRICS[name](...)` returns one number per image. Maps are compared by size,
|map|, unless `signed=True`; NaN marks an image whose number is not defined.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import inf
from typing import cast

from moreaugrad.registry import Entry, Table


@dataclass(frozen=True, slots=True, kw_only=True)
class Metric(Entry):
    """One metric: what it is called with, which values it can take, and which of them are better."""

    needs: str = "pair"  # pair (a, b) | map | box (map, boxes) | model (map, x, model, target) | explainer
    direction: str | None = None  # "lower" or "higher" is more robust, sparser, more faithful; None: neither
    range: tuple[float, float] = (-inf, inf)

    @property
    def needs_explainer(self) -> bool:
        """Whether it makes maps itself; the others take given maps."""
        return self.needs == "explainer"


class Metrics(Table):
    """A table whose entries know their direction."""

    def __getitem__(self, name: str) -> Metric:
        return cast(Metric, super().__getitem__(name))


def _metric(path: str, summary: str, direction: str, low: float, high: float, needs: str = "pair") -> Metric:
    return Metric(f"moreaugrad.metrics.{path}", summary, direction=direction, range=(low, high), needs=needs)


METRICS = Metrics(
    "metric",
    normalised_distance=_metric(
        "similarity:normalised_distance", "Euclidean distance of two maps, each divided by its norm", "lower", 0, 2
    ),
    topk_intersection=_metric(
        "similarity:topk_intersection", "share of the top entries of one map that the other keeps", "higher", 0, 1
    ),
    ssim=_metric("structure:ssim", "structural similarity of two maps as pictures in [0, 1]", "higher", -1, 1),
    cosine=_metric("similarity:cosine", "cosine of the angle between two maps", "higher", -1, 1),
    pearson=_metric("similarity:pearson", "linear correlation of the entries of two maps", "higher", -1, 1),
    spearman=_metric("similarity:spearman", "correlation of the ranks of the entries of two maps", "higher", -1, 1),
    kl_divergence=_metric(
        "similarity:kl_divergence", "relative entropy of two maps that are made to sum to 1", "lower", 0, inf
    ),
    centre_shift=_metric("structure:centre_shift", "pixels between the centres of mass of two maps", "lower", 0, inf),
    nonzero_share=_metric("sparsity:nonzero_share", "share of entries that are not zero", "lower", 0, 1, "map"),
    gini=_metric("sparsity:gini", "inequality of the entries: 0 all alike, 1 - 1/n one alone", "higher", 0, 1, "map"),
    hoyer=_metric("sparsity:hoyer", "sparseness by the ratio of the L1 to the L2 norm", "higher", 0, 1, "map"),
    active_groups=_metric("sparsity:active_groups", "share of groups that hold anything", "lower", 0, 1, "map"),
    insertion=_metric(
        "faithfulness:insertion", "probability while the pixels of the map appear, averaged", "higher", 0, 1, "model"
    ),
    deletion=_metric(
        "faithfulness:deletion", "probability while the pixels of the map vanish, averaged", "lower", 0, 1, "model"
    ),
    pointing_game=_metric(
        "localisation:pointing_game", "whether the largest place of the map is at the object", "higher", 0, 1, "box"
    ),
    energy_in_box=_metric("localisation:energy_in_box", "share of the map that is on objects", "higher", 0, 1, "box"),
    local_lipschitz=_metric(
        "sensitivity:local_lipschitz", "most that maps change per change of the image", "lower", 0, inf, "explainer"
    ),
    sanity_check=_metric(
        "sanity:sanity_check", "similarity of the map to that of a model of random weights", "lower", -1, 1, "explainer"
    ),
    model_randomisation=_metric(
        "sanity:model_randomisation",
        "similarity of the map as layers are made random, one by one; a number per image and layer",
        "lower", -1, 1, "explainer",
    ),
)  # fmt: skip
