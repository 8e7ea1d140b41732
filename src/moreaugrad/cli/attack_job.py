"""`attack`: one image, one attack, and how the map came through it."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from time import perf_counter
from typing import Any

from torch import Tensor

from moreaugrad.attacks.base import Attack, predict_logits
from moreaugrad.attacks.result import AttackResult
from moreaugrad.cli import attack_report
from moreaugrad.cli.jobs import DONE, class_number, load, prepare
from moreaugrad.cli.request import Request
from moreaugrad.cli.terminal import Terminal
from moreaugrad.data.images import read_image
from moreaugrad.methods.base import Method
from moreaugrad.metrics import METRICS
from moreaugrad.models.classifier import Classifier
from moreaugrad.results import Explanation
from moreaugrad.studies import setup as contest
from moreaugrad.studies.setup import BudgetedMethod
from moreaugrad.types import Item, Watch, ignore_progress

SHOWN = ("normalised_distance", "topk_intersection", "ssim", "cosine", "spearman", "centre_shift")
QUICK = "implicit:5x16"  # a quarter of what the method's own slope costs


@dataclass(frozen=True, slots=True)
class Order:
    """What is attacked, by what, and how hard."""

    method: str = "sparse_moreau"
    attack: str = "topk"
    epsilon: float | None = None  # None: the attack's own, else contest.EPSILON
    norm: str | None = None  # None: the attack's own
    budget: int = 800  # gradients of a map that is judged
    attack_budget: int = 80  # of a map inside the attack
    seed: int = 0
    grad_mode: str | None = None  # None: QUICK, for methods that have modes


@dataclass(frozen=True, eq=False)
class Duel:
    """A method in three guises, and the attack on the first of them."""

    classifier: Classifier
    order: Order
    attack: Attack
    judge: Method
    second: Method  # the judge with another seed

    @classmethod
    def of(cls, classifier: Classifier, order: Order, options: dict[str, Any]) -> Duel:
        mine, theirs = contest.assign_options(options, [order.method], [order.attack])
        contender = BudgetedMethod(order.method, order.budget, order.attack_budget, order.seed, mine[order.method])
        if order.grad_mode is not None and not contender.has_modes:
            raise ValueError(f"grad_mode must be left out: {order.method} has one derivative, got {order.grad_mode!r}")
        mode = (order.grad_mode or QUICK) if contender.has_modes else None
        attacked = contender.make_attacked(classifier, mode)
        attack = contest.make_attack(
            order.attack, attacked, order.epsilon, order.norm, order.seed, theirs[order.attack]
        )
        judge, second = (contender.make_judge(classifier, second=each) for each in (False, True))
        return cls(classifier, order, attack, judge, second)

    def fight(self, x: Tensor, target: int | None = None, watch: Watch = ignore_progress) -> Affair:
        """The attack on one preprocessed image (1, C, H, W), and the judge's maps: fresh noise, the same for both."""
        x = x.contiguous()  # another layout in memory is rounded otherwise, and would look like a change
        began = perf_counter()
        found = self.attack.perturb(x, target, callback=watch)
        attacked = perf_counter()
        before, after, other = (
            method.explain(at, found.target)
            for method, at in ((self.judge, x), (self.judge, found.x), (self.second, x))
        )
        seconds = {"attack": round(attacked - began, 3), "maps": round(perf_counter() - attacked, 3)}
        by_chance = figures(before, other)
        said = [predict_logits(self.classifier, at).double().softmax(1)[0].cpu() for at in (x, found.x)]
        return Affair(self, x, found, before, after, figures(before, after), by_chance, said[0], said[1], seconds)


@dataclass(frozen=True, eq=False)
class Affair:
    """What came of an attack on one image."""

    duel: Duel
    x: Tensor
    found: AttackResult
    before: Explanation
    after: Explanation
    figures: dict[str, float]
    by_chance: dict[str, float]  # the same figures between two seeds, without an attack
    chances: Tensor  # of each class, before
    chances_after: Tensor
    seconds: dict[str, float] = field(default_factory=dict)


def attack_image(image: Path, order: Order, request: Request, terminal: Terminal) -> int:
    """OUT/<image>_attack.png and OUT/<image>_attack.json, and a few lines for people."""
    terminal.hear_warnings()
    item = Item(Path(image).stem, read_image(image))
    stem = request.out / f"{item.key}_attack"
    prepare(request.out, [f"{stem.name}.png", f"{stem.name}.json"], [image])
    classifier = load(request, terminal)
    duel = Duel.of(classifier, order, _pictured(request.options, classifier))
    target = class_number(request.target, classifier)
    with terminal.bar(f"{order.attack} on {order.method}") as watch:
        affair = duel.fight(classifier.preprocess(item.pixels)[None], target, watch)
    facts = {"file": str(image), "key": item.key} | attack_report.facts(affair)
    attack_report.write(affair, facts, stem)
    for line in attack_report.lines(facts):
        terminal.say(line)
    terminal.say(f"-> {stem}.png, {stem}.json")
    return DONE


def _pictured(options: dict[str, Any], classifier: Classifier) -> dict[str, Any]:
    """The options with the picture in place of its file, for an attack that is told one."""
    file = options.get("target_image")
    if not isinstance(file, str):
        return options
    return options | {"target_image": classifier.preprocess(read_image(Path(file)))[None]}


def figures(one: Explanation, other: Explanation) -> dict[str, float]:
    """All figures that two maps allow; NaN for those that need larger pictures."""
    found = {}
    for name in SHOWN:
        try:
            found[name] = float(METRICS[name](one.map, other.map))
        except ValueError:  # too small for a window
            found[name] = float("nan")
    return found
