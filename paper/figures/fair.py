"""The fair test: equal budgets, one level of noise, absolute maps, own predictions, the strongest of several attacks.

Every judged map costs 1,600 gradients where a method has a choice, every one inside an attack 64. MoreauGrad is
attacked along three derivatives, and all methods also at the points that were found against the others; a map of 320
gradients with noise of its own names the strongest of these, and the judge sees that one. At the larger norms a second
attack with more steps, by the signs of the slope, goes through the same; on fewer images a third one, along the slope
of the mean of the squares of the gradients, which does not end where a map of votes is flat.
"""

from __future__ import annotations

from functools import partial

import moreaugrad as mg
from paper import names
from paper.data import records
from paper.figures import chance_level, study_runs
from paper.figures.study_runs import Part
from paper.report import bimodality, curve_plot, pairing, summaries
from paper.settings import Settings

IMAGES = {"cifar10": 256, "tiny_imagenet": 120, "imagenet": 48}
QUICK = {"cifar10": 2, "tiny_imagenet": 1, "imagenet": 1}
FULL = {"budget": study_runs.BUDGET, "scout": 320, "attack_budget": 64}  # gradients
MODES = ("frozen", "unrolled:1x16", "implicit:4x16", "transfer")
SIGN, SQUARE = "sign", "square"  # the second and the third attack
MORE = {SIGN: ("implicit:4x16", "transfer"), SQUARE: ("square",)}  # their modes
FEWER = {"cifar10": 64, "tiny_imagenet": 48, "imagenet": 48}  # images of the third attack
AVERAGED = ("smoothgrad", "sparsified_smoothgrad", "moreau", "sparse_moreau")  # methods that it can lead
TITLE = "On equal terms: the strongest of several attacks"
NOTE = "means over images with a valid attack, 95 % intervals; dotted: two seeds, no attack; triangles: another image"


def make_parts(settings: Settings, attack: str = "") -> list[Part]:
    """By data set, a study for each shard of the images; `attack`: of the second or the third."""
    images = QUICK if settings.quick else FEWER if attack == SQUARE else IMAGES
    name = f"fair_{attack}" if attack else "fair"
    return study_runs.split_shards(name, settings, images, lambda dataset: make_study(dataset, settings, attack))


def make_study(dataset: str, settings: Settings, attack: str = "") -> mg.Study:
    full, sizes = FULL, study_runs.SIZES[dataset]
    modes, steps = (MORE[attack], 10 if attack == SIGN else 4) if attack else (MODES, 4)
    sizes = {SIGN: sizes[2:], SQUARE: sizes[:3]}.get(attack, sizes)
    if settings.quick:
        small = tuple(f"{mode.partition(':')[0]}:1x2" if ":" in mode else mode for mode in modes)
        modes, steps, sizes, full = small, 1, study_runs.SIZES[dataset][2:3], study_runs.FEW | {"scout": 4}
    options = {"steps": steps, "surrogate": None}  # finite differences cross the kinks themselves
    methods = study_runs.choose_methods(
        settings, dataset, draws=16, points=32, hessian_step=study_runs.HESSIAN_STEP[dataset]
    )
    return mg.Study(
        {name: given for name, given in methods.items() if attack != SQUARE or name in AVERAGED},
        {"topk": options | ({"rule": "sign"} if attack == SIGN else {})},
        sizes,
        modes=modes,
        metrics=names.COMPARED,
        **full,
    )


def make(settings: Settings) -> bool:
    """Run or resume the studies, then write fair.csv, fair.png and what else the rows that are there say."""
    done = all(study_runs.run(make_parts(settings, attack), settings) for attack in ("", *MORE))
    if done and not settings.redraw:
        for name in settings.datasets:
            chance_level.make(settings, name, make_study(name, settings))
    first = study_runs.read_rows(make_parts, settings)
    more = {attack: study_runs.read_rows(partial(make_parts, attack=attack), settings) for attack in MORE}
    if rows := {
        name: pairing.merge_attacks(some, {attack: each.get(name, ()) for attack, each in more.items()})
        for name, some in first.items()
    }:
        _write(rows, settings)
    return done


def _write(rows: dict[str, list[pairing.Row]], settings: Settings) -> None:
    out, each = settings.out, rows.items()
    lines = [line for name, some in each for line in summaries.summarise(some, name, "fair")]
    if (out / "chance.csv").is_file():
        levels = [line for line in records.read(out / "chance.csv") if line["dataset"] in rows]
        lines += levels
        progress = [line for name, some in each for line in pairing.measure_progress(some, levels, name)]
        records.write(out / "way.csv", progress, pairing.PROGRESS)
    summaries.write(out / "fair.csv", lines)
    floors = [line for name, some in each for line in bimodality.floors(some, name)]
    records.write(out / "fair_floors.csv", floors, bimodality.FLOORS)
    pairs = [line for name, some in each for line in pairing.pair_methods(some, name)]
    records.write(out / "paired.csv", pairs, pairing.PAIRED)
    curve_plot.save(curve_plot.draw(lines, title=TITLE, note=NOTE), out / "fair.png")
