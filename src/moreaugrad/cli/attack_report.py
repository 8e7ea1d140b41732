"""What came of an attack -> a picture, a JSON file, lines for people. Says what is chance, and what was not reached."""

from __future__ import annotations

import math
import warnings
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from moreaugrad.cli.method_options import told
from moreaugrad.cli.report import channels_last, cut, seen, strict, versions, write_json
from moreaugrad.metrics import METRICS
from moreaugrad.plotting import pictures
from moreaugrad.studies import setup as contest

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from moreaugrad.cli.attack_job import Affair

LENGTHS = ("l2", "linf", "pixels_l2", "pixels_linf")
SHORT = {"normalised_distance": "distance", "topk_intersection": "top-k shared", "ssim": "ssim"}


def facts(affair: Affair) -> dict[str, Any]:
    """Everything that is known, as JSON can hold it; what is not a number is null."""
    duel, found, order = affair.duel, affair.found, affair.duel.order
    target = int(found.target)
    metrics = {
        name: {
            "attacked": affair.figures[name],
            "two_seeds": affair.by_chance[name],
            "more_robust": METRICS[name].direction,
        }
        for name in affair.figures
    }
    known = {
        "model": duel.classifier.name,
        "method": order.method,
        "attack": order.attack,
        "norm": order.norm,
        "epsilon": order.epsilon,
        "grad_mode": _mode(affair),
        "target": target,
        "label": duel.classifier.label(target),
        "before": _said(affair, affair.chances),
        "after": _said(affair, affair.chances_after),
        "success": bool(found.success),
        "kept": bool(found.kept),
        "valid": bool(contest.is_valid(order.attack, found)),
        "class_is_to_change": contest.changes_class(order.attack),
        "objective": {"before": float(found.trace[0]), "after": float(found.objective)},
        "change": {name: None if getattr(found, name) is None else float(getattr(found, name)) for name in LENGTHS},
        "metrics": metrics,
        "random_map": duel.judge.random,
        "gradients": {"attack": int(found.gradients), "map": _count(affair.before.gradients)},
        "seconds": affair.seconds,
        "seeds": {
            "attacked_map": order.seed + contest.ATTACKED,
            "judge": order.seed + contest.JUDGE,
            "second_judge": order.seed + contest.SECOND,
            "attack": order.seed + contest.START,
        },
        "options": {
            "judge": told(duel.judge),
            "attacked_method": told(duel.attack.attacked),
            "attack": {each.name: getattr(duel.attack, each.name) for each in fields(duel.attack)[1:]},
        },
        "versions": versions(),
    }
    told_all: dict[str, Any] = strict(known)
    return told_all


def write(affair: Affair, known: dict[str, Any], stem: Path) -> None:
    """Both files, each whole or not at all."""
    write_json(known, stem.with_name(f"{stem.name}.json"))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # an all-zero map was mentioned by the method
        figure = picture(affair, known)
    pictures.write(figure, stem.with_name(f"{stem.name}.png"))


def lines(known: dict[str, Any]) -> list[str]:
    """The essentials, and nothing that is better than it was."""
    before, after, distance = known["before"], known["after"], known["metrics"]["normalised_distance"]
    purpose = ", as this attack is meant to change it" if known["class_is_to_change"] and not known["kept"] else ""
    verdict = "prediction kept" if known["kept"] else f"prediction changed to {_named(after)}{purpose}"
    found = [f"{known['key']}: {_named(before)}, {before['probability']:.3f}; {_attempt(known)}: {verdict}"]
    if not known["valid"]:
        found.append("nothing valid was found: the figures below are no measure of robustness")
    chances = f"{before['probability_of_target']:.3f} -> {after['probability_of_target']:.3f}"
    found.append(f"change: {_change(known)}; {_target(known)}: {chances}")
    figures = ", ".join(f"{short} {_against(known['metrics'][name], known)}" for name, short in SHORT.items())
    chance = "in brackets: two seeds, no attack" if known["random_map"] else "this map has no noise of its own"
    found.append(f"map of {_target(known)} before and after: {figures}; {chance}")
    if known["valid"] and known["random_map"] and (distance["attacked"] or 0) <= (distance["two_seeds"] or 0):
        found.append("the attack changed the map no more than another seed does; a larger --budget tells more")
    spent, seconds = known["gradients"], sum(known["seconds"].values())
    found.append(f"{spent['attack']:,} gradients for the attack, {spent['map']:,} per judged map, {seconds:.1f} s")
    return found


def picture(affair: Affair, known: dict[str, Any]) -> Figure:
    """Input, attacked input, what was added (enlarged), and the two maps."""
    model = affair.duel.classifier
    delta = channels_last((affair.found.x - affair.x)[0] * model.std)
    factor = enlargement(delta)
    grown = "no change" if factor == 0 else f"change, {factor:g} times enlarged"
    distance = known["metrics"]["normalised_distance"]
    by_chance = f" (two seeds {_figure(distance['two_seeds'], 2)})" if known["random_map"] else ""
    tiles: list[tuple[str, Any]] = [
        (f"input\n{_guess(known['before'])}", seen(affair.x, model)),
        (f"attacked input\n{_guess(known['after'])}", seen(affair.found.x, model)),
        (f"{grown}\n{_change(known, short=True)}", (0.5 + factor * delta).clip(0, 1)),
        (f"map before\nof {cut(_target(known))}", affair.before.map[0]),
        (f"map after, same class\ndistance {_figure(distance['attacked'], 2)}{by_chance}", affair.after.map[0]),
    ]
    intended = ", as intended" if known["class_is_to_change"] and not known["kept"] else ""
    verdict = "prediction kept" if known["kept"] else f"prediction changed{intended}"
    verdict = verdict if known["valid"] else f"nothing valid found, {verdict}"
    return pictures.grid(tiles, columns=5, title=f"{_attempt(known)}: {verdict}")


def enlargement(delta: NDArray[np.float64]) -> float:
    """A round factor that makes all but the largest half percent of a change fit between black and white."""
    top = float(np.percentile(np.abs(delta), 99.5)) or float(np.abs(delta).max(initial=0))
    if top == 0:
        return 0.0
    raw = 0.5 / top
    step = 10.0 ** math.floor(math.log10(raw))
    return max([1.0, *(each * step for each in (1, 2, 5) if each * step <= raw)])


def _mode(affair: Affair) -> str | None:
    slope = getattr(affair.duel.attack.attacked, "slope", None)
    return slope.mode if slope is not None and contest.needs_derivative(affair.duel.order.attack) else None


def _said(affair: Affair, chances: Tensor) -> dict[str, Any]:
    top = int(chances.argmax())
    of = {"class": top, "label": affair.duel.classifier.label(top), "probability": float(chances[top])}
    return of | {"probability_of_target": float(chances[int(affair.found.target)])}


def _attempt(known: dict[str, Any]) -> str:
    mode = f" ({known['grad_mode']})" if known["grad_mode"] else ""
    size = "" if known["epsilon"] is None else f", {known['norm']} up to {known['epsilon']:g}"
    return f"{known['attack']} on {known['method']}{mode}{size}"


def _target(known: dict[str, Any]) -> str:
    return str(known["label"] or f"class {known['target']}")


def _named(said: dict[str, Any]) -> str:
    return f"{said['label']} (class {said['class']})" if said["label"] else f"class {said['class']}"


def _guess(said: dict[str, Any]) -> str:
    return f"{cut(str(said['label'] or 'class ' + str(said['class'])))}: {said['probability']:.3f}"


def _figure(value: float | None, digits: int = 3) -> str:
    return "not defined" if value is None else f"{value:.{digits}f}"


def _change(known: dict[str, Any], short: bool = False) -> str:
    l2, linf, *pixels = (known["change"][name] for name in LENGTHS)
    told = pixels[0] is not None  # the model says how wide a step of 8 bits is
    if short:
        return f"l2 {l2:.3g}" + (f", at most {pixels[1]:.3g} of 255" if told else "")
    steps = f" (in 8-bit steps: {pixels[0]:.4g} and {pixels[1]:.3g})" if told else ""
    return f"l2 {l2:.4g}, at most {linf:.3g} per entry{steps}"


def _against(figure: dict[str, Any], known: dict[str, Any]) -> str:
    chance = f" [{_figure(figure['two_seeds'])}]" if known["random_map"] else ""
    return f"{_figure(figure['attacked'])}{chance}"


def _count(gradients: Any) -> int:
    return 0 if gradients is None else int(gradients)
