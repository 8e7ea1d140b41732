"""The published protocol in the units of the paper's networks: step by step, and as curves beside the published ones.

A norm, rho and eta mean what a paper means only where inputs are normalised as there. The paper's ImageNet network
takes inputs divided by ImageNet's standard deviation, EfficientNet-Lite0 such divided by about twice that. The steps go
from the protocol in our units to the authors' own: the units, a network without kinks, the objective of their attack.

A large GPU takes images of the published size. The budgets for a CPU are photos at 128 pixels, and a few hundred
gradients for a map, most of whose distance is their own noise. What the authors' budget would give follows from these
and from two seeds (`paper.report.attenuation`).
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import product
from typing import Any

import moreaugrad as mg
from moreaugrad.models.classifier import ViewChange
from moreaugrad.models.custom import as_classifier
from moreaugrad.studies.plan import STRONGEST
from paper import names
from paper.data import records
from paper.data.recipes import LEVEL
from paper.data.records import Line
from paper.figures import robustness, study_runs
from paper.figures.study_runs import Part
from paper.report import attenuation, bimodality, curve_plot, summaries, unit_plot
from paper.settings import Settings

DATASETS = ("imagenet", "tiny_imagenet")  # of CIFAR-10 the network has the units of the published experiments
OURS, PAPER = 0.502, 0.226  # what inputs are divided by: EfficientNet-Lite0's, and ImageNet's mean over channels
PUBLISHED_SIDE = {"tiny_imagenet": 128, "imagenet": 224}  # pixels of the images that the norms are taken to be for
ENLARGED = 224  # of Tiny-ImageNet's, if the paper's network for it was that for photos: it does not say
DRAWS, ATTACK_BUDGET = 8, 24  # noise vectors per step; gradients of a map inside the attack
AUTHORS_BUDGET = 19200  # gradients of a judged map in the authors' program
DENSE, SPARSE = 192, 480  # gradients of a judged map: noise adds entries to a sparse one, so it needs more


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
CURVES = {  # on the network as it is
    "curve": Step("the paper's units and the authors' objective", smooth=False),
    "enlarged": Step("the same, norms for images enlarged to 224", smooth=False),
}


@dataclass(frozen=True)
class Measured:
    """One study: a step, the method, the norms in the published units, and on how many images of which size."""

    step: str
    dataset: str
    norms: tuple[float, ...] = (10.0,)
    method: str = "moreau"
    side: int = 128
    images: int = 6
    budget: int = DENSE

    @property
    def shrunk(self) -> float:
        """How much shorter the same change of every pixel is than in an image of the published size."""
        return self.side / (ENLARGED if self.step == "enlarged" else PUBLISHED_SIDE[self.dataset])

    @property
    def solved(self) -> bool:
        """Whether a map is the solution of a problem, found under noise."""
        return self.method.endswith("moreau")

    @property
    def about(self) -> Step:
        return (STEPS | CURVES)[self.step]

    @property
    def name(self) -> str:
        whole = "full" if self.side == PUBLISHED_SIDE[self.dataset] != 128 else ""
        words = ["published_units", self.step, self.method, whole, *(f"{norm:g}" for norm in self.norms)]
        return "_".join(filter(None, words))


SMALL = (1.0, 3.0)  # norms that move the simple gradient
NORMS = (1.0, 3.0, 10.0, 20.0)
FULL = (  # for a large GPU, the most telling first
    *(
        Measured("curve", dataset, NORMS, method, PUBLISHED_SIDE[dataset], 16, 1600)
        for dataset, method in product(DATASETS, ("moreau", "sparse_moreau"))
    ),
    *(
        Measured(step, dataset, (10.0,), "moreau", PUBLISHED_SIDE[dataset], 16, 800)
        for dataset, step in product(DATASETS, STEPS)
    ),
    *(Measured("curve", dataset, NORMS, "gradient", PUBLISHED_SIDE[dataset], 48, 1) for dataset in DATASETS),
)
SHORT = (  # for a CPU
    *(Measured(step, "imagenet") for step in ("ours", "paper")),
    Measured("enlarged", "tiny_imagenet", NORMS[1:], images=12, budget=2 * DENSE),
    Measured("curve", "imagenet", NORMS[2:], "sparse_moreau", budget=SPARSE),
    *(Measured(step, "imagenet") for step in ("smooth", "authors")),
    *(Measured("curve", dataset, SMALL, "gradient", PUBLISHED_SIDE[dataset], 12, 1) for dataset in DATASETS),
    Measured("enlarged", "tiny_imagenet", NORMS[2:], "sparse_moreau", budget=SPARSE),
    Measured("ours", "tiny_imagenet", images=8),
)
CONVERSION = ("name", "value")
CONVERTED = ("dataset", "method", "epsilon", "norm", "counted", *summaries.MIDDLE)
COLUMNS = (*summaries.COLUMNS, "side", "budget", "compared", "title", "published")


@dataclass(frozen=True)
class Network:
    """What is made of a loaded network before a study: another input size, a smooth copy, the paper's units."""

    side: int | None  # pixels; None leaves it
    step: Step

    def __str__(self) -> str:
        units, kinks = "the paper's units" if self.step.units else "its own units", "softplus" * self.step.smooth
        size = "" if self.side is None else f"{self.side} pixels"
        return ", ".join(filter(None, (size, units, kinks)))

    def __call__(self, classifier: Any) -> Any:
        found = classifier
        if self.side is not None:
            found = as_classifier(classifier, name=classifier.name, change=ViewChange(size=self.side))
        found = mg.with_softplus(found) if self.step.smooth else found
        return mg.to_units(found) if self.step.units else found


def make_parts(settings: Settings) -> list[Part]:
    """Studies in the order in which they are worth measuring."""
    plan = FULL if settings.place.type == "cuda" and not settings.quick else SHORT
    return [make_part(each, settings) for each in plan if each.dataset in settings.datasets]


def make_part(of: Measured, settings: Settings) -> Part:
    change = Network(None if settings.quick else of.side, of.about)
    images = range(1 if settings.quick else of.images)
    return Part(of.name, of.dataset, 1, images, make_study(of, settings), change)


def make_study(of: Measured, settings: Settings) -> mg.Study:
    """The attack of the published protocol; what has units of length or gradient follows the size of the images."""
    step, shrunk = of.about, of.shrunk
    options: dict[str, Any] = {}
    if of.solved:  # the score is the same after a shrunk change, so entries of the gradient grow by the square of it
        noise = mg.Smoothing(LEVEL, samples=2 if settings.quick else DRAWS)
        options |= {"method": of.method, "rho": shrunk**2, "smoothing": noise}
    if of.method == "sparse_moreau":
        options["eta"] = study_runs.ETA / shrunk**2
    if not step.smooth:  # the same step whatever its units
        scale = OURS / PAPER if step.units else 1
        options["hessian_step"] = shrunk * scale * study_runs.HESSIAN_STEP[of.dataset]
        if settings.place.type == "cuda" and of.solved:
            options["precision"] = "float16"
    attack = {"rule": "sign", "steps": 1 if settings.quick else 10, "surrogate": None}
    budgets = study_runs.FEW if settings.quick else {"budget": of.budget, "attack_budget": ATTACK_BUDGET}
    return mg.Study(
        {of.method: options},
        {"topk": attack | ({"noise_free": True} if step.noise_free and of.solved else {})},
        tuple(shrunk * norm for norm in of.norms),
        modes=("frozen",),
        metrics=(*names.COMPARED, *study_runs.FLAGGED),
        **budgets,
        common_noise=False,
    )


def summarise(settings: Settings) -> list[Line]:
    """The lines of the studies that are there: norms in the published units and size, the step as the protocol."""
    known = ("dataset", "method", "metric", "epsilon")
    printed = {tuple(each[name] for name in known): each["value"] for each in summaries.read_published()}
    found = []
    for of in (*FULL, *SHORT):
        rows = study_runs.read_part(make_part(of, settings), settings)
        budget = study_runs.FEW["budget"] if settings.quick else of.budget
        compared = attenuation.SIGNED if of.solved else summaries.DISTANCE  # by the authors' program
        more = attenuation.extrapolate_rows(rows, AUTHORS_BUDGET / budget, compared)
        lines = summaries.summarise(rows, of.dataset, of.step)
        full = [line for line in summaries.summarise(more, of.dataset, of.step) if line["metric"] == compared]
        for line in lines + [line | {"metric": attenuation.FULL} for line in full]:
            line["epsilon"] = round(line["epsilon"] / of.shrunk, 6)
            point = of.dataset, of.method, names.base(line["metric"]), line["epsilon"]
            about = {"side": of.side, "budget": budget, "compared": compared, "title": of.about.title}
            found.append(line | about | {"published": printed.get(point)})
    return found


def convert() -> list[Line]:
    """What the paper's numbers are in the units of EfficientNet-Lite0, and what those are in the paper's."""
    ratio = PAPER / OURS
    numbers = {"std": OURS, "std_paper": PAPER, "norm": 10 * ratio, "rho": ratio**2, "eta": study_runs.ETA / ratio}
    numbers |= {"norm_back": 10 / ratio, "larger_norm_back": 20 / ratio, "rho_back": ratio**-2}
    return [{"name": name, "value": value} for name, value in numbers.items()]


def convert_full(settings: Settings) -> list[Line]:
    """The full protocol in the network's units, norms in the paper's: signed maps of the images that do not jump."""
    found = []
    for dataset, rows in study_runs.read_rows(robustness.make_parts, settings).items():
        for method in ("moreau", "sparse_moreau") if dataset in DATASETS else ():
            lines = summaries.summarise(bimodality.drop_jumping(rows, method), dataset, "published")
            hits = [line for line in lines if (line["mode"], line["metric"]) == (STRONGEST, attenuation.SIGNED)]
            found += [line | {"norm": line["epsilon"] * OURS / PAPER} for line in hits]
    return found


def make(settings: Settings) -> bool:
    """Run or resume the studies, then write units.csv and units.png of the rows that are there."""
    done = study_runs.run(make_parts(settings), settings)
    if lines := summarise(settings):
        records.write(settings.out / "units.csv", lines, COLUMNS)
        records.write(settings.out / "conversion.csv", convert(), CONVERSION)
        if not settings.quick:
            records.write(settings.out / "converted.csv", convert_full(settings), CONVERTED)
        ours = settings.out / "robustness.csv"
        full = records.read(ours) if ours.is_file() else []
        picture = unit_plot.draw(lines, full, summaries.read_published(), OURS / PAPER)
        curve_plot.save(picture, settings.out / "units.png")
    return done
