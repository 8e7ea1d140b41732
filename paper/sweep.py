"""Maps of a few images for several values of one parameter: the rows, the columns and the numbers behind each map."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import moreaugrad as mg
from paper.datasets import Sample, class_name, explained, some_of_each
from paper.settings import Settings
from paper.stamps import Stamp
from paper.tiles import Grid, Tile

Line = dict[str, Any]


@dataclass(frozen=True, eq=False)
class Row:
    """One image: its name, its tiles, and the numbers behind its maps."""

    name: str
    tiles: Sequence[Tile]
    lines: Sequence[Line]


@dataclass(frozen=True, eq=False)
class Sweep:
    """A figure: the values of a parameter, who makes a map for each of them, and what is told of a map."""

    figure: str
    symbol: str
    values: Sequence[float]
    solve: Callable[[Sample], list[mg.Explanation]]
    words: Callable[[Line], str]  # above a map
    title: str
    note: str
    heads: Mapping[float, str] = field(default_factory=dict)  # of columns, where the value alone will not do
    more: Callable[[mg.Explanation, float], Line] = lambda found, value: {}  # further figures of a map
    told: Mapping[str, Any] = field(default_factory=dict)  # what else the maps depend on
    again: tuple[str, Callable[[Sample], list[mg.Explanation]]] | None = None  # the first image in another way

    def make(self, settings: Settings) -> bool:
        samples = some_of_each(settings)
        stamp = Stamp(self.figure, settings, {self.symbol: list(self.values), **self.told}, samples)
        if stamp.there():
            return True
        rows = [row for sample in samples for row in self._rows(sample, self.solve)]
        if self.again is not None:
            rows += self._rows(samples[0].first, self.again[1], self.again[0])
        heads = ["input", *[self.heads.get(value, f"{self.symbol} = {value:g}") for value in self.values]]
        grid = Grid([row.tiles for row in rows], heads, [row.name for row in rows], self.title, self.note)
        stamp.store([line for row in rows for line in row.lines], grid.draw())
        return True

    def _rows(self, sample: Sample, solve: Callable[[Sample], list[mg.Explanation]], way: str = "") -> list[Row]:
        """The rows of a sample's images; `way` names the way in which they are solved, where there are two."""
        maps = [found.cpu() for found in solve(sample)]
        rows = []
        for image in range(len(sample)):
            lines = [{"way": way, **line} for line in self._lines(sample, image, [each[image] for each in maps])]
            tiles = [Tile(each.map[image], self.words(line)) for each, line in zip(maps, lines, strict=True)]
            name = " ".join(filter(None, (explained(sample, image), way)))
            rows.append(Row(name, [Tile(sample.pixels[image]), *tiles], lines))
        return rows

    def _lines(self, sample: Sample, image: int, maps: list[mg.Explanation]) -> list[Line]:
        first, distance = maps[0], mg.METRICS["normalised_distance"]
        found = []
        for before, each, value in zip([first, *maps], maps, self.values, strict=False):
            size = float(each.map.norm())
            residual = None if each.residual is None else each.residual.item()
            line = {
                "dataset": sample.name,
                "image": sample.keys[image],
                "class": class_name(sample, each.target.item()),
                self.symbol: value,
                **sparsity(each),
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
            found.append(line | self.more(each, value))
        return found


def sparsity(found: mg.Explanation) -> Line:
    """How few entries and pixels carry the map of one image."""
    return {
        "nonzero_share": found.kept.item(),
        "pixels_share": found.pixels_kept.item(),
        "gini": mg.METRICS["gini"](found.map).item(),
    }


def share(value: float) -> str:
    """A share in per cent: two digits, three near all."""
    return f"{100 * value:.3g} %" if value > 0.95 else f"{100 * value:.2g} %"
