"""A certificate: what is promised about one map, on what grounds, and what is not promised."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable
from dataclasses import dataclass, field, fields
from typing import Any

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from moreaugrad.certificates.theory import Box, box_overlap, support_survivors, topk_overlap
from moreaugrad.certificates.values import ValueGuarantee

_PAIRS = {
    "ideal": "the computed map at x and the ideal map at any x' within epsilon",
    "computed": "the computed maps at x and, with an error no larger, at an x' chosen before its noise, within epsilon",
}


@dataclass(frozen=True, slots=True)
class MapConstants:
    """Constants of the ideal map.

    Attributes:
        sigma: of the noise; None without.
        rho: envelope radius; this and the rest are None for votes and for Sparsified SmoothGrad.
        lam, beta: curvatures of the score lie in [-lam, beta].
        lipschitz: `|map(x') - map(x)| <= lipschitz |x' - x|`.

    Example:
        >>> mg.MapConstants(sigma=0.25, rho=0.1).rho
        0.1
    """

    sigma: float | None = None
    rho: float | None = None
    lam: float | None = None
    beta: float | None = None
    lipschitz: float | None = None


@dataclass(frozen=True, slots=True)
class MapAccuracy:
    """How well the map was computed.

    Attributes:
        samples: of fresh noise, of which most judge the map and the others find it.
        residual: of the solver, on fresh noise, in units of the map.
        sampling: how far the mean gradient may be from the truth.
        error: how far the computed map may be from the ideal one.

    Example:
        >>> mg.MapAccuracy(samples=10_000, error=0.01).error
        0.01
    """

    samples: int = 0
    residual: float = 0.0
    sampling: float = 0.0
    error: float = 0.0


@dataclass(frozen=True, slots=True)
class MapChange:
    """How far the map may move.

    Attributes:
        budget: l2 distance between the maps, at most.
        dual_budget: the same of their gradients grad g(x + delta), which decide what enters a sparse map.
        norm: l2 length of the computed map.
        distance: between the maps over their lengths, at most.
        cosine: between the maps, at least.

    Example:
        >>> mg.MapChange().budget  # nothing is known
        inf
    """

    budget: float = math.inf
    dual_budget: float = math.inf
    norm: float = 0.0
    distance: float = 2.0
    cosine: float = -1.0


@dataclass(frozen=True, eq=False, slots=True)
class TopKGuarantee:
    """Which of the largest units stay among the largest.

    Attributes:
        units: what is ranked: pixels (l2 over channels), entries, groups or cells.
        k: how many are the top, of `total`.
        overlap: how many of the k top units stay, at least.
        members: the units each of which surely stays; None where that is not known.
        sizes: map (1, ...) -> the size of each unit (1, total).

    Example:
        >>> mg.TopKGuarantee("entries", k=2, total=4).sizes(torch.tensor([[1.0, -2.0]]))
        tensor([[1., 2.]])
    """

    units: str = "pixels"
    k: int = 1
    total: int = 1
    overlap: int = 0
    members: Bool[Tensor, "..."] | None = None
    sizes: Callable[[Tensor], Tensor] = field(default=lambda maps: maps.abs().flatten(1), repr=False)


@dataclass(frozen=True, eq=False, slots=True)
class SupportGuarantee:
    """Which units of a sparse map stay zero or non-zero.

    Attributes:
        active: non-zero units of the map.
        survivors: how many of them stay non-zero, at least.
        entrants: how many zeros become non-zero, at most.
        sizes: map (1, ...) -> the size of each unit that the prior keeps or drops.

    Example:
        >>> mg.SupportGuarantee(active=5, survivors=3, entrants=1, sizes=torch.abs).survivors
        3
    """

    active: int
    survivors: int
    entrants: int
    sizes: Callable[[Tensor], Tensor] = field(repr=False)


_GROUP_OF = {  # where each number is, by the names that stored reports use
    each.name: group
    for group, kind in {
        "constants": MapConstants,
        "accuracy": MapAccuracy,
        "change": MapChange,
        "topk": TopKGuarantee,
        "support": SupportGuarantee,
    }.items()
    for each in fields(kind)
    if each.name != "sizes"
}
_KEYS = ("recipe", "assumption", "compared", "epsilon", "alpha", *(each for each in _GROUP_OF if each != "members"))


@dataclass(frozen=True, eq=False, kw_only=True, repr=False)
class Certificate:
    """For every change of the input of l2 length at most epsilon, with probability 1 - alpha over the noise drawn here.

    Lengths are l2, in units of the input and of the map. Made by `certify`; `str(certificate)` says it in words.

    Attributes:
        recipe: what it rests on: range, local, lipschitz, smooth, convex; votes; or ranks, of Sparsified SmoothGrad.
        assumption: the same in words.
        compared: which pair of maps: "ideal" or "computed".
        epsilon: l2 length of the changes, in units of the input.
        alpha: the chance that it is wrong; 0: nothing random in it.
        map: the certified map, without a batch axis.
        method: with everything frozen that was found at x: the same function at x'.
        target: the class.
        constants, accuracy, change, topk: see `MapConstants`, `MapAccuracy`, `MapChange`, `TopKGuarantee`.
        support: a `SupportGuarantee` for maps with an L1 or group prior, else None.
        values: a `ValueGuarantee` for maps of votes, else None.

    Example:
        >>> score = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Tanh(), torch.nn.Linear(768, 4)).eval()
        >>> method = mg.MoreauGrad(score, rho=0.1, smoothing=None, budget=20)
        >>> found = mg.certify(method, x[:1], 0, epsilon=0.01, assume=mg.Assumptions(curvature="exact"))[0]
        >>> found.violations(method.attribute(x[:1] + 1e-5, 0)[0])
        ()
        >>> found.at(0.001).change.budget < found.change.budget
        True
    """

    recipe: str
    assumption: str
    compared: str
    epsilon: float
    alpha: float
    map: Float[Tensor, "..."]
    method: Any = None
    target: Any = None
    constants: MapConstants = field(default_factory=MapConstants)
    accuracy: MapAccuracy = field(default_factory=MapAccuracy)
    change: MapChange = field(default_factory=MapChange)
    topk: TopKGuarantee = field(default_factory=TopKGuarantee)
    support: SupportGuarantee | None = None
    values: ValueGuarantee | None = None
    restate: Callable[[float], Certificate] | None = field(default=None, repr=False)  # for another epsilon

    def __getattr__(self, name: str) -> Any:
        """The numbers under their former names, which were all attributes of the certificate itself."""
        if name not in _GROUP_OF:
            raise AttributeError(f"Certificate has no attribute {name!r}")
        now = f"certificate.{_GROUP_OF[name]}.{name}"
        warnings.warn(f"certificate.{name} is now {now}", DeprecationWarning, stacklevel=2)
        return self._get(name)

    def _get(self, name: str) -> Any:
        return getattr(getattr(self, _GROUP_OF[name]) if name in _GROUP_OF else self, name, None)

    def record(self) -> dict[str, str | float | int | None]:
        """Every number and word by its name, as the command line stores them.

        Returns:
            recipe, epsilon, budget, overlap and the others; None where one does not apply.
        """
        return {name: self._get(name) for name in _KEYS}

    @property
    def vacuous(self) -> bool:
        """Whether it says nothing, and must not be sold as more."""
        by_counting = max(0, 2 * self.topk.k - self.topk.total)  # so many stay whatever is done
        if self.values is not None:
            return self.topk.overlap <= by_counting and (self.support is None or not self.support.survivors)
        return self.topk.overlap <= by_counting or (self.recipe != "ranks" and not self._shorter)

    @property
    def _shorter(self) -> bool:
        """Whether the map cannot be moved by its whole length."""
        return self.change.budget < self.change.norm

    def at(self, epsilon: float) -> Certificate:
        """What the same measurements say of changes of another length.

        Args:
            epsilon: l2 length of the changes, in units of the input.

        Returns:
            A certificate for that length; costs no run of the network.
        """
        if self.restate is None:
            raise ValueError("a certificate of another epsilon must rest on a measurement, got none; call certify")
        return self.restate(epsilon)

    def top(self, found: Tensor) -> Bool[Tensor, "units"]:
        """Which units of a map are its k largest; zeros never are.

        Args:
            found: a map of the shape of `map`.

        Returns:
            One flag for each unit.
        """
        sizes = self.topk.sizes(found[None])[0]
        chosen = torch.zeros_like(sizes, dtype=torch.bool)
        chosen[sizes.topk(self.topk.k).indices] = True
        return chosen & (sizes > 0)  # of zeros none is above another

    def overlap_with(self, other: Tensor) -> int:
        """How many of the k top units are among the k top of another map, of the shape of `map`."""
        return int((self.top(self.map) & self.top(self._like_map(other))).sum())

    def violations(self, other: Tensor, error: float = 0.0) -> tuple[str, ...]:
        """Which promises the map of a changed input breaks: none, for every change within epsilon.

        Args:
            other: that map, of the shape of `map`.
            error: how far it may itself be from the ideal one, where that is not certified by `compared`.

        Returns:
            Among "overlap", "budget", "distance", "values" and "support", those that are broken.
        """
        other = self._like_map(other)
        broken = ["overlap"] if self.overlap_with(other) < self._bound_overlap(error) else []
        if self.recipe == "ranks":
            return tuple(broken)
        norm = self.change.norm
        error += 1e-9 * norm  # rounding of the norms below
        if float((other - self.map).norm()) > self.change.budget + error:
            broken.append("budget")
        lengths = float(self.map.norm()), float(other.norm())
        if min(norm, *lengths) > 0:
            moved = float((self.map / lengths[0] - other / lengths[1]).norm())
            broken += ["distance"] if moved > self.change.distance + 2 * error / norm else []
        if self.values is not None and not self.values.holds(other, error):
            broken.append("values")
        if self.support is not None and self._breaks_support(self.support, other, error):
            broken.append("support")
        return tuple(broken)

    def _bound_overlap(self, error: float) -> int:
        """How many of the top units stay in a map that may be off by so much."""
        if error == 0 or not self.topk.overlap:
            return self.topk.overlap
        sizes = self.topk.sizes(self.map[None])[0]
        if self.values is None:
            return topk_overlap(sizes, self.topk.k, self.change.budget + error)
        lower, upper = (self.topk.sizes(each[None])[0] for each in (self.values.lower, self.values.upper))
        return box_overlap(sizes, Box(lower - error, upper + error), self.topk.k)

    def _like_map(self, other: Tensor) -> Tensor:
        other = torch.as_tensor(other).detach()
        if other.numel() != self.map.numel():
            raise ValueError(
                "the other map must have the shape of the certified one, "
                f"{tuple(self.map.shape)}, got {tuple(other.shape)}"
            )
        return other.reshape(self.map.shape).to(self.map)

    def _breaks_support(self, support: SupportGuarantee, other: Tensor, error: float) -> bool:
        sizes = support.sizes(self.map[None])[0]
        before, after = sizes > 0, support.sizes(other[None])[0] > 0
        if self.values is not None:
            sure = before & (support.sizes(self.values.lower[None])[0] > error)
            lost = bool((sure & ~after).any())
        else:
            lost = int((before & after).sum()) < support_survivors(sizes, self.change.budget + error)
        return lost or (error <= 1e-8 * self.change.norm and int((~before & after).sum()) > support.entrants)

    def __repr__(self) -> str:
        stay = f"at least {self.topk.overlap} of the top {self.topk.k} {self.topk.units} stay"
        return f"<Certificate by {self.recipe}: up to epsilon {self.epsilon:g} {stay}{', VACUOUS' * self.vacuous}>"

    def __str__(self) -> str:
        words = self._explain_budget()
        if self.vacuous:
            empty = self.recipe == "ranks" or not self._shorter
            what = "this promises nothing" if empty else f"none of the top {self.topk.units} is sure to stay"
            words = f"VACUOUS: {what}. {words}"
        return f"{self._name_grounds()}\n{self._name_promises()}\n{words}"

    def _name_grounds(self) -> str:
        at = self.constants
        noise = "no noise" if at.sigma is None else f"sigma {at.sigma:g}"
        words = f"Certificate by {self.recipe}: {self.assumption}; {noise}"
        if at.rho is None:
            return words + "."
        return words + (
            f", rho {at.rho:.4g}, curvature in [-{at.lam:.4g}, {at.beta:.4g}], so the ideal map is "
            f"{at.lipschitz:.4g}-Lipschitz."
        )

    def _name_promises(self) -> str:
        change, top, support = self.change, self.topk, self.support
        sure = "Surely, in exact arithmetic" if self.alpha == 0 else f"With probability {1 - self.alpha:g}"
        if not math.isfinite(change.budget) and self.recipe != "ranks":
            return f"Nothing can be said of changes up to epsilon = {self.epsilon:g}: the minimiser need not be unique."
        parts = [f"at least {top.overlap} of the top {top.k} {top.units} stay"]
        if self.recipe != "ranks":
            parts.insert(0, f"the map moves by at most {change.budget:.4g} of its length {change.norm:.4g}")
            parts.append(f"cosine at least {change.cosine:.3f}, normalised distance at most {change.distance:.3f}")
        if support is not None:
            parts.append(f"{support.survivors} of {support.active} non-zeros stay, at most {support.entrants} come in")
        return f"{sure}, between {_PAIRS[self.compared]} = {self.epsilon:g}: {'; '.join(parts)}."

    def _explain_budget(self) -> str:
        """What the budget is spent on, so that a reader knows what would help."""
        samples, budget = self.accuracy.samples, self.change.budget
        if self.recipe == "ranks":
            return f"{samples} noise samples. Nothing is said of a map on other noise known to an attacker."
        if self.values is not None:
            return (
                f"{samples} independent noisy copies, by which the map at x is known to within "
                f"{self.accuracy.error:.3g}. The class, eta, groups and sigma are fixed at x."
            )
        if not math.isfinite(budget):
            return "A smaller rho, or rho='certified', would change that."
        moved = (self.constants.lipschitz or 0.0) * self.epsilon
        return (
            f"Of the budget {moved:.3g} is the change of the input and {budget - moved:.3g} the error of the computed "
            f"map ({samples} fresh samples, residual {self.accuracy.residual:.2g}). The class, eta, groups and sigma "
            "are fixed at x."
        )
