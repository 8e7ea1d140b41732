"""A certificate: what is promised about one map, on what grounds, and what is not promised."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from moreaugrad.certificates import checks_units as units_rules
from moreaugrad.certificates.theory import support_survivors, topk_overlap

_PAIRS = {
    "ideal": "the computed map at x and the ideal map at any x' within epsilon",
    "computed": "the computed maps at x and, with an error no larger, at an x' chosen before its noise, within epsilon",
}


@dataclass(frozen=True, eq=False, kw_only=True)
class Certificate:
    """For every change of the input of l2 length at most epsilon, with probability 1 - alpha over the noise drawn here.

    Lengths are l2, in units of the input and of the map. `units` are what is ranked: pixels (l2 over channels),
    entries, groups or cells. What does not apply is None. `vacuous`: it says nothing, and must not be sold as more.
    """

    recipe: str  # what it rests on: range, local, lipschitz, smooth, convex; or ranks, of Sparsified SmoothGrad
    assumption: str
    compared: str  # "ideal" or "computed": which pair of maps
    epsilon: float
    alpha: float  # 0: nothing random in it
    sigma: float | None
    samples: int  # of fresh noise, of which most judge the map and the others find it
    rho: float | None = None
    lam: float | None = None  # curvatures of the score lie in [-lam, beta]
    beta: float | None = None
    lipschitz: float | None = None  # of the ideal map
    residual: float = 0.0  # of the solver, on fresh noise
    sampling: float = 0.0  # how far the mean gradient may be from the truth
    error: float = 0.0  # how far the computed map may be from the ideal one
    budget: float = math.inf  # how far the maps may be apart
    dual_budget: float = math.inf  # and their gradients grad g(x + delta), which decide what enters
    norm: float = 0.0  # of the computed map
    units: str = "pixels"
    k: int = 1
    total: int = 1  # units in all
    overlap: int = 0  # of the k top units, how many stay, at least
    members: Bool[Tensor, "..."] | None = None  # top units each of which surely stays
    active: int | None = None  # non-zero units of a sparse map
    survivors: int | None = None  # of them, how many stay, at least
    entrants: int | None = None  # at most how many zeros become non-zero
    distance: float = 2.0  # between the maps over their lengths, at most
    cosine: float = -1.0  # at least
    map: Float[Tensor, "..."]
    method: Any = None  # with everything frozen that was found at x: the same function at x'
    target: Any = None
    scores: Callable[[Tensor], Tensor] | None = field(default=None, repr=False)  # map -> the size of each unit
    kept: Callable[[Tensor], Tensor] | None = field(default=None, repr=False)  # map -> the size of what the prior drops
    again: Callable[[float], Certificate] | None = field(default=None, repr=False)

    @property
    def vacuous(self) -> bool:
        by_counting = max(0, 2 * self.k - self.total)  # so many stay whatever is done
        return self.overlap <= by_counting or (self.recipe != "ranks" and not self.budget < self.norm)

    def at(self, epsilon: float) -> Certificate:
        """What the same measurements say of changes of another length."""
        assert self.again is not None
        return self.again(epsilon)

    def top(self, found: Tensor) -> Bool[Tensor, "units"]:
        """Which units of a map are its k largest."""
        assert self.scores is not None
        sizes = self.scores(found[None])[0]
        chosen = torch.zeros_like(sizes, dtype=torch.bool)
        chosen[sizes.topk(self.k).indices] = True
        return chosen & (sizes > 0)  # of zeros none is above another

    def overlap_with(self, other: Tensor) -> int:
        """How many of the k top units are among the k top of another map."""
        other = units_rules.like_map(other, self.map)
        return int((self.top(self.map) & self.top(other)).sum())

    def violations(self, other: Tensor, error: float = 0.0) -> tuple[str, ...]:
        """Which promises the map of a changed input breaks: none, for every change within epsilon.

        `error`: how far that map itself may be from the ideal one, where it is not certified by `compared`.
        """
        other = units_rules.like_map(other, self.map)
        assert self.scores is not None
        sure = self.overlap
        if error > 0 and sure:
            sure = topk_overlap(self.scores(self.map[None])[0], self.k, self.budget + error)
        broken = ["overlap"] if self.overlap_with(other) < sure else []
        if self.recipe == "ranks":
            return tuple(broken)
        error += 1e-9 * self.norm  # rounding of the norms below
        if float((other - self.map).norm()) > self.budget + error:
            broken.append("budget")
        if self.norm > 0 and self._distance(other) > self.distance + 2 * error / self.norm:
            broken.append("distance")
        if self.survivors is not None and self._support_broken(other, error):
            broken.append("support")
        return tuple(broken)

    def _distance(self, other: Tensor) -> float:
        lengths = float(self.map.norm()), float(other.norm())
        return float((self.map / lengths[0] - other / lengths[1]).norm()) if min(lengths) > 0 else 0.0

    def _support_broken(self, other: Tensor, error: float) -> bool:
        assert self.kept is not None
        assert self.entrants is not None
        sizes = self.kept(self.map[None])[0]
        before, after = sizes > 0, self.kept(other[None])[0] > 0
        lost = int((before & after).sum()) < support_survivors(sizes, self.budget + error)
        return lost or (error <= 1e-8 * self.norm and int((~before & after).sum()) > self.entrants)

    def __str__(self) -> str:
        return "\n".join([self._grounds(), self._promises(), self._limits()])

    def _grounds(self) -> str:
        noise = "no noise" if self.sigma is None else f"sigma {self.sigma:g}"
        words = f"Certificate by {self.recipe}: {self.assumption}; {noise}"
        if self.rho is None:
            return words + "."
        return words + (
            f", rho {self.rho:.4g}, curvature in [-{self.lam:.4g}, {self.beta:.4g}], so the ideal map is "
            f"{self.lipschitz:.4g}-Lipschitz."
        )

    def _promises(self) -> str:
        sure = "Surely, in exact arithmetic" if self.alpha == 0 else f"With probability {1 - self.alpha:g}"
        if not math.isfinite(self.budget) and self.recipe != "ranks":
            return f"Nothing can be said of changes up to epsilon = {self.epsilon:g}: the minimiser need not be unique."
        words = f"{sure}, between {_PAIRS[self.compared]} = {self.epsilon:g}: "
        told = [f"at least {self.overlap} of the top {self.k} {self.units} stay"]
        if self.recipe != "ranks":
            told.insert(0, f"the map moves by at most {self.budget:.4g} of its length {self.norm:.4g}")
            told.append(f"cosine at least {self.cosine:.3f}, normalised distance at most {self.distance:.3f}")
        if self.survivors is not None:
            told.append(f"{self.survivors} of {self.active} non-zeros stay, at most {self.entrants} come in")
        return words + "; ".join(told) + "."

    def _limits(self) -> str:
        if not self.vacuous:
            return self._why()
        empty = self.recipe == "ranks" or not self.budget < self.norm
        word = "this promises nothing" if empty else f"none of the top {self.units} is sure to stay"
        return f"VACUOUS: {word}. {self._why()}"

    def _why(self) -> str:
        """What the budget is spent on, so that a reader knows what would help."""
        if self.recipe == "ranks":
            return f"{self.samples} noise samples. Nothing is said of a map on other noise known to an attacker."
        if not math.isfinite(self.budget):
            return "A smaller rho, or rho='certified', would change that."
        moved = (self.lipschitz or 0.0) * self.epsilon
        return (
            f"Of the budget {moved:.3g} is the change of the input and {self.budget - moved:.3g} the error of the "
            f"computed map ({self.samples} fresh samples, residual {self.residual:.2g}). The class, eta, groups and "
            "sigma are fixed at x."
        )
