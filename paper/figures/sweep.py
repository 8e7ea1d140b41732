"""Maps of a few images for several values of one parameter: the rows, the columns and the numbers behind each map.

The images are the first of the seeded choice, not picked by looks.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import moreaugrad as mg
from paper.data.datasets import Sample, sample_each
from paper.data.records import Line
from paper.figures.figure_cache import FigureCache
from paper.report.tiles import Grid, Tile
from paper.settings import Settings

Solve = Callable[[Sample], list[mg.Explanation]]  # a map of each image for each value


@dataclass(frozen=True, eq=False)
class Sweep:
    """A figure: the values of a parameter, what makes a map for each of them, and what is said of a map."""

    figure: str
    symbol: str
    values: Sequence[float]
    solve: Solve
    caption: Callable[[Line], str]  # above a map
    title: str
    note: str
    headings: Mapping[float, str] = field(default_factory=dict)  # of columns, where the value alone will not do
    extra: Callable[[mg.Explanation, float], Line] = lambda found, value: {}  # further columns of a map
    options: Mapping[str, Any] = field(default_factory=dict)  # what else the maps depend on
    again: tuple[str, Solve] | None = None  # the first image once more, solved another way

    def make(self, settings: Settings) -> bool:
        samples = sample_each(settings)
        cache = FigureCache(self.figure, settings, {self.symbol: list(self.values), **self.options}, samples)
        if cache.is_current():
            return True
        solved = [("", sample, self.solve(sample)) for sample in samples]
        if self.again is not None:
            way, solve = self.again
            solved.append((way, samples[0].first, solve(samples[0].first)))
        rows: list[list[Tile]] = []
        names: list[str] = []
        lines: list[Line] = []
        for way, sample, found in solved:
            maps = [each.cpu() for each in found]
            for image in range(len(sample)):
                mine = [{"way": way, **line} for line in self._describe(sample, image, [each[image] for each in maps])]
                shown = [Tile(each.map[image], self.caption(line)) for each, line in zip(maps, mine, strict=True)]
                rows.append([Tile(sample.pixels[image]), *shown])
                names.append(" ".join(filter(None, (sample.title(image), way))))
                lines += mine
        headings = ["input", *[self.headings.get(value, f"{self.symbol} = {value:g}") for value in self.values]]
        cache.store(lines, Grid(rows, headings, names, self.title, self.note).draw())
        return True

    def _describe(self, sample: Sample, image: int, maps: list[mg.Explanation]) -> list[Line]:
        first, distance = maps[0], mg.METRICS["normalised_distance"]
        found = []
        for before, each, value in zip([first, *maps], maps, self.values, strict=False):
            size = float(each.map.norm())
            residual = None if each.residual is None else each.residual.item()
            line = {
                "dataset": sample.name,
                "image": sample.keys[image],
                "class": sample.class_name(each.target.item()),
                self.symbol: value,
                **measure_sparsity(each),
                "map_norm": size,
                "distance_to_first": distance(first.map, each.map).item(),
                "distance_to_previous": distance(before.map, each.map).item(),
                "residual": residual,
                "relative_residual": None if residual is None or not size else residual / size,
                "converged": None if each.converged is None else bool(each.converged.item()),
                "gradients": int(each.gradients.item()),
                "score": each.score.item(),
                "objective": None if each.envelope is None else each.envelope.item(),
            }
            found.append(line | self.extra(each, value))
        return found


def measure_sparsity(found: mg.Explanation) -> Line:
    """How few entries and pixels carry the map of one image."""
    return {
        "nonzero_share": found.kept.item(),
        "pixels_share": found.pixels_kept.item(),
        "gini": mg.METRICS["gini"](found.map).item(),
    }


def format_share(value: float) -> str:
    """A share in per cent: two digits, three near all."""
    return f"{100 * value:.3g} %" if value > 0.95 else f"{100 * value:.2g} %"


@dataclass(frozen=True, eq=False)
class EtaSweep:
    """A sweep over eta from 0 (vanilla MoreauGrad) up; one solve gives the whole path.

    `sweep` holds the other fields of `Sweep`.
    """

    etas: Sequence[float]
    published: float  # the eta of the paper
    make_method: Callable[[Any, list[float], int], Any]  # model, etas, budget
    sweep: Mapping[str, Any]
    budget: int = 1600  # gradients of a map
    quick: int = 160

    def make(self, settings: Settings) -> bool:
        budget = self.quick if settings.quick else self.budget

        def solve(sample: Sample) -> list[mg.Explanation]:
            maps: list[mg.Explanation] = self.make_method(sample.classifier, list(self.etas), budget).explain(sample.x)
            return maps

        headings = {0.0: "eta = 0: MoreauGrad", self.published: f"eta = {self.published}, as published"}
        options = {"rho": 1.0, "noise_level": 0.1, **self.sweep.get("options", {}), "budget": budget}
        fields = {**self.sweep, "headings": headings, "options": options}
        return Sweep(symbol="eta", values=self.etas, solve=solve, **fields).make(settings)
