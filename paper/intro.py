"""One photo: Sparse MoreauGrad and the gradient methods before and after the same kind of attack.

The photo is the first of the seeded choice, not picked by looks; maps and attacks are made as in the figure `attack`.
"""

from __future__ import annotations

from dataclasses import asdict

from paper import attacked
from paper.datasets import explained
from paper.settings import Settings
from paper.stamps import Stamp
from paper.tiles import Grid, Tile, head

METHODS = ("gradient", "integrated_gradients", "smoothgrad", "sparse_moreau")


def make(settings: Settings) -> bool:
    photos, size = attacked.photos(settings, 1), attacked.sizes(settings)[0]
    stamp = Stamp("intro", settings, {"methods": METHODS, "epsilon": size, **asdict(attacked.plan(settings))}, [photos])
    if stamp.there():
        return True
    pairs = [attacked.pairs(settings, name, size, 1) for name in METHODS]
    shown = pairs[-1]
    before = [Tile(photos.pixels[0]), *[Tile(pair.before[0]) for pair in pairs]]
    after = [Tile(attacked.pixels(shown, 0), "for Sparse MoreauGrad")]
    after += [Tile(pair.after[0], attacked.words(pair, 0)) for pair in pairs]
    names = [explained(photos, 0), f"attacked, L2 norm {size:g}"]
    title = "Gradient maps and Sparse MoreauGrad before and after an attack"
    heads = ["input", *map(head, METHODS)]
    grid = Grid([before, after], heads, names, title, attacked.NOTE, side=300)
    stamp.store([attacked.line(pair, 0) for pair in pairs], grid.draw())
    return True
