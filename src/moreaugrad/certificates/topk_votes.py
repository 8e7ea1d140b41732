"""The certificate of Sparsified SmoothGrad, in the same words: how many of its top pixels stay."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import torch
from torch import Tensor

from moreaugrad.certificates import theory
from moreaugrad.certificates.assumptions import FreshNoise, ReportOptions
from moreaugrad.certificates.certificate import Certificate, MapAccuracy, MapChange, MapConstants, TopKGuarantee
from moreaugrad.methods.sparsified import SparsifiedSmoothGrad
from moreaugrad.model.noise import Smoothing
from moreaugrad.types import Images

ASSUMPTION = "an average of maps in [0, 1] over noise, whatever the network is"


def certify_ranks(
    method: SparsifiedSmoothGrad, x: Images, target: int, noise: FreshNoise, report: ReportOptions, seed: int
) -> Callable[[float], Certificate]:
    """The certificates of one image. Its noise is fresh, in antithetic pairs, of which each counts as one sample."""
    sigma, samples, units = float(method.smoothing.sigma or 0.0), noise.samples, report.units or "pixels"
    smoothing = Smoothing(sigma=sigma, samples=samples // 2 * 2)
    found = replace(method, smoothing=smoothing, seed=seed).attribute(x, target).double()
    sizes = _rank(found, units)[0]
    k = report.choose_k(sizes)
    pair = "empirical" if report.compared == "computed" else "population"
    bound = "hoeffding" if pair == "empirical" else "kl"
    proof = theory.topk_certificate(sizes, k, sigma, samples // 2, noise.alpha, bound, compared=pair)

    def certificate(epsilon: float) -> Certificate:
        overlap = proof.overlap(epsilon)
        return Certificate(
            recipe="ranks",
            assumption=ASSUMPTION,
            compared=report.compared,
            epsilon=epsilon,
            alpha=1 - proof.confidence,
            map=found[0],
            method=method,
            target=target,
            constants=MapConstants(sigma),
            accuracy=MapAccuracy(samples),
            change=MapChange(norm=float(found.norm())),
            topk=TopKGuarantee(units, k, sizes.numel(), overlap, sizes=lambda maps: _rank(maps, units)),
            restate=certificate,
        )

    return certificate


def _rank(maps: Images, units: str) -> Tensor:
    """A mean over channels stays in [0, 1], a maximum would not be an average over noise."""
    flat = maps.flatten(1) if units == "entries" else maps.mean(1).flatten(1)
    return torch.clamp(flat, 0, 1)
