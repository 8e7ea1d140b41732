"""Measures of maps. A new one is one function in a file here and one line in `METRICS`.

Listing the table imports no torch; `METRICS[name](...)` returns one number per image. Maps are compared by size,
|map|, unless `signed=True`; NaN marks an image whose number is not defined.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import inf
from typing import Any, cast

from moreaugrad.registry import Entry, Table, unknown

# what a metric takes: (a, b) | maps | (maps, boxes) | (maps, x, model, target) | an explainer or its factory
NEEDS = ("pair", "map", "box", "model", "explainer")


@dataclass(frozen=True, slots=True, kw_only=True)
class Metric(Entry):
    """One metric: what it is called with, which values it can take, and which of them are better."""

    needs: str = "pair"
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

    def make_entry(self, member: Any, summary: str, **about: Any) -> Metric:
        if about.get("needs", NEEDS[0]) not in NEEDS:
            raise unknown("needs", about["needs"], list(NEEDS))
        return Metric(f"{member.__module__}:{member.__qualname__}", summary, member=member, **about)


_TABLE = (  # file, function, needs, direction, range, summary
    ("similarity", "normalised_distance", "pair", "lower", (0, 2), "Euclidean distance of two maps, each of norm 1"),
    ("similarity", "topk_intersection", "pair", "higher", (0, 1), "share of one map's top entries that the other has"),
    ("similarity", "ssim", "pair", "higher", (-1, 1), "structural similarity of two maps as pictures in [0, 1]"),
    ("similarity", "cosine", "pair", "higher", (-1, 1), "cosine of the angle between two maps"),
    ("similarity", "pearson", "pair", "higher", (-1, 1), "linear correlation of the entries of two maps"),
    ("similarity", "spearman", "pair", "higher", (-1, 1), "correlation of the ranks of the entries of two maps"),
    ("similarity", "kl_divergence", "pair", "lower", (0, inf), "relative entropy of two maps, each of sum 1"),
    ("similarity", "centre_shift", "pair", "lower", (0, inf), "pixels between the centres of mass of two maps"),
    ("sparsity", "nonzero_share", "map", "lower", (0, 1), "share of entries that are not zero"),
    ("sparsity", "gini", "map", "higher", (0, 1), "inequality of the entries: 0 all alike, 1 - 1/n one alone"),
    ("sparsity", "hoyer", "map", "higher", (0, 1), "sparseness by the ratio of the L1 to the L2 norm"),
    ("sparsity", "active_groups", "map", "lower", (0, 1), "share of groups that hold anything"),
    ("faithfulness", "insertion", "model", "higher", (0, 1), "probability while the map's pixels appear, averaged"),
    ("faithfulness", "deletion", "model", "lower", (0, 1), "probability while the map's pixels vanish, averaged"),
    ("localisation", "pointing_game", "box", "higher", (0, 1), "whether the largest place of the map is at the object"),
    ("localisation", "energy_in_box", "box", "higher", (0, 1), "share of the map that is on objects"),
    ("sensitivity", "local_lipschitz", "explainer", "lower", (0, inf), "most that maps change per change of the image"),
    ("sanity", "sanity_check", "explainer", "lower", (-1, 1), "similarity of the map to that of a random model"),
    ("sanity", "model_randomisation", "explainer", "lower", (-1, 1), "similarity of the map as layers become random"),
)
METRICS = Metrics(
    "metric",
    **{
        name: Metric(f"moreaugrad.metrics.{file}:{name}", summary, needs=needs, direction=direction, range=limits)
        for file, name, needs, direction, limits, summary in _TABLE
    },
)
