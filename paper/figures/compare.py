"""Methods side by side on the same photos, with what each costs.

The photos are the first of the seeded choice, not picked by looks. All explain the predicted class. A method that does
not support the network (DeepLIFT where activations are multiplied, as in EfficientNet-B0) leaves its place empty.
"""

from __future__ import annotations

import time

import torch

import moreaugrad as mg
from paper.data.datasets import Sample, sample
from paper.data.recipes import make_method
from paper.data.records import Line
from paper.figures.figure_cache import FigureCache
from paper.figures.sweep import format_share, measure_sparsity
from paper.report.tiles import Grid, Tile, make_heading
from paper.settings import Settings

BUDGETS = {  # gradients of a map
    "gradient": 1,
    "integrated_gradients": 50,
    "deeplift": 2,
    "smoothgrad": 800,
    "sparsified_smoothgrad": 800,
    "relex": 5000,
    "sparse_moreau": 1600,
    "group_sparse_moreau": 1600,
}
QUICK = 160  # at most
PHOTOS = 4
Maps = tuple[mg.Explanation, float] | str  # the maps and the seconds of one, or why there are none


def make(settings: Settings) -> bool:
    found = sample(settings.largest, settings, 1 if settings.quick else PHOTOS)
    budgets = {name: min(budget, QUICK) if settings.quick else budget for name, budget in BUDGETS.items()}
    cache = FigureCache("compare", settings, {"budgets": budgets}, [found])
    if cache.is_current():
        return True
    mg.Gradient(found.classifier).explain(found.x)  # prepares the network, so that no method is charged for it
    maps = {name: _explain(found, name, budget) for name, budget in budgets.items()}
    rows, lines = [], []
    for image in range(len(found)):
        mine = [_describe(found, image, name, each) for name, each in maps.items()]
        shown = [_make_tile(line, each, image) for line, each in zip(mine, maps.values(), strict=True)]
        rows.append([Tile(found.pixels[image]), *shown])
        lines += mine
    names = [found.title(image) for image in range(len(found))]
    headings = ["input", *map(make_heading, maps)]
    note = "Above a map: the share of its entries that are not zero, and its Gini index."
    cache.store(lines, Grid(rows, headings, names, "Interpretation methods on the same images", note, side=172).draw())
    return True


def _explain(found: Sample, name: str, budget: int) -> Maps:
    start = time.perf_counter()
    try:
        maps = make_method(name, found.classifier, budget).explain(found.x)
    except ValueError as error:
        return str(error)
    if found.x.is_cuda:
        torch.cuda.synchronize()
    return maps.cpu(), (time.perf_counter() - start) / len(found)


def _describe(found: Sample, image: int, name: str, made: Maps) -> Line:
    line: Line = {"dataset": found.name, "image": found.keys[image], "method": name}
    if isinstance(made, str):
        return line | {"note": made}
    maps, seconds = made
    one = maps[image]
    line |= {"class": found.class_name(one.target.item()), **measure_sparsity(one)}
    return line | {"gradients": int(one.gradients.item()), "seconds": seconds, "note": ""}


def _make_tile(line: Line, made: Maps, image: int) -> Tile:
    if isinstance(made, str):
        return Tile(None, "not for this network")
    zero = "all zero" if not line["nonzero_share"] else ""
    return Tile(made[0].map[image], zero or f"{format_share(line['nonzero_share'])}, Gini {line['gini']:.2f}")
