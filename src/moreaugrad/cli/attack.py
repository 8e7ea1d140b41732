"""`attack`: one image, one attack, and how the map came through it. Heavy imports are made inside."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, fields
from functools import partial
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING, Annotated, Any

import typer

from moreaugrad.attacks import ATTACKS
from moreaugrad.cli.options import (
    ImageFile,
    MethodName,
    ModelOptions,
    Out,
    PriorOptions,
    Quiet,
    Seed,
    TargetClass,
    choose_method,
    class_number,
    option,
)
from moreaugrad.cli.terminal import Terminal
from moreaugrad.metrics import METRICS

if TYPE_CHECKING:
    import numpy as np
    from matplotlib.figure import Figure
    from numpy.typing import NDArray
    from PIL import Image
    from torch import Tensor

    from moreaugrad.attacks.base import Attack
    from moreaugrad.cli.report import Facts, Findings
    from moreaugrad.methods.base import Method
    from moreaugrad.models.classifier import Classifier

NAMES = ", ".join(name for name, each in ATTACKS.items() if "weights" not in each.flags)  # those that change images
SHOWN = ("normalised_distance", "topk_intersection", "ssim", "cosine", "spearman", "centre_shift")
SHORT = {"normalised_distance": "distance", "topk_intersection": "top-k shared", "ssim": "ssim"}
LENGTHS = ("l2", "linf", "pixels_l2", "pixels_linf")
QUICK = "implicit:5x16"  # a quarter of the cost of the method's own derivative

Budget = Annotated[int, typer.Option(help="Gradients of a map that is judged, for methods that have a choice.")]
AttackBudget = Annotated[int, typer.Option(help="Gradients of a map inside the attack.")]


@dataclass(frozen=True)
class AttackOptions:
    """The attack, and how hard it tries."""

    attack: str = option(f"One of {NAMES}, or a registered one.", default="topk")
    epsilon: float | None = option(
        "Size of the change, in units of the network's input; default: the attack's own, else 3."
    )
    norm: str | None = option("l2, linf, or plain for noise; default: the attack's own.")
    steps: int | None = option("Steps of the attack; default: its own number.")
    restarts: int | None = option("Restarts of the attack; default: 1.")
    derivative: str | None = option(
        f"Of MoreauGrad maps: implicit, covariance, unrolled or frozen, also with sizes; default: {QUICK}.",
        "--derivative",
        "--grad-mode",
    )
    budget: Budget = 800
    attack_budget: AttackBudget = 80
    seed: Seed = 0


def attack(
    image: ImageFile,
    *,
    method: MethodName = None,
    attack: AttackOptions,
    target: TargetClass = None,
    options: PriorOptions,
    model: ModelOptions,
    out: Out = Path("attacks"),
    quiet: Quiet = False,
) -> int:
    """Attack the map of an image and show the result: OUT/<image>_attack.png and .json.

    The maps before and after are judged with noise that the attack has not seen, the same for both. A photo takes
    some minutes on a CPU; try --steps 3 --derivative frozen first.
    """
    given = options.given()
    name = choose_method(method, given)
    _ = ATTACKS[attack.attack]
    for each, typed in (("steps", attack.steps), ("restarts", attack.restarts)):
        if typed is not None and each in given:
            raise ValueError(f"--set must not repeat an option, got {each}={given[each]} and --{each}")
        given |= {} if typed is None else {each: typed}
    from moreaugrad.cli.report import report_on_image

    terminal = Terminal(quiet)
    examine = partial(attack_picture, method=name, typed=attack, options=given, target=target, terminal=terminal)
    return report_on_image(image, "attack", model, out, examine, terminal)


def attack_picture(
    classifier: Classifier,
    picture: Image.Image,
    *,
    method: str,
    typed: AttackOptions,
    options: Mapping[str, Any],
    target: str | None,
    terminal: Terminal,
) -> Findings:
    """Attack the map of one picture, and compare the maps before and after with fresh noise, the same for both."""
    attacker, judge, second = make_attack_and_judges(classifier, method, typed, options)
    chosen = class_number(target, classifier)
    # another layout in memory is rounded differently, which would look like a change
    x = classifier.preprocess(picture)[None].contiguous()
    began = perf_counter()
    with terminal.bar(f"{typed.attack} on {method}") as watch:
        found = attacker.perturb(x, chosen, callback=watch)
    attacked = perf_counter()
    before, after, other = (each.explain(at, found.target) for each, at in ((judge, x), (judge, found.x), (second, x)))
    seconds = {"attack": round(attacked - began, 3), "maps": round(perf_counter() - attacked, 3)}
    facts = describe_attack(classifier, method, typed, attacker, judge)
    facts |= describe_result(classifier, typed.attack, x, found)
    facts |= {"metrics": compare_maps(before.map, after.map, other.map), "random_map": judge.random, "seconds": seconds}
    spent = 0 if before.gradients is None else int(before.gradients)
    facts |= {"gradients": {"attack": int(found.gradients), "map": spent}}
    return facts, describe, partial(draw, model=classifier, x=x, attacked=found.x, maps=(before.map[0], after.map[0]))


def make_attack_and_judges(
    classifier: Classifier, method: str, typed: AttackOptions, options: Mapping[str, Any]
) -> tuple[Attack, Method, Method]:
    """The attack on the method, and the method with two other seeds: the judge, and a second one."""
    from moreaugrad.data.images import read_image
    from moreaugrad.model.prepared import prepare
    from moreaugrad.studies.setup import BudgetedMethod, assign_options, make_attack

    given, ready = dict(options), prepare(classifier)
    if isinstance(given.get("target_image"), str):
        given["target_image"] = classifier.preprocess(read_image(given["target_image"]))[None]
    of_methods, of_attacks = assign_options(given, [method], [typed.attack])
    budgeted = BudgetedMethod(method, typed.budget, typed.attack_budget, typed.seed, of_methods[method])
    if typed.derivative is not None and not budgeted.has_modes:
        raise ValueError(f"derivative must be left out: {method} has only one, got {typed.derivative!r}")
    attacked = budgeted.make_attacked(ready, (typed.derivative or QUICK) if budgeted.has_modes else None)
    made = make_attack(typed.attack, attacked, typed.epsilon, typed.norm, typed.seed, of_attacks[typed.attack])
    return made, budgeted.make_judge(ready), budgeted.make_judge(ready, second=True)


def compare_maps(before: Tensor, after: Tensor, other: Tensor) -> dict[str, dict[str, Any]]:
    """Metrics of the map after the attack, and of one with another seed; NaN for those that need larger maps."""
    found: dict[str, dict[str, Any]] = {}
    for name in SHOWN:
        try:
            values = [float(METRICS[name](before, each)) for each in (after, other)]
        except ValueError:  # too small for a window
            values = [math.nan, math.nan]
        found[name] = {"attacked": values[0], "two_seeds": values[1], "more_robust": METRICS[name].direction}
    return found


def describe_attack(
    classifier: Classifier, method: str, typed: AttackOptions, attacker: Attack, judge: Method
) -> dict[str, Any]:
    """Who attacked what, and with which options and seeds."""
    from moreaugrad.methods.options import describe_options, versions
    from moreaugrad.studies.setup import ATTACKED, JUDGE, SECOND, START, needs_derivative

    slope = getattr(attacker.attacked, "slope", None)
    streams = {"attacked_map": ATTACKED, "judge": JUDGE, "second_judge": SECOND, "attack": START}
    options = {"judge": describe_options(judge), "attacked_method": describe_options(attacker.attacked)}
    options["attack"] = {each.name: getattr(attacker, each.name) for each in fields(attacker)[1:]}
    return {
        "model": classifier.name,
        "method": method,
        **{name: getattr(typed, name) for name in ("attack", "norm", "epsilon")},
        "grad_mode": slope.name if slope is not None and needs_derivative(typed.attack) else None,
        "seeds": {name: typed.seed + stream for name, stream in streams.items()},
        "options": options,
        "versions": versions(),
    }


def describe_result(classifier: Classifier, attack: str, x: Tensor, found: Any) -> dict[str, Any]:
    """What the attack did to the image and to the prediction."""
    from moreaugrad.attacks.base import predict_logits
    from moreaugrad.studies.setup import changes_class, is_valid

    target, lengths = int(found.target), {name: getattr(found, name) for name in LENGTHS}

    def predict(at: Tensor) -> dict[str, Any]:
        chances = predict_logits(classifier, at).double().softmax(1)[0].cpu()
        top = int(chances.argmax())
        of = {"class": top, "label": classifier.label(top), "probability": float(chances[top])}
        return of | {"probability_of_target": float(chances[target])}

    return {
        "target": target,
        "label": classifier.label(target),
        "before": predict(x),
        "after": predict(found.x),
        "success": bool(found.success),
        "kept": bool(found.kept),
        "valid": bool(is_valid(attack, found)),
        "class_is_to_change": changes_class(attack),
        "objective": {"before": float(found.trace[0]), "after": float(found.objective)},
        "change": {name: None if length is None else float(length) for name, length in lengths.items()},
    }


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
    from moreaugrad.cli.report import channels_last, shorten, to_picture
    from moreaugrad.plotting import pictures

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
    import numpy as np

    top = float(np.percentile(np.abs(delta), 99.5)) or float(np.abs(delta).max(initial=0))
    if top == 0:
        return 0.0
    raw = 0.5 / top
    step = 10.0 ** math.floor(math.log10(raw))
    return max([1.0, *(each * step for each in (1, 2, 5) if each * step <= raw)])


def _attempt(known: Facts) -> str:
    mode = f" ({known['grad_mode']})" if known["grad_mode"] else ""
    size = "" if known["epsilon"] is None else f", {known['norm']} up to {known['epsilon']:g}"
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
