"""Attacks that try a certificate: changed inputs, whose maps are measured as the certificate's own was.

An attack is led by cheap maps of the frozen method; the most promising change of each length is then measured.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from moreaugrad.attacks.topk import TopK
from moreaugrad.certificates.certificate import Certificate
from moreaugrad.certificates.certify import certify
from moreaugrad.certificates.subspace import space_of
from moreaugrad.cli.certify import RANKS
from moreaugrad.methods.moreau import GroupSparseMoreauGrad, MoreauGrad
from moreaugrad.model.bounded import Odds
from moreaugrad.model.smoothing import independent_seed
from moreaugrad.studies.setup import slope

if TYPE_CHECKING:
    from moreaugrad.cli.certify_job import Case

log = logging.getLogger("moreaugrad")

MULTIPLES = (1, 2, 3)  # of the asked epsilon
RANDOM = 4  # directions of each length
BUDGET, QUICK = 80, "implicit:5x16"  # gradients of a map inside the attack, and its slope
NOISE_ALONE, DIRECTED, BY_CHANCE = "new noise", "topk", "random"


@dataclass(frozen=True, slots=True)
class Trial:
    """A changed input, and how many of the top units are still on top of its map."""

    kind: str  # topk or random; "new noise": the input as it is
    epsilon: float
    length: float  # of the change
    overlap: int
    promised: int  # by the certificate, for changes of this length


def try_out(case: Case, certificate: Certificate) -> tuple[Trial, ...]:
    """The input itself on new noise, where there is any, and the best attack found of each length."""
    found = [_measured(case, certificate, NOISE_ALONE, 0.0, case.x, 0)] if certificate.samples else []
    scout = Scout.of(case, certificate)
    epsilons = [each * certificate.epsilon for each in MULTIPLES if certificate.epsilon > 0]
    for number, epsilon in enumerate(epsilons, 1):
        kind, at = min(scout.changed(epsilon), key=lambda each: scout.overlap(each[1]))
        found.append(_measured(case, certificate, kind, epsilon, at, number))
    return tuple(found)


@dataclass(frozen=True, eq=False)
class Scout:
    """Looks for changed inputs by cheap maps, all on the same noise."""

    case: Case
    certificate: Certificate
    method: Any  # cheap, and on a network with a slope
    top: Tensor  # units of its own map at the input

    @classmethod
    def of(cls, case: Case, certificate: Certificate) -> Scout:
        method = cheap(case, certificate)
        scout = cls(case, certificate, method, torch.empty(0))
        return replace(scout, top=scout._top(case.x))

    def changed(self, epsilon: float) -> Iterator[tuple[str, Tensor]]:
        """Inputs within epsilon: one by an attack on the map, where it has a slope, and some in random directions."""
        x, generator = self.case.x, torch.Generator().manual_seed(1)
        if self.method.differentiable:
            share = self.certificate.k / self.top.numel()
            steps, box = self.case.asked.attack_steps, self.case.classifier.box
            attack = TopK(self.method, epsilon, k=share, per_pixel=x.ndim == 4, steps=steps, box=box)
            try:
                yield DIRECTED, attack.perturb(x, self.case.target).x
            except (ValueError, TypeError, RuntimeError) as error:  # no copy of the network, or no second derivative
                log.warning("the attack led by the map was left out: %s", error)
        for _ in range(RANDOM):
            way = torch.randn(x.shape, generator=generator).to(x)
            yield BY_CHANCE, x + epsilon * way / way.norm()

    def overlap(self, at: Tensor) -> int:
        return int((self.top & self._top(at)).sum())

    def _top(self, at: Tensor) -> Tensor:
        found = self.method.attribute(at, self.case.target).detach()
        space = space_of(at, self.case.terms["grid"])
        return self.certificate.top(space.project(found)[0].to(self.certificate.map))


def cheap(case: Case, certificate: Certificate) -> Any:
    """The frozen method with few gradients. Votes have no slope; the prior of a grid is none of pixels."""
    method = certificate.method
    if not isinstance(method, MoreauGrad):
        return replace(method, smoothing=replace(method.smoothing, samples=BUDGET))
    told: dict[str, Any] = {"forward_func": _sloped(case, method), "budget": BUDGET, "grad_mode": slope(QUICK)}
    if case.asked.votes:
        told["score"] = "prob"
    if case.terms["grid"] is None:
        return replace(method, **told)
    return MoreauGrad(**{"rho": method.rho, "smoothing": method.smoothing, "score": method.score} | told)


def _sloped(case: Case, method: MoreauGrad) -> Any:
    """The network that lends its slope: a module, so that it can be copied."""
    network: Any = method.forward_func
    if isinstance(network, Odds):
        return Odds(case.classifier, network.centre, network.scale)
    return case.classifier if case.asked.votes else network


def _measured(case: Case, certificate: Certificate, kind: str, epsilon: float, at: Tensor, number: int) -> Trial:
    """The map of the changed input by the same terms, with all frozen that was found at the input itself."""
    method, terms = certificate.method, dict(case.terms)
    terms |= {"k": certificate.k}
    if case.asked.method != RANKS:
        terms |= {"rho": None, "centred": False}  # the method has both
    if isinstance(method, GroupSparseMoreauGrad) and terms["grid"] is not None:
        method = replace(method, groups=terms["grid"])
    if terms["seed"] is not None:
        terms["seed"] = independent_seed(terms["seed"], 10 + number)  # not the noise that the certificate knows
    (other,) = certify(method, at, case.target, 0.0, **terms)
    length = float((at - case.x).double().norm())
    promised = certificate.at(max(epsilon, length)).overlap
    return Trial(kind, epsilon, length, certificate.overlap_with(other.map), promised)
