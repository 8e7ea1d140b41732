"""Eight methods side by side on the same photos, with what each costs.

The photos are the first of the seeded choice, not picked by looks. All explain the predicted class. A method that does
not serve the network (DeepLIFT where activations are multiplied, as in EfficientNet-B0) leaves its place empty.
"""

from __future__ import annotations

import time
from typing import Any

import torch

import moreaugrad as mg
from paper.datasets import Sample, class_name, explained, sample
from paper.recipes import method
from paper.settings import Settings
from paper.stamps import Stamp
from paper.sweep import Line, share, sparsity
from paper.tiles import Grid, Tile, head

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


def make(settings: Settings) -> bool:
    found = sample(settings.largest, settings, 1 if settings.quick else PHOTOS)
    budgets = {name: min(budget, QUICK) if settings.quick else budget for name, budget in BUDGETS.items()}
    stamp = Stamp("compare", settings, {"budgets": budgets}, [found])
    if stamp.there():
        return True
    mg.Gradient(found.classifier).explain(
        found.x
    )  # the first call sets the network up, and no method should pay for it
    maps = {name: _explained(found, name, budget) for name, budget in budgets.items()}
    rows, lines = [], []
    for image in range(len(found)):
        mine = [_line(found, image, name, each) for name, each in maps.items()]
        tiles = [_tile(line, each, image) for line, each in zip(mine, maps.values(), strict=True)]
        rows.append([Tile(found.pixels[image]), *tiles])
        lines += mine
    names = [explained(found, image) for image in range(len(found))]
    heads = ["input", *map(head, maps)]
    note = "Above a map: the share of its entries that are not zero, and its Gini index."
    stamp.store(lines, Grid(rows, heads, names, "Interpretation methods on the same images", note, side=172).draw())
    return True


def _explained(found: Sample, name: str, budget: int) -> tuple[Any, float] | str:
    """The maps and the seconds of one, or why there are none."""
    start = time.perf_counter()
    try:
        maps = method(name, found.classifier, budget).explain(found.x)
    except ValueError as error:
        return str(error)
    if found.x.is_cuda:
        torch.cuda.synchronize()
    return maps.cpu(), (time.perf_counter() - start) / len(found)


def _line(found: Sample, image: int, name: str, made: tuple[Any, float] | str) -> Line:
    line: Line = {"dataset": found.name, "image": found.keys[image], "method": name}
    if isinstance(made, str):
        return line | {"note": made}
    maps, seconds = made
    one = maps[image]
    line |= {"class": class_name(found, one.target.item()), **sparsity(one)}
    return line | {"gradients": int(one.gradients.item()), "seconds": seconds, "note": ""}


def _tile(line: Line, made: tuple[Any, float] | str, image: int) -> Tile:
    if isinstance(made, str):
        return Tile(None, "not for this network")
    told = f"{share(line['nonzero_share'])}, Gini {line['gini']:.2f}" if line["nonzero_share"] else "all zero"
    return Tile(made[0].map[image], told)
