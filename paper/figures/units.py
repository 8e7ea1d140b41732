"""The published protocol in the units of the paper's networks: step by step, and as curves beside the published ones.

A norm, rho and eta mean what a paper means only where inputs are normalised as there. The paper's ImageNet network takes
inputs divided by ImageNet's standard deviation, EfficientNet-Lite0 such divided by about twice that. The steps go from
the protocol in our units to the authors' own: the units, a network without kinks, the objective of their attack.

The budgets are for a CPU: photos at 128 pixels, few gradients, and the same noise for both maps, for with fresh noise
a few hundred gradients would show little but their own noise, which is measured beside ("floor").
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import moreaugrad as mg
from moreaugrad.models.classifier import ViewChange
from moreaugrad.models.custom import as_classifier
from moreaugrad.studies.plan import FLOOR, STRONGEST
from paper import names
from paper.data import records
from paper.data.recipes import LEVEL
from paper.data.records import Line
from paper.figures import study_runs
from paper.figures.study_runs import Part, Row
from paper.report import summaries
from paper.settings import Settings

DATASETS = ("imagenet", "tiny_imagenet")  # of CIFAR-10 the network has the units of the published experiments
OURS, PAPER = 0.502, 0.226  # what inputs are divided by: EfficientNet-Lite0's, and ImageNet's mean over channels
LARGER, SMALLER, MIDDLE = (10.0, 20.0), (1.0, 3.0), (10.0,)
PUBLISHED_SIDE = {"tiny_imagenet": 128, "imagenet": 224}  # pixels of the images that the norms are taken to be for
STEP_SIDE = 128  # of the images of the steps
IMAGES, QUICK_IMAGES, QUICK_SIDE = 6, 1, 32
DRAWS, COUNTS, QUICK_COUNTS = 8, (192, 24), (8, 4)  # noise vectors per step; gradients of a judged map, inside an attack


@dataclass(frozen=True)
class Step:
    """What a step has of the paper's."""

    title: str
    units: bool = True
    smooth: bool = True  # a softplus copy of the network, with the second derivatives that it then has
    noise_free: bool = True  # the attack's objective


STEPS = {  # each adds one thing to the one before
    "ours": Step("our units", units=False, smooth=False, noise_free=False),
    "paper": Step("the paper's units", smooth=False, noise_free=False),
    "smooth": Step("and a network without kinks", noise_free=False),
    "authors": Step("and the authors' objective"),
}
CURVE = "curve"
CURVES = Step("the paper's units and the authors' objective", smooth=False)  # on the network as it is, at full size
# what is measured, the most telling first: step, method, norms in the paper's units
PLAN = (
    *((step, "moreau", MIDDLE) for step in ("ours", "paper")),
    (CURVE, "moreau", LARGER),
    *((step, "moreau", MIDDLE) for step in ("authors", "smooth")),
    (CURVE, "sparse_moreau", LARGER),
    (CURVE, "moreau", SMALLER),
    (CURVE, "sparse_moreau", SMALLER),
)
COLUMNS = (*summaries.COLUMNS[:2], "step", *summaries.COLUMNS[2:], "published")
TITLE = "The published protocol in the paper's units"


@dataclass(frozen=True)
class Network:
    """What is made of a loaded network before a study: another input size, a smooth copy, the paper's units."""

    side: int
    step: Step

    def __str__(self) -> str:
        units, kinks = "the paper's units" if self.step.units else "its own units", "softplus" * self.step.smooth
        return ", ".join(filter(None, (f"{self.side} pixels", units, kinks)))

    def __call__(self, classifier: Any) -> Any:
        found = as_classifier(classifier, name=classifier.name, change=ViewChange(size=self.side))
        found = mg.with_softplus(found) if self.step.smooth else found
        return mg.to_units(found) if self.step.units else found


def make_parts(settings: Settings) -> list[Part]:
    """Studies by step, method and data set, in the order in which they are worth measuring."""
    found = []
    images = range(QUICK_IMAGES if settings.quick else IMAGES)
    for name, label, norms in PLAN:
        step = STEPS.get(name, CURVES)
        for dataset in (each for each in DATASETS if each in settings.datasets):
            side = PUBLISHED_SIDE[dataset] if name == CURVE else STEP_SIDE
            study = make_study(dataset, step, label, tuple(norms), side, settings)
            change = Network(QUICK_SIDE if settings.quick else side, step)
            called = f"published_units_{name}_{label}" + "_small" * (norms == SMALLER)
            found.append(Part(called, dataset, 1, images, study, change))
    return found


def make_study(
    dataset: str, step: Step, label: str, norms: tuple[float, ...], side: int, settings: Settings
) -> mg.Study:
    """The attack of the published protocol; what has units of length or gradient follows the size of the images."""
    shrunk = side / PUBLISHED_SIDE[dataset]  # how much shorter the same change of every pixel is
    options: dict[str, Any] = {"smoothing": mg.Smoothing(LEVEL, samples=2 if settings.quick else DRAWS)}
    # the score is the same after that change, so entries of the gradient, and eta, grow by the square of it
    options |= {"method": label, "rho": shrunk**2}
    if label == "sparse_moreau":
        options["eta"] = study_runs.ETA / shrunk**2
    if not step.smooth:  # the same step whatever its units
        options["hessian_step"] = shrunk * study_runs.HESSIAN_STEP[dataset] * (OURS / PAPER if step.units else 1)
    attack = {"rule": "sign", "steps": 1 if settings.quick else 10, "surrogate": None}
    budgets = dict(zip(study_runs.FEW, QUICK_COUNTS if settings.quick else COUNTS, strict=True))
    return mg.Study(
        {label: options},
        {"topk": attack | ({"noise_free": True} if step.noise_free else {})},
        tuple(shrunk * norm for norm in norms),
        modes=("frozen",),
        metrics=(*names.COMPARED, *study_runs.FLAGGED),
        **budgets,
    )


def make(settings: Settings) -> bool:
    """Run or resume the studies, then write units.csv and units.png of the rows that are there."""
    parts = make_parts(settings)
    done = study_runs.run(parts, settings)
    return done
