"""What `attack` tells and draws of the facts that it found."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from numpy.typing import NDArray
from torch import Tensor

from moreaugrad.cli.report import Facts, channels_last, shorten, to_picture
from moreaugrad.models.classifier import Classifier
from moreaugrad.plotting import pictures

SHORT = {"normalised_distance": "distance", "topk_intersection": "top-k shared", "ssim": "ssim"}
LENGTHS = ("l2", "linf", "pixels_l2", "pixels_linf")


def describe(known: Facts) -> list[str]:
    """The result in a few lines."""
    before, after, metrics = known["before"], known["after"], known["metrics"]
    meant = ", as this attack is meant to change it" if known["class_is_to_change"] else ""
    verdict = "prediction kept" if known["kept"] else f"prediction changed to {_class_name(after)}{meant}"
    found = [f"{known['key']}: {_class_name(before)}, {before['probability']:.3f}; {_attempt(known)}: {verdict}"]
    if not known["valid"]:
        found.append("nothing valid was found: the numbers below do not measure robustness")
    chances = f"{before['probability_of_target']:.3f} -> {after['probability_of_target']:.3f}"
    found.append(f"change: {_change(known)}; {_target(known)}: {chances}")
    chance = {name: f" [{_number(metrics[name]['two_seeds'])}]" if known["random_map"] else "" for name in SHORT}
    figures = ", ".join(f"{short} {_number(metrics[name]['attacked'])}{chance[name]}" for name, short in SHORT.items())
    noise = "in brackets: two seeds, no attack" if known["random_map"] else "this map has no noise of its own"
    found.append(f"map of {_target(known)} before and after: {figures}; {noise}")
    distance = metrics["normalised_distance"]
    if known["valid"] and known["random_map"] and (distance["attacked"] or 0) <= (distance["two_seeds"] or 0):
        found.append("the attack changed the map no more than another seed does; a larger --budget tells more")
    spent, seconds = known["gradients"], sum(known["seconds"].values())
    return [*found, f"{spent['attack']:,} gradients for the attack, {spent['map']:,} per judged map, {seconds:.1f} s"]


def draw(known: Facts, *, model: Classifier, x: Tensor, attacked: Tensor, maps: tuple[Tensor, Tensor]) -> Figure:
    """Input, attacked input, what was added (enlarged), and the two maps."""

    def guess(of: dict[str, Any]) -> str:
        return f"{shorten(str(of['label'] or 'class ' + str(of['class'])))}: {of['probability']:.3f}"

    delta = channels_last((attacked - x)[0] * model.std)
    factor = enlargement(delta)
    grown = "no change" if factor == 0 else f"change, {factor:g} times enlarged"
    distance = known["metrics"]["normalised_distance"]
    by_chance = f" (two seeds {_number(distance['two_seeds'], 2)})" if known["random_map"] else ""
    tiles: list[tuple[str, Any]] = [
        (f"input\n{guess(known['before'])}", to_picture(x, model)),
        (f"attacked input\n{guess(known['after'])}", to_picture(attacked, model)),
        (f"{grown}\n{_change(known, short=True)}", (0.5 + factor * delta).clip(0, 1)),
        (f"map before\nof {shorten(_target(known))}", maps[0]),
        (f"map after, same class\ndistance {_number(distance['attacked'], 2)}{by_chance}", maps[1]),
    ]
    intended = ", as intended" if known["class_is_to_change"] else ""
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


def _attempt(known: Facts) -> str:
    mode = f" ({known['grad_mode']})" if known["grad_mode"] else ""
    size = "" if known["epsilon"] is None else f", {known['norm'] or 'change'} up to {known['epsilon']:g}"
    return f"{known['attack']} on {known['method']}{mode}{size}"


def _target(known: Facts) -> str:
    return str(known["label"] or f"class {known['target']}")


def _class_name(of: dict[str, Any]) -> str:
    return f"{of['label']} (class {of['class']})" if of["label"] else f"class {of['class']}"


def _number(value: float | None, digits: int = 3) -> str:
    return "not defined" if value is None else f"{value:.{digits}f}"


def _change(known: Facts, short: bool = False) -> str:
    l2, linf, pixels_l2, pixels_linf = (known["change"][name] for name in LENGTHS)
    has_pixels = pixels_l2 is not None  # whether the model knows the size of an 8-bit step
    if short:
        return f"l2 {l2:.3g}" + (f", at most {pixels_linf:.3g} of 255" if has_pixels else "")
    steps = f" (in 8-bit steps: {pixels_l2:.4g} and {pixels_linf:.3g})" if has_pixels else ""
    return f"l2 {l2:.4g}, at most {linf:.3g} per entry{steps}"
