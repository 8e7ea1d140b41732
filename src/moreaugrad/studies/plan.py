"""The plan of a study: which methods, attacks, sizes and budgets. Computes nothing.

The plan is a list of cells in a fixed order; a cell gives one row per image of a block.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from moreaugrad import limits, validate
from moreaugrad.attacks import ATTACKS
from moreaugrad.attacks.base import check_epsilon
from moreaugrad.methods.options import plain
from moreaugrad.metrics.maps import require_boolean
from moreaugrad.model import STATISTICS
from moreaugrad.studies.setup import BudgetedMethod, find_metric, needs_derivative, parse_mode

DISTANCE = "normalised_distance"  # names the strongest mode
FLOOR, STRONGEST = "floor", "strongest"  # modes of rows without an attack, and of the strongest of several
EXACT, NO_DERIVATIVE = "exact", "none"  # modes of methods with one derivative, and of attacks that need none
TRANSFER = "transfer"  # the mode of points that were found against the other methods
CHECKS: dict[str, Callable[[Any], object]] = {
    "epsilons": check_epsilon,
    "attacks": ATTACKS.__getitem__,
    "own_modes": parse_mode,
    "metrics": find_metric,
}


@dataclass(frozen=True, slots=True)
class Cell:
    """One method under one attack of one size, along one derivative."""

    method: str  # label
    attack: str = NO_DERIVATIVE
    epsilon: float = 0.0
    mode: str = FLOOR


@dataclass(frozen=True, eq=False)
class Study:
    """The plan of a comparison of methods under attack, on equal terms.

    Every method is attacked along every derivative it has; for each image the strongest attack counts. Maps are judged
    with noise that the attack has not seen, and every judged map costs `budget` gradients where a method has a choice.
    `run_study` carries it out.

    Args:
        methods: label -> options. A label is the name of a method, or any word whose options name one:
            `{"sparse": {"method": "sparse_moreau", "eta": 0.01}}`.
        attacks: name -> options of each attack.
        epsilons: sizes of the attacks, in the units of the network's input.
        norm: norm of those sizes, "l2" or "linf".
        modes: derivatives that lead the attacks, for methods with several: "frozen", "unrolled", "implicit",
            "covariance", also with steps and samples ("implicit:5x16"); "square" and other names in `STATISTICS`: the
            slope of that statistic, for methods that average gradients under noise; "transfer" tries, for every
            method, the points that were found against the other methods.
        metrics: metrics that compare two maps, also with a flag ("ssim:raw"). The normalised distance, which names the
            strongest mode, is always among them.
        budget: gradients of a map that is judged.
        attack_budget: gradients of a map inside an attack.
        seed: first of the seeds; the attack, its judges and its start each use their own.
        common_noise: whether the attacked map is judged with the noise of the clean one; False draws fresh noise, as
            the published protocol does.
        scout: gradients of the cheaper maps that name the strongest mode, which alone is then judged; None judges all.

    Raises:
        ValueError: for an unknown name or option, or a budget, size or metric that cannot be used.

    Example:
        >>> study = mg.Study({"gradient": {}, "moreau": {"rho": 0.5}}, epsilons=(1.0, 3.0), budget=32, attack_budget=16)
        >>> study.modes_of("moreau", "topk")
        ('frozen', 'unrolled', 'implicit')
        >>> len(list(study.cells()))
        14
    """

    methods: Mapping[str, Mapping[str, Any]]
    attacks: Mapping[str, Mapping[str, Any]] = field(default_factory=lambda: {"topk": {}})
    epsilons: tuple[float, ...] = (0.3, 1.0, 3.0, 10.0)
    norm: str = "l2"
    modes: tuple[str, ...] = ("frozen", "unrolled", "implicit")
    metrics: tuple[str, ...] = (DISTANCE, "topk_intersection", "ssim")
    budget: int = 1600
    attack_budget: int = 400
    seed: int = 0
    common_noise: bool = True
    scout: int | None = None

    def __post_init__(self) -> None:
        limits.take_plain_numbers(self)
        self._check_lists()
        if not self.own_modes or (self.transfers and len(self.methods) < 2):
            raise ValueError("transfer must have other attacks to take points from, got one method, or no other mode")
        for label, options in self.methods.items():
            for name in ("budget", "seed", "derivative"):
                if name in options:
                    raise ValueError(f"{name} must be the same for all methods, got it among the options of {label}")
            self.budgeted(label)
        require_boolean("common_noise", self.common_noise)
        if self.scout is not None:
            validate.at_least("scout", self.scout, 1)
        object.__setattr__(self, "metrics", tuple(dict.fromkeys((DISTANCE, *self.metrics))))
        object.__setattr__(self, "epsilons", tuple(float(each) for each in self.epsilons))

    def _check_lists(self) -> None:
        """Each list has entries that are known, and none twice."""
        for name in ("methods", "attacks", "epsilons", "modes", "metrics"):
            given: Any = getattr(self, name)
            kind = Mapping if name in ("methods", "attacks") else Collection
            if not isinstance(given, kind) or isinstance(given, str | bytes):
                raise TypeError(f"{name} must be a {'dict' if kind is Mapping else 'tuple'}, got {given!r}")
            if name != "metrics" and not len(given):
                raise ValueError(f"{name} must be a list of at least one, got {given!r}")
        for name, options in [*self.methods.items(), *self.attacks.items()]:
            if not isinstance(name, str) or not isinstance(options, Mapping):
                raise TypeError(f"methods and attacks must be dicts of options by name, got {name!r}: {options!r}")
        for name, check in CHECKS.items():
            for each in getattr(self, name):
                check(each)
        for name in ("epsilons", "modes"):
            given = getattr(self, name)
            if len(set(given)) < len(given):
                raise ValueError(f"{name} must differ, got {list(given)!r}")

    def budgeted(self, label: str) -> BudgetedMethod:
        """The method of a label with the budgets of this study."""
        options = dict(self.methods[label])
        name = options.pop("method", label)
        return BudgetedMethod(name, self.budget, self.attack_budget, self.seed, options, self.scout)

    @property
    def own_modes(self) -> tuple[str, ...]:
        """The modes that attack the method itself."""
        return tuple(mode for mode in self.modes if mode != TRANSFER)

    @property
    def transfers(self) -> bool:
        """Whether points that were found against other methods are tried."""
        return TRANSFER in self.modes

    def modes_of(self, label: str, attack: str) -> tuple[str, ...]:
        """The modes in which an attack is made on one method."""
        if not needs_derivative(attack):
            return (NO_DERIVATIVE,)
        method = self.budgeted(label)
        ways = tuple(mode for mode in self.own_modes if mode not in STATISTICS)
        slopes = tuple(mode for mode in self.own_modes if mode in STATISTICS) if method.has_slopes else ()
        named = ways if method.has_modes else ways and (EXACT,)
        own = (*named, *slopes) or (EXACT,)
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
                    for mode in modes:
                        if self.transfers and mode in (TRANSFER, STRONGEST):
                            late.append(Cell(label, attack, epsilon, mode))
                        else:
                            yield Cell(label, attack, epsilon, mode)
        yield from late

    def transfer_sources(self, cell: Cell) -> list[Cell]:
        """The attacks on the other methods whose points a transfer cell tries."""
        return [
            replace(cell, method=label, mode=mode)
            for label in self.methods
            for mode in self.modes_of(label, cell.attack)
            if label != cell.method and mode != TRANSFER
        ]

    def as_json(self) -> dict[str, Any]:
        """The fields as JSON can hold them; objects by their repr."""
        return {name: plain(getattr(self, name)) for name in self.__dataclass_fields__}
