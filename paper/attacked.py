"""Maps before and after the L2 top-k attack of the paper, for the figures that show both.

An attack sees noise of its own; the maps are judged with other noise, the same before and after, and once more with a
third (the floor: what noise alone changes). MoreauGrad's maps are differentiated by the implicit function theorem.
DeepLIFT and RelEx have no derivative to follow and are not among the methods.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

import moreaugrad as mg
from paper.datasets import Sample, class_name, sample
from paper.recipes import method
from paper.settings import Settings

METHODS = (
    "gradient",
    "integrated_gradients",
    "smoothgrad",
    "sparsified_smoothgrad",
    "moreau",
    "sparse_moreau",
    "group_sparse_moreau",
)
SIZES = {"cifar10": (1.0, 3.0), "tiny_imagenet": (3.0, 10.0), "imagenet": (3.0, 10.0)}  # L2, normalised input
ATTACKED, JUDGE, SECOND, START = range(4)  # seeds of noise that never meet
COMPARED = ("normalised_distance", "topk_intersection", "ssim")

NOTE = (
    "Each method is attacked by itself; the prediction is kept. Above an attacked map: its normalised distance to the "
    "original, and the share of the top entries that stay, both with noise that the attack has not seen."
)


@dataclass(frozen=True)
class Plan:
    """How much work is done for a map, and for an attack on it."""

    photos: int = 2
    steps: int = 10
    inside: int = 160  # gradients of a map in an attack
    judged: int = 800  # and of one that is shown
    slope: tuple[int, int] = (8, 16)  # steps and samples of the implicit derivative
    sizes: int = 2  # how many of SIZES
    apart: float = 2.0  # gradients whose difference is a second derivative: it sees the kinks between them


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
    figures: dict[str, Tensor]  # by name, one number per image; with floor_ the same for noise alone


def plan(settings: Settings) -> Plan:
    return QUICK if settings.quick else PLAN


def photos(settings: Settings, count: int | None = None) -> Sample:
    return sample(settings.largest, settings, count or plan(settings).photos)


def sizes(settings: Settings) -> tuple[float, ...]:
    return SIZES[settings.largest][: plan(settings).sizes]


def pairs(settings: Settings, name: str, epsilon: float, count: int | None = None) -> Pair:
    """Of the first `count` photos, or all of the plan; made once in a process."""
    return _pairs(_Same(settings), name, epsilon, count or plan(settings).photos)


@dataclass(frozen=True)
class _Same:
    """Settings that compare by what maps depend on, so that a result can be kept."""

    settings: Settings

    def _key(self) -> tuple[Any, ...]:
        told = self.settings
        models, weights = (tuple(sorted(each.items())) for each in (told.models, told.weights))
        return told.data, told.quick, told.place, models, weights, told.datasets

    def __hash__(self) -> int:
        return hash(self._key())

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Same) and self._key() == other._key()


@lru_cache(maxsize=32)
def _pairs(same: _Same, name: str, epsilon: float, count: int) -> Pair:
    found, told = photos(same.settings, count), plan(same.settings)
    victim = replace(method(name, found.classifier, told.inside, ATTACKED), apart=told.apart)
    if hasattr(victim, "grad_mode"):
        victim = replace(victim, grad_mode=mg.Slope("implicit", *told.slope))
    attack = mg.ATTACKS["topk"](victim, epsilon=epsilon, steps=told.steps, surrogate=None, seed=START)
    hit = attack.perturb(found.x)
    before, other = _clean(same, name, count)
    after = method(name, found.classifier, told.judged, JUDGE).attribute(hit.x, target=hit.target).cpu()
    figures = {each: mg.METRICS[each](before, after) for each in COMPARED}
    figures |= {f"floor_{each}": mg.METRICS[each](before, other) for each in COMPARED}
    return Pair(found, name, epsilon, before, after, hit, figures)


@lru_cache(maxsize=32)
def _clean(same: _Same, name: str, count: int) -> tuple[Tensor, Tensor]:
    """The maps of the images themselves, by the judge and by a second one with other noise."""
    found, told = photos(same.settings, count), plan(same.settings)
    judge, second = (method(name, found.classifier, told.judged, seed) for seed in (JUDGE, SECOND))
    before = judge.explain(found.x).map.cpu()
    return before, second.explain(found.x).map.cpu() if judge.random else before


def words(pair: Pair, image: int) -> str:
    """What a picture says of one map."""
    if not bool(pair.found.success[image] & pair.found.kept[image]):
        return "no valid attack found"
    distance, overlap = (pair.figures[name][image].item() for name in COMPARED[:2])
    return f"distance {distance:.2f}, top-k {overlap:.2f}"


def pixels(pair: Pair, image: int) -> NDArray[np.uint8]:
    """The attacked image as a picture."""
    model = pair.photos.classifier
    values = pair.found.x[image] * model.std + model.mean
    shown: NDArray[np.uint8] = (255 * values.clamp(0, 1)).round().byte().permute(1, 2, 0).cpu().numpy()
    return shown


def line(pair: Pair, image: int) -> dict[str, Any]:
    """What the table says of one map."""
    found, hit = pair.photos, pair.found
    return {
        "dataset": found.name,
        "image": found.keys[image],
        "class": class_name(found, int(hit.target[image])),
        "method": pair.method,
        "epsilon": pair.epsilon,
        "l2": hit.l2[image].item(),
        "pixels_linf": None if hit.pixels_linf is None else hit.pixels_linf[image].item(),
        "success": bool(hit.success[image]),
        "prediction_kept": bool(hit.kept[image]),
        **{name: values[image].item() for name, values in pair.figures.items()},
        "gradients": int(hit.gradients[image]),
    }
