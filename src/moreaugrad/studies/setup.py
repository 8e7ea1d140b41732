"""What a study attacks and judges with: methods with their budgets and noise, attacks and metrics by name.

The attacked map, its two judges, the attack's start and the scout each draw from their own stream of noise.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import MISSING, dataclass, field, fields, replace
from inspect import signature
from typing import Any

from torch import Tensor

from moreaugrad import validate
from moreaugrad.attacks import ATTACKS
from moreaugrad.attacks.base import Attack, ClassAttack
from moreaugrad.attacks.map_attack import MapAttack
from moreaugrad.attacks.result import AttackResult
from moreaugrad.envelope.derivative import parse_derivative
from moreaugrad.methods import METHODS
from moreaugrad.methods.base import Method
from moreaugrad.methods.options import make_method, option_names, takes_option
from moreaugrad.metrics import METRICS, Metric
from moreaugrad.model import STATISTICS
from moreaugrad.registry import unknown
from moreaugrad.types import Flags, PerImage

ATTACKED, JUDGE, SECOND, START, SCOUT = range(5)  # streams of noise, added to the seed
EPSILON = 3.0  # of an attack that needs a size and was given none
NOT_OPTIONS = ("attacked", "epsilon", "norm", "seed")  # fields of an attack that are arguments of their own
Options = dict[str, dict[str, Any]]  # of each method or attack, by its name


@dataclass(frozen=True, eq=False)
class BudgetedMethod:
    """A method with one budget inside an attack and another, usually larger, for the maps that are judged."""

    method: str
    budget: int  # gradients of a judged map; taken as samples by methods without a budget, and ignored by others
    attack_budget: int
    seed: int = 0
    options: Mapping[str, Any] = field(default_factory=dict)
    scout: int | None = None  # gradients of the cheaper maps that compare attacks before one is judged

    def __post_init__(self) -> None:
        _check_options(self.method, self.options, option_names(self.method))
        for name, least in (("budget", 1), ("attack_budget", 1), ("seed", 0)):
            validate.at_least(name, getattr(self, name), least)

    @property
    def has_modes(self) -> bool:
        """Whether its map can be differentiated in several ways."""
        return "derivative" in option_names(self.method)

    @property
    def has_slopes(self) -> bool:
        """Whether other statistics of its gradients can lead an attack."""
        kind = METHODS[self.method].load()
        return getattr(kind, "with_statistic", None) is not Method.with_statistic

    def make_attacked(self, model: Any, mode: str | None = None) -> Method:
        """The method as an attack sees it, differentiated by `mode`: implicit, unrolled, implicit:5x16, ..."""
        options = {} if mode is None else {"derivative": parse_derivative(mode)}
        return self._make(model, self.attack_budget, ATTACKED, options)

    def make_judge(self, model: Any, second: bool = False) -> Method:
        """With noise that the attack has not seen. The second judge shows what noise alone changes."""
        found = self._make(model, self.budget, SECOND if second else JUDGE)
        if found.several is not None:
            raise ValueError("an attack needs one map per image, got a list of eta or sparsity; give one value")
        return found

    def make_scout(self, model: Any) -> Method | None:
        """Cheaper than the judge. Uses its own noise, so that selection does not bias the final measurement."""
        return None if self.scout is None else self._make(model, self.scout, SCOUT)

    def _make(self, model: Any, budget: int, stream: int, extra: Mapping[str, Any] | None = None) -> Method:
        known, options = option_names(self.method), dict(self.options)
        if "budget" in known:
            options["budget"] = budget
        elif "smoothing" in options:
            options["smoothing"] = replace(options["smoothing"], samples=budget)
        elif "samples" in known:
            options["samples"] = budget
        if "seed" in known:
            options["seed"] = self.seed + stream
        return make_method(self.method, model, options | dict(extra or {}))


def parse_mode(mode: str) -> object:
    """What leads an attack: the slope of a statistic, or a way to differentiate the map."""
    return STATISTICS[mode] if mode in STATISTICS else parse_derivative(mode)


def needs_derivative(attack: str) -> bool:
    """Whether the attack follows the derivative of a map."""
    return issubclass(ATTACKS[attack].load(), MapAttack)


def changes_class(attack: str) -> bool:
    """Whether the attack is meant to change what the model predicts."""
    return "class" in ATTACKS[attack].flags or issubclass(ATTACKS[attack].load(), ClassAttack)


def is_valid(attack: str, found: AttackResult) -> Flags:
    """Whether the attack did what it is for: attacks on maps keep the prediction, those on the class change it."""
    return found.success if changes_class(attack) else found.success & found.kept


def attack_options(attack: str) -> list[str]:
    """The names of an attack's options."""
    return [each.name for each in fields(ATTACKS[attack].load()) if each.init and each.name not in NOT_OPTIONS]


def make_attack(
    attack: str, method: Method, epsilon: float | None, norm: str | None, seed: int, options: Mapping[str, Any]
) -> Attack:
    """The attack on a method; None leaves the attack its own norm, and its own size where it has one."""
    if "weights" in ATTACKS[attack].flags:
        raise ValueError(f"an attack must change images, got {attack!r}, which changes the network; use it in Python")
    known = attack_options(attack)
    _check_options(attack, options, known)
    every = fields(ATTACKS[attack].load())
    required = [each.name for each in every if each.default is MISSING and each.default_factory is MISSING]
    given = dict(options) | ({} if norm is None else {"norm": norm})
    if epsilon is not None or "epsilon" in required:
        given["epsilon"] = EPSILON if epsilon is None else epsilon
    if missing := [name for name in required if name in known and name not in given]:
        raise ValueError(f"{attack} needs its {' and '.join(missing)}, got nothing; --set {missing[0]}=...")
    made: Attack = ATTACKS[attack](method, seed=seed + START, **given)
    return made


def find_metric(name: str) -> tuple[Metric, dict[str, bool]]:
    """A metric that compares two maps, and its flag where one is named: ssim:raw, normalised_distance:signed."""
    if not isinstance(name, str):
        raise TypeError(f"metrics must be names of metrics, got {name!r}")
    bare, colon, flag = name.partition(":")
    entry = METRICS[bare]
    if entry.needs != "pair":
        known = [each for each in METRICS if METRICS[each].needs == "pair"]
        raise ValueError(f"metrics must compare two maps, so be among {known}, got {name!r}")
    flags = [each.name for each in signature(entry.load()).parameters.values() if each.default is False]
    if colon and flag not in flags:
        raise unknown(f"a flag of {bare}", flag, flags)
    return entry, {flag: True} if colon else {}


def compare_maps(names: Sequence[str], before: Tensor, after: Tensor) -> dict[str, PerImage]:
    """Each metric between two batches of maps."""
    metrics = {name: find_metric(name) for name in names}
    return {name: metric(before, after, **flags) for name, (metric, flags) in metrics.items()}


def assign_options(
    options: Mapping[str, Any], methods: Sequence[str], attacks: Sequence[str]
) -> tuple[Options, Options]:
    """Options as typed -> those of each method and of each attack.

    An option goes to the methods that take it, else to the attacks that do; NAME.option to that method or attack alone.
    """
    families = [{name: option_names(name) for name in methods}, {name: attack_options(name) for name in attacks}]
    found: tuple[Options, Options] = ({name: {} for name in methods}, {name: {} for name in attacks})
    for typed, value in options.items():
        owner, _, option = typed.rpartition(".")
        for known, given in zip(families, found, strict=True):
            takers = [name for name in known if option in known[name] and owner in ("", name)]
            if not owner and known is families[0]:  # each option by itself decides what it is meant for
                takers = [name for name in takers if takes_option(name, option, options)]
            for name in takers:
                given[name][option] = value
            if takers:
                break
        else:
            every = sorted({one for known in families for some in known.values() for one in some})
            raise unknown(f"an option of {', '.join([*methods, *attacks])}", typed, every)
    return found


def _check_options(owner: str, options: Mapping[str, Any], known: list[str]) -> None:
    for name in options:
        if name not in known:
            raise unknown(f"an option of {owner}", name, known)
