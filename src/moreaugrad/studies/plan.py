"""A study of robustness: which methods, which attacks, how large, on equal terms. Computes nothing.

The plan is a list of cells in a fixed order; a cell gives one row per image of a block.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from moreaugrad import validate
from moreaugrad.attacks import ATTACKS
from moreaugrad.attacks import checks as rules
from moreaugrad.methods import METHODS
from moreaugrad.methods.options import plain
from moreaugrad.metrics.checks import yes_or_no
from moreaugrad.studies.setup import Contender, led, metric, settable, slope

DISTANCE = "normalised_distance"  # by which the strongest mode is named
FLOOR, STRONGEST = "floor", "strongest"  # modes of rows that are no attack, and of those taken from several
EXACT, NO_SLOPE = "exact", "none"  # modes of methods with one derivative, and of attacks that need none
TRANSFER = "transfer"  # the mode of points that were found against the other methods


@dataclass(frozen=True, slots=True)
class Cell:
    """One method under one attack of one size, led by one slope."""

    method: str  # label
    attack: str = NO_SLOPE
    epsilon: float = 0.0
    mode: str = FLOOR


@dataclass(frozen=True, eq=False)
class Study:
    """Equal terms: every map costs `budget` gradients where a method has a choice, `attack_budget` inside attacks.

    A label of `methods` is the name of a method, or any word whose options name one: {"method": "moreau", ...}.
    Modes are those of MoreauGrad's `grad_mode`, also with a size, implicit:5x16; and "transfer", for every method the
    best of the points that were found against the others.
    """

    methods: Mapping[str, Mapping[str, Any]]  # label -> options
    attacks: Mapping[str, Mapping[str, Any]] = field(default_factory=lambda: {"topk": {}})  # name -> options
    epsilons: tuple[float, ...] = (0.3, 1.0, 3.0, 10.0)  # in the units of the network's input
    norm: str = "l2"
    modes: tuple[str, ...] = ("frozen", "unrolled", "implicit")
    metrics: tuple[str, ...] = (DISTANCE, "topk_intersection", "ssim")
    budget: int = 1600
    attack_budget: int = 400
    seed: int = 0
    common_noise: bool = True  # the attacked map sees the clean one's noise; False: noise of its own, as published
    scout: int | None = None  # gradients of maps that name the strongest mode, which alone is judged; None: all

    def __post_init__(self) -> None:
        for name in ("methods", "attacks", "epsilons", "modes"):
            given = getattr(self, name)
            if isinstance(given, str) or not len(given):
                raise ValueError(f"{name} must be a list of at least one, got {given!r}")
            if len(set(given)) < len(given):
                raise ValueError(f"{name} must differ, got {list(given)!r}")
        if not self.own_modes or (self.transfers and len(self.methods) < 2):
            raise ValueError("transfer must have other attacks to take points from, got one method, or no other mode")
        for label in self.methods:
            self._check(label)
        self._check_terms()
        object.__setattr__(self, "metrics", tuple(dict.fromkeys((DISTANCE, *self.metrics))))
        object.__setattr__(self, "epsilons", tuple(float(each) for each in self.epsilons))

    def _check_terms(self) -> None:
        for epsilon in self.epsilons:
            rules.epsilon(epsilon)
        for attack in self.attacks:
            ATTACKS[attack]
        for mode in self.own_modes:
            slope(mode)
        for name in self.metrics:
            metric(name)
        yes_or_no("common_noise", self.common_noise)
        if self.scout is not None:
            validate.at_least("scout", self.scout, 1)

    @classmethod
    def of(cls, methods: str, attacks: str = "topk", steps: int = 10, restarts: int = 1, **options: Any) -> Study:
        """From names with commas, each with its own defaults; steps and restarts go to the attacks that take them."""
        told = {"steps": steps, "restarts": restarts}
        each = {
            attack: {name: value for name, value in told.items() if name in settable(attack)}
            for attack in names(attacks)
        }
        return cls({name: {} for name in names(methods)}, each, **options)

    def _check(self, label: str) -> None:
        options = self.methods[label]
        METHODS[options.get("method", label)]
        for name in ("budget", "seed", "grad_mode"):
            if name in options:
                raise ValueError(f"{name} must be the same for all methods, got it among the options of {label}")
        self.contender(label)

    def contender(self, label: str) -> Contender:
        options = dict(self.methods[label])
        return Contender(options.pop("method", label), self.budget, self.attack_budget, self.seed, options, self.scout)

    @property
    def own_modes(self) -> tuple[str, ...]:
        """Those that lead an attack on the method itself."""
        return tuple(mode for mode in self.modes if mode != TRANSFER)

    @property
    def transfers(self) -> bool:
        return TRANSFER in self.modes

    def modes_of(self, label: str, attack: str) -> tuple[str, ...]:
        if not led(attack):
            return (NO_SLOPE,)
        own = self.own_modes if self.contender(label).has_modes else (EXACT,)
        return (*own, TRANSFER) if self.transfers else own

    def cells(self) -> Iterator[Cell]:
        """By method the floor, then for every attack and size each mode and the strongest of them.

        Points travel once all methods have been attacked, and only then is it known which attack was the strongest.
        """
        late = []
        for label in self.methods:
            yield Cell(label)
            for attack in self.attacks:
                for epsilon in self.epsilons:
                    modes = (*self.modes_of(label, attack), STRONGEST)
                    for cell in (Cell(label, attack, epsilon, mode) for mode in modes):
                        if self.transfers and cell.mode in (TRANSFER, STRONGEST):
                            late.append(cell)
                        else:
                            yield cell
        yield from late

    def sources(self, cell: Cell) -> list[Cell]:
        """The attacks on the other methods whose points a cell of transfer tries."""
        return [
            replace(cell, method=label, mode=mode)
            for label in self.methods
            for mode in self.modes_of(label, cell.attack)
            if label != cell.method and mode != TRANSFER
        ]

    def told(self) -> dict[str, Any]:
        """As JSON can hold it; what it cannot is described."""
        return {name: plain(getattr(self, name)) for name in self.__dataclass_fields__}


def names(text: str) -> list[str]:
    """a, b, c"""
    return [each.strip() for each in text.split(",") if each.strip()]
