"""`attack`: one image, one attack, and how the map came through it. Heavy imports are made inside."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from functools import partial
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING, Annotated, Any, ClassVar

import typer

from moreaugrad import limits
from moreaugrad.attacks import ATTACKS
from moreaugrad.cli.checks import choose_method, class_number, open_image
from moreaugrad.cli.command import complete, option
from moreaugrad.cli.options import (
    ACCURACY,
    ImageFile,
    Json,
    MethodName,
    ModelOptions,
    Out,
    PriorOptions,
    Quiet,
    Seed,
    TargetClass,
    choose_budget,
)
from moreaugrad.cli.terminal import Terminal
from moreaugrad.methods import QUALITY

if TYPE_CHECKING:
    from PIL import Image
    from torch import Tensor

    from moreaugrad.cli.report import Findings
    from moreaugrad.models.classifier import Classifier
    from moreaugrad.studies.trial import Trial

NAMES = ", ".join(name for name, each in ATTACKS.items() if "weights" not in each.flags)  # those that change images
BUDGET = QUALITY["balanced"]  # gradients of a judged map

AttackBudget = Annotated[int, typer.Option(help="Gradients of a map inside the attack.", rich_help_panel=ACCURACY)]


@dataclass(frozen=True)
class AttackOptions:
    """The attack, and how hard it tries."""

    panel: ClassVar[str] = "Attack"

    attack: str = option(
        f"One of {NAMES}, or a registered one.", default="topk", autocompletion=complete(lambda: ATTACKS)
    )
    epsilon: float | None = option(
        "Size of the change, in units of the network's input.", shown="the attack's own, else 3"
    )
    norm: str | None = option(
        "l2, linf, or plain for noise.", shown="the attack's own", autocompletion=complete(lambda: ("l2", "linf"))
    )
    steps: int | None = option("Steps of the attack.", shown="its own number")
    restarts: int | None = option("Restarts of the attack.", shown="1")
    derivative: str | None = option(
        "Of MoreauGrad maps: implicit, covariance, unrolled or frozen, also with sizes.",
        "--derivative",
        "--grad-mode",
        shown="implicit:5x16",
    )
    budget: int | None = option(
        "Gradients of a map that is judged, for methods that have a choice.",
        shown=str(BUDGET),
        rich_help_panel=ACCURACY,
    )
    quality: str | None = option(
        f"Instead of --budget: {', '.join(QUALITY)}.",
        rich_help_panel=ACCURACY,
        autocompletion=complete(lambda: QUALITY),
    )
    attack_budget: AttackBudget = 80
    seed: Seed = 0

    def __post_init__(self) -> None:
        _ = ATTACKS[self.attack]
        least = {"judged_budget": 1, "attack_budget": 1, "seed": 0, "steps": 1, "restarts": 1}
        for name, value in least.items():
            if getattr(self, name) is not None:
                limits.at_least(name.removeprefix("judged_"), getattr(self, name), value)

    @property
    def judged_budget(self) -> int:
        """Gradients of a map that is judged."""
        found = choose_budget(self.quality, self.budget)
        return BUDGET if found is None else found


def attack(  # noqa: PLR0913
    image: ImageFile,
    *,
    method: MethodName = None,
    attack: AttackOptions,
    target: TargetClass = None,
    options: PriorOptions,
    model: ModelOptions,
    out: Out = Path("attacks"),
    json: Json = False,
    quiet: Quiet = False,
) -> int:
    """Attack the map of an image and show the result: OUT/<image>_attack.png and .json.

    The maps before and after are judged with noise that the attack has not seen, the same for both. A photo takes
    some minutes on a CPU; try --steps 3 --derivative frozen first.
    """
    path, given = open_image(image), options.given()
    name = choose_method(method, given)
    for each, typed in (("steps", attack.steps), ("restarts", attack.restarts)):
        if typed is not None and each in given:
            raise ValueError(f"--set must not repeat an option, got {each}={given[each]} and --{each}")
        given |= {} if typed is None else {each: typed}
    from moreaugrad.cli.report import report_on_image

    check_attack(name, attack, given)
    terminal = Terminal(quiet, json)
    examine = partial(attack_picture, method=name, typed=attack, options=given, target=target, terminal=terminal)
    return report_on_image(path, "attack", model, out, examine, terminal)


def check_attack(method: str, typed: AttackOptions, options: Mapping[str, Any]) -> None:
    """Refuse options that the method or the attack does not take, before any model is loaded."""
    from torch import nn

    from moreaugrad.models.classifier import CentreCrop, Classifier

    if not isinstance(options.get("target_image"), str):  # a picture needs the preprocessing of the model
        make_trial(Classifier(nn.Identity(), CentreCrop(), "none"), method, typed, options)


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
    from moreaugrad.cli.attack_report import describe, draw

    trial = make_trial(classifier, method, typed, options)
    chosen = class_number(target, classifier)
    # another layout in memory is rounded differently, which would look like a change
    x = classifier.preprocess(picture)[None].contiguous()
    began = perf_counter()
    with terminal.bar(f"{typed.attack} on {method}") as watch:
        found = trial.attack(x, chosen, watch)
    attacked = perf_counter()
    maps = trial.judge_maps(x, found)
    seconds = {"attack": round(attacked - began, 3), "maps": round(perf_counter() - attacked, 3)}
    facts = describe_attack(classifier, method, typed, trial)
    facts |= describe_result(classifier, typed.attack, x, found)
    facts |= {"metrics": maps.compare(), "random_map": trial.judge.random, "seconds": seconds}
    spent = 0 if maps.before.gradients is None else int(maps.before.gradients)
    facts |= {"gradients": {"attack": int(found.gradients), "map": spent}}
    return (
        facts,
        describe,
        partial(draw, model=classifier, x=x, attacked=found.x, maps=(maps.before.map[0], maps.after.map[0])),
    )


def make_trial(classifier: Classifier, method: str, typed: AttackOptions, options: Mapping[str, Any]) -> Trial:
    """The attack on the method, and the method with two other seeds."""
    from moreaugrad.data.images import read_image
    from moreaugrad.model.prepared import prepare
    from moreaugrad.studies.setup import BudgetedMethod, assign_options
    from moreaugrad.studies.trial import Trial

    given, ready = dict(options), prepare(classifier)
    if isinstance(given.get("target_image"), str):
        given["target_image"] = classifier.preprocess(read_image(given["target_image"]))[None]
    of_methods, of_attacks = assign_options(given, [method], [typed.attack])
    budgeted = BudgetedMethod(method, typed.judged_budget, typed.attack_budget, typed.seed, of_methods[method])
    given = {"derivative": typed.derivative, "epsilon": typed.epsilon, "norm": typed.norm}
    return Trial.of(ready, budgeted, typed.attack, options=of_attacks[typed.attack], **given)


def describe_attack(classifier: Classifier, method: str, typed: AttackOptions, trial: Trial) -> dict[str, Any]:
    """Who attacked what, and with which options and seeds."""
    from moreaugrad.methods.options import describe_options, versions
    from moreaugrad.studies.setup import ATTACKED, JUDGE, SECOND, START, needs_derivative

    attacker, judge = trial.attacker, trial.judge
    slope = getattr(attacker.attacked, "slope", None)
    streams = {"attacked_map": ATTACKED, "judge": JUDGE, "second_judge": SECOND, "attack": START}
    options = {"judge": describe_options(judge), "attacked_method": describe_options(attacker.attacked)}
    options["attack"] = {each.name: getattr(attacker, each.name) for each in fields(attacker)[1:]}
    return {
        "model": classifier.name,
        "method": method,
        "attack": typed.attack,
        **{name: getattr(attacker, name, getattr(typed, name)) for name in ("norm", "epsilon")},
        "grad_mode": slope.name if slope is not None and needs_derivative(typed.attack) else None,
        "seeds": {name: typed.seed + stream for name, stream in streams.items()},
        "options": options,
        "versions": versions(),
    }


def describe_result(classifier: Classifier, attack: str, x: Tensor, found: Any) -> dict[str, Any]:
    """What the attack did to the image and to the prediction."""
    from moreaugrad.attacks.base import predict_logits
    from moreaugrad.cli.attack_report import LENGTHS
    from moreaugrad.studies.setup import changes_class, is_valid

    target, lengths = int(found.target), {name: getattr(found, name) for name in LENGTHS}

    def predict(at: Tensor) -> dict[str, Any]:
        chances = predict_logits(classifier, at).cpu().double().softmax(1)[0]
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
