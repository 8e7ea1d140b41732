"""The methods before and after the L2 top-k attack of the paper: top rows the original maps, below them the attacked.

The photos are the first of the seeded choice, not picked by looks. Each method is attacked by itself, so each sees an
image of its own; the prediction is the same for all of them. The picture shows the smallest attack, the table has all.
"""

from __future__ import annotations

from dataclasses import asdict

from paper import attacked
from paper.datasets import explained
from paper.settings import Settings
from paper.stamps import Stamp
from paper.tiles import Grid, Tile, head

EXAMPLE = "sparse_moreau"  # whose attacked image stands in the first column


def make(settings: Settings) -> bool:
    photos, sizes = attacked.photos(settings), attacked.sizes(settings)
    told = {"methods": attacked.METHODS, "epsilon": sizes, **asdict(attacked.plan(settings))}
    stamp = Stamp("attack", settings, told, [photos])
    if stamp.there():
        return True
    pairs = [attacked.pairs(settings, name, size) for size in sizes for name in attacked.METHODS]
    shown = [pair for pair in pairs if pair.epsilon == sizes[0]]
    example = next(pair for pair in shown if pair.method == EXAMPLE)
    rows: list[list[Tile]] = []
    names: list[str] = []
    for image in range(len(photos)):
        rows.append([Tile(photos.pixels[image]), *[Tile(pair.before[image]) for pair in shown]])
        after = [Tile(pair.after[image], attacked.words(pair, image)) for pair in shown]
        rows.append([Tile(attacked.pixels(example, image), "for Sparse MoreauGrad"), *after])
        names += [explained(photos, image), f"attacked, L2 norm {sizes[0]:g}"]
    lines = [attacked.line(pair, image) for image in range(len(photos)) for pair in pairs]
    heads = ["input", *map(head, attacked.METHODS)]
    stamp.store(
        lines, Grid(rows, heads, names, "Maps before and after the top-k attack", attacked.NOTE, side=192).draw()
    )
    return True
