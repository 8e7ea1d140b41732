"""One image, one attack: the map before it and after it, and what another seed alone changes."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from moreaugrad.attacks.base import Attack
from moreaugrad.attacks.result import AttackResult
from moreaugrad.methods.base import Method
from moreaugrad.metrics import METRICS
from moreaugrad.results import Explanation
from moreaugrad.studies.setup import BudgetedMethod, make_attack
from moreaugrad.types import Images, Target, Watch, ignore_progress

SHOWN = ("normalised_distance", "topk_intersection", "ssim", "cosine", "spearman", "centre_shift")
QUICK = "implicit:5x16"  # a quarter of the cost of the method's own derivative


@dataclass(frozen=True)
class TrialResult:
    """The maps of a trial.

    Attributes:
        attack: the changed image, and what the attack says of it.
        before, after: maps under noise that the attack has not seen, the same for both.
        other: the map before, under other noise.
    """

    attack: AttackResult
    before: Explanation
    after: Explanation
    other: Explanation

    def compare(self) -> dict[str, dict[str, Any]]:
        """Metrics of the map after the attack, and of one with another seed; NaN for those that need larger maps."""
        found: dict[str, dict[str, Any]] = {}
        for name in SHOWN:
            try:
                values = [float(METRICS[name](self.before.map, each.map)) for each in (self.after, self.other)]
            except ValueError:  # too small for a window
                values = [math.nan, math.nan]
            found[name] = {"attacked": values[0], "two_seeds": values[1], "more_robust": METRICS[name].direction}
        return found


@dataclass(frozen=True)
class Trial:
    """An attack on a method, and the method with two other seeds."""

    attacker: Attack
    judge: Method
    second: Method

    @classmethod
    def of(
        cls,
        model: Any,
        budgeted: BudgetedMethod,
        attack: str,
        *,
        derivative: str | None = None,
        epsilon: float | None = None,
        norm: str | None = None,
        options: Mapping[str, Any] | None = None,
    ) -> Trial:
        """The attack by its name, on the method by its own; `derivative`: of a map that has several."""
        if derivative is not None and not budgeted.has_modes:
            raise ValueError(f"derivative must be left out: {budgeted.method} has only one, got {derivative!r}")
        attacked = budgeted.make_attacked(model, (derivative or QUICK) if budgeted.has_modes else None)
        made = make_attack(attack, attacked, epsilon, norm, budgeted.seed, options or {})
        return cls(made, budgeted.make_judge(model), budgeted.make_judge(model, second=True))

    def attack(self, x: Images, target: Target, watch: Watch = ignore_progress) -> AttackResult:
        return self.attacker.perturb(x, target, callback=watch)

    def judge_maps(self, x: Images, found: AttackResult, watch: Watch = ignore_progress) -> TrialResult:
        """The maps at the image and at the changed one."""
        asked = ((self.judge, x), (self.judge, found.x), (self.second, x))
        before, after, other = (each.explain(at, found.target, callback=watch) for each, at in asked)
        return TrialResult(found, before, after, other)
