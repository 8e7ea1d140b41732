"""The certificate of Sparsified SmoothGrad, in the same words: how many of its top pixels stay."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from moreaugrad.certificates import checks_units as units_rules
from moreaugrad.certificates import theory
from moreaugrad.certificates.certificate import Certificate
from moreaugrad.methods.sparsified import SparsifiedSmoothGrad
from moreaugrad.model.smoothing import Smoothing
from moreaugrad.types import Images

ASSUMPTION = "an average of maps in [0, 1] over noise, whatever the network is"


def ranked(method: SparsifiedSmoothGrad, x: Images, target: Any, asked: Any) -> Callable[[float], Certificate]:
    """The certificates of one image. Its noise is fresh, in antithetic pairs, of which each counts as one sample."""
    samples, alpha, units, compared = asked.samples, asked.alpha, asked.units, asked.compared
    smoothing = Smoothing(sigma=method.smoothing.sigma, samples=samples // 2 * 2)
    seed = int(torch.randint(2**62, (), generator=asked.generator, device=asked.generator.device))
    found = replace(method, smoothing=smoothing, seed=seed).attribute(x, target).double()
    sizes = _sizes(found, units)
    k = units_rules.share_of_top(asked.k, sizes.shape[1])
    k = max(1, min(k, int((sizes > 0).sum())))  # zeros are not above each other
    sigma = method.smoothing.sigma
    assert sigma is not None
    pair = "empirical" if compared == "computed" else "population"
    proof = theory.topk_certificate(
        sizes[0], k, sigma, samples // 2, alpha, "hoeffding" if pair == "empirical" else "kl", compared=pair
    )

    def certificate(epsilon: float) -> Certificate:
        return Certificate(
            recipe="ranks",
            assumption=ASSUMPTION,
            compared=compared,
            epsilon=epsilon,
            alpha=1 - proof.confidence,
            sigma=sigma,
            samples=samples,
            norm=float(found.norm()),
            units=units,
            k=k,
            total=sizes.shape[1],
            overlap=proof.overlap(epsilon),
            map=found[0],
            method=method,
            target=target,
            scores=lambda other: _sizes(other, units),
            again=certificate,
        )

    return certificate


def _sizes(found: Images, units: str) -> Tensor:
    """A mean over channels stays in [0, 1], a maximum would not be an average over noise."""
    flat = found.flatten(1) if units == "entries" else found.mean(1).flatten(1)
    return torch.clamp(flat, 0, 1)
