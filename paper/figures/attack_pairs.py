"""Maps before and after the L2 top-k attack of the paper, for the figures that show both.

Attack, maps and floor (what noise alone changes) use the streams of noise of a study. MoreauGrad's maps are
differentiated by the implicit function theorem. DeepLIFT and RelEx have no derivative to follow.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

import moreaugrad as mg
from moreaugrad.studies.setup import ATTACKED, JUDGE, SECOND, START, compare_maps
from paper import names
from paper.data.datasets import Sample, sample
from paper.data.recipes import make_method
from paper.data.records import Line
from paper.figures.figure_cache import FigureCache
from paper.report.tiles import Grid, Tile, make_heading
from paper.settings import Settings

METHODS = (
    *("gradient", "integrated_gradients", "smoothgrad", "sparsified_smoothgrad"),
    *("moreau", "sparse_moreau", "group_sparse_moreau"),
)
EXAMPLE = "sparse_moreau"  # whose attacked image stands in the first column
SIZES = {"cifar10": (1.0, 3.0), "tiny_imagenet": (3.0, 10.0), "imagenet": (3.0, 10.0)}  # L2, normalised input
NOTE = (
    "Each method is attacked by itself; the prediction is kept. Above an attacked map: its normalised distance to the "
    "original, and the share of the top entries that stay, both with noise that the attack has not seen."
)


@dataclass(frozen=True)
class Plan:
    """How much work is done for a map, and for an attack on it. Its fields are stored with the figure."""

    photos: int = 2
    steps: int = 10
    inside: int = 160  # gradients of a map in an attack
    judged: int = 800  # and of one that is shown
    slope: tuple[int, int] = (8, 16)  # steps and samples of the implicit derivative
    sizes: int = 2  # how many of SIZES
    apart: float = 2.0  # step of the finite-difference Hessian products, large enough to cross the kinks


PLAN = Plan()
QUICK = Plan(photos=1, steps=2, inside=16, judged=64, slope=(2, 8), sizes=1)


@dataclass(frozen=True, eq=False)
class Pair:
    """The maps of one method before and after an attack of one size."""

    photos: Sample
    method: str
    epsilon: float
    before: Tensor
    after: Tensor
    found: mg.AttackResult
    figures: dict[str, Tensor]  # by metric, one number per image; with floor_ the same for noise alone

    def caption(self, image: int) -> str:
        """What a picture says of one map."""
        if not bool(self.found.success[image] & self.found.kept[image]):
            return "no valid attack found"
        distance, overlap = (self.figures[name][image].item() for name in names.COMPARED[:2])
        return f"distance {distance:.2f}, top-k {overlap:.2f}"

    def pixels(self, image: int) -> NDArray[np.uint8]:
        """The attacked image as a picture."""
        model = self.photos.classifier
        values = self.found.x[image] * model.std + model.mean
        shown: NDArray[np.uint8] = (255 * values.clamp(0, 1)).round().byte().permute(1, 2, 0).cpu().numpy()
        return shown

    def describe(self, image: int) -> Line:
        """The line of a table for one map."""
        found = self.found
        return {
            "dataset": self.photos.name,
            "image": self.photos.keys[image],
            "class": self.photos.class_name(int(found.target[image])),
            "method": self.method,
            "epsilon": self.epsilon,
            "l2": found.l2[image].item(),
            "pixels_linf": None if found.pixels_linf is None else found.pixels_linf[image].item(),
            "success": bool(found.success[image]),
            "prediction_kept": bool(found.kept[image]),
            **{name: values[image].item() for name, values in self.figures.items()},
            "gradients": int(found.gradients[image]),
        }


def make_pairs(photos: Sample, name: str, sizes: Sequence[float], plan: Plan) -> list[Pair]:
    """Attack one method at each size; its clean maps are made once, by the judge and by a second one (the floor)."""
    model = photos.classifier
    attacked = replace(make_method(name, model, plan.inside, ATTACKED), hessian_step=plan.apart)
    if hasattr(attacked, "derivative"):
        attacked = replace(attacked, derivative=mg.Implicit(*plan.slope))
    judge, second = (make_method(name, model, plan.judged, seed) for seed in (JUDGE, SECOND))
    before = judge.explain(photos.x).map.cpu()
    other = second.explain(photos.x).map.cpu() if judge.random else before
    floor = {f"floor_{each}": value for each, value in compare_maps(names.COMPARED, before, other).items()}
    pairs = []
    for size in sizes:
        attack = mg.ATTACKS["topk"](attacked, epsilon=size, steps=plan.steps, surrogate=None, seed=START)
        found = attack.perturb(photos.x)
        after = judge.attribute(found.x, target=found.target).cpu()
        figures = compare_maps(names.COMPARED, before, after) | floor
        pairs.append(Pair(photos, name, size, before, after, found, figures))
    return pairs


@dataclass(frozen=True)
class AttackFigure:
    """Top rows: the original maps; below them the attacked. The picture shows the smallest attack, the table has all.

    The photos are the first of the seeded choice, not picked by looks. Each method is attacked by itself, so each sees
    an image of its own; the prediction is the same for all of them.
    """

    figure: str
    methods: Sequence[str]
    title: str
    side: int  # pixels of a tile
    single: bool = False  # one photo and one size

    def make(self, settings: Settings) -> bool:
        plan = QUICK if settings.quick else PLAN
        count, sizes = 1 if self.single else plan.photos, SIZES[settings.largest][: plan.sizes]
        sizes = sizes[:1] if self.single else sizes
        photos = sample(settings.largest, settings, count)
        epsilon = sizes[0] if self.single else sizes
        options = {"methods": self.methods, "epsilon": epsilon, **asdict(plan)}
        cache = FigureCache(self.figure, settings, options, [photos])
        if cache.is_current():
            return True
        by_method = [make_pairs(photos, name, sizes, plan) for name in self.methods]
        pairs = [pairs[place] for place in range(len(sizes)) for pairs in by_method]
        shown = pairs[: len(self.methods)]
        example = next(pair for pair in shown if pair.method == EXAMPLE)
        rows: list[list[Tile]] = []
        titles: list[str] = []
        for image in range(count):
            rows.append([Tile(photos.pixels[image]), *[Tile(pair.before[image]) for pair in shown]])
            after = [Tile(pair.after[image], pair.caption(image)) for pair in shown]
            rows.append([Tile(example.pixels(image), "for Sparse MoreauGrad"), *after])
            titles += [photos.title(image), f"attacked, L2 norm {sizes[0]:g}"]
        lines = [pair.describe(image) for image in range(count) for pair in pairs]
        headings = ["input", *map(make_heading, self.methods)]
        cache.store(lines, Grid(rows, headings, titles, self.title, NOTE, side=self.side).draw())
        return True
