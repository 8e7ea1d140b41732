"""An attack on a method, and its judge: who is attacked, with which noise, and by which figures.

Streams of noise that never meet: the attacked map's, the judge's, a second judge's, the attack's start, the scout's.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import MISSING, dataclass, field, fields, replace
from inspect import signature
from typing import Any

from torch import Tensor

from moreaugrad import validate
from moreaugrad.attacks import ATTACKS
from moreaugrad.attacks.base import Attack, MapAttack
from moreaugrad.attacks.goal import ClassAttack
from moreaugrad.attacks.result import Attacked
from moreaugrad.methods.options import make_method, option_names
from moreaugrad.envelope.derivative import Slope
from moreaugrad.methods.base import Method
from moreaugrad.metrics import METRICS, Metric
from moreaugrad.registry import unknown
from moreaugrad.types import Flags, PerImage

ATTACKED, JUDGE, SECOND, START, SCOUT = range(5)  # added to the seed
EPSILON = 3.0  # of an attack that must have a size and was told none
SETTLED = ("attacked", "epsilon", "norm", "seed")  # fields of an attack that are not among its options


@dataclass(frozen=True, eq=False)
class Contender:
    """A method with a budget while it is attacked, and another, mostly larger one while it is judged."""

    method: str
    budget: int  # sample-gradients of a map; methods without a budget take it as samples, others not at all
    attack_budget: int
    seed: int = 0
    options: Mapping[str, Any] = field(default_factory=dict)
    scout: int | None = None  # gradients of a map by which attacks are compared before one is judged

    def __post_init__(self) -> None:
        known = option_names(self.method)
        for name in self.options:
            if name not in known:
                raise unknown(f"an option of {self.method}", name, known)
        for name in ("budget", "attack_budget"):
            validate.at_least(name, getattr(self, name), 1)
        validate.at_least("seed", self.seed, 0)

    @property
    def has_modes(self) -> bool:
        """Whether its map can be differentiated in several ways."""
        return "grad_mode" in option_names(self.method)

    def attacked(self, model: Any, mode: str | None = None) -> Method:
        told = {} if mode is None else {"grad_mode": slope(mode)}
        return self._made(model, self.attack_budget, ATTACKED, told)

    def judged(self, model: Any, second: bool = False) -> Method:
        """With fresh noise: the attack has not seen it. The second judge shows what noise alone changes."""
        found = self._made(model, self.budget, SECOND if second else JUDGE, {})
        if found.several is not None:
            raise ValueError("an attack needs one map per image, got a list of eta or sparsity; give one value")
        return found

    def scouting(self, model: Any) -> Method | None:
        """Cheaper than the judge, and with noise of its own: whoever is chosen by it was not chosen by the judge's."""
        return None if self.scout is None else self._made(model, self.scout, SCOUT, {})

    def _made(self, model: Any, budget: int, stream: int, told: Mapping[str, Any]) -> Method:
        known, options = option_names(self.method), dict(self.options)
        if "budget" in known:
            options["budget"] = budget
        elif "smoothing" in options:
            options["smoothing"] = replace(options["smoothing"], samples=budget)
        elif "samples" in known:
            options["samples"] = budget
        if "seed" in known:
            options["seed"] = self.seed + stream
        return make_method(self.method, model, {**options, **told})


def slope(mode: str) -> Slope:
    """implicit, unrolled, ...; or with steps and samples of its own, as in implicit:5x16."""
    name, colon, size = mode.partition(":")
    if not colon:
        return Slope(name)
    steps, _, samples = size.partition("x")
    if not (steps.isdecimal() and samples.isdecimal()):
        raise ValueError(f"a mode must be a name, or NAME:STEPSxSAMPLES such as implicit:5x16, got {mode!r}")
    return Slope(name, int(steps), int(samples))


def led(attack: str) -> bool:
    """Whether the attack follows the slope of a map."""
    return issubclass(ATTACKS[attack].load(), MapAttack)


def changes_class(attack: str) -> bool:
    """Whether the attack is meant to change what the model predicts."""
    return "class" in ATTACKS[attack].flags or issubclass(ATTACKS[attack].load(), ClassAttack)


def settable(attack: str) -> list[str]:
    """The options of an attack."""
    return [each.name for each in fields(ATTACKS[attack].load()) if each.init and each.name not in SETTLED]


def make_attack(
    attack: str, method: Method, epsilon: float | None, norm: str | None, seed: int, options: Mapping[str, Any]
) -> Attack:
    """The attack; its own norm where none is told, and its own size where it has one."""
    if "weights" in ATTACKS[attack].flags:
        raise ValueError(f"an attack must change images, got {attack!r}, which changes the network; use it in Python")
    known = settable(attack)
    for name in options:
        if name not in known:
            raise unknown(f"an option of {attack}", name, known)
    kind, given = ATTACKS[attack].load(), dict(options)
    size = next(each for each in fields(kind) if each.name == "epsilon")
    given |= {} if norm is None else {"norm": norm}
    given |= {} if epsilon is None and not _required(size) else {"epsilon": EPSILON if epsilon is None else epsilon}
    needed = [each.name for each in fields(kind) if each.name in known and _required(each)]
    if missing := [name for name in needed if name not in given]:
        raise ValueError(f"{attack} must be told its {' and '.join(missing)}, got nothing; --set {missing[0]}=...")
    made: Attack = ATTACKS[attack](method, seed=seed + START, **given)
    return made


def _required(option: Any) -> bool:
    return option.default is MISSING and option.default_factory is MISSING


def valid(attack: str, found: Attacked) -> Flags:
    """Whether the attack did what it is for: attacks on maps keep the prediction, those on the class change it."""
    return found.success if changes_class(attack) else found.success & found.kept


def metric(name: str) -> tuple[Metric, dict[str, bool]]:
    """A metric that compares two maps, and its flag where one is named: ssim:raw, normalised_distance:signed."""
    plain, colon, flag = name.partition(":")
    entry = METRICS[plain]
    if entry.needs != "pair":
        known = [each for each in METRICS if METRICS[each].needs == "pair"]
        raise ValueError(f"metrics must compare two maps, so be among {known}, got {name!r}")
    flags = [each.name for each in signature(entry.load()).parameters.values() if each.default is False]
    if colon and flag not in flags:
        raise unknown(f"a flag of {plain}", flag, flags)
    return entry, {flag: True} if colon else {}


def figures(names: Sequence[str], before: Tensor, after: Tensor) -> dict[str, PerImage]:
    found = {}
    for name in names:
        entry, flags = metric(name)
        found[name] = entry(before, after, **flags)
    return found


def shared_out(
    options: Mapping[str, Any], methods: Sequence[str], attacks: Sequence[str]
) -> tuple[dict[str, dict[str, Any]], dict[str, dict[str, Any]]]:
    """Options as typed -> those of each method and of each attack.

    One goes to the methods that take it, else to the attacks that do; NAME.option to that method or attack alone.
    """
    of_methods: dict[str, dict[str, Any]] = {name: {} for name in methods}
    of_attacks: dict[str, dict[str, Any]] = {name: {} for name in attacks}
    takers = ({name: option_names(name) for name in methods}, {name: settable(name) for name in attacks})
    for typed, value in options.items():
        owner, _, option = typed.rpartition(".")
        found = [
            each[name]
            for known, each in zip(takers, (of_methods, of_attacks), strict=True)
            for name in known
            if option in known[name] and owner in ("", name)
        ]
        in_methods = [each for each in found if any(each is mine for mine in of_methods.values())]
        for each in in_methods or found:
            each[option] = value
        if not found:
            every = sorted({one for known in takers for some in known.values() for one in some})
            raise unknown(f"an option of {', '.join([*methods, *attacks])}", typed, every)
    return of_methods, of_attacks
