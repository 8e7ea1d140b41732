"""How much of maps of votes can be certified: entries, pixels and groups, dense and sparse, by network and noise.

    python -m benchmarks.vote_certificates [--cases lipschitz_25,photos_25] [--counts build/votes]

Takes the counts that `benchmarks.vote_sampling` stored, as many images of each case as are there, and runs no network.
Per case and share epsilon/sigma: of dense votes the certified overlap of the top tenth and the cosine, of sparse ones
the share of the support that surely stays, how many zeros may enter, and the cosine. Beside them, on the same
gradients, the published certificate of Sparsified SmoothGrad (relaxed, pixels).
"""

from __future__ import annotations

import math
from argparse import Namespace
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

import moreaugrad as mg
from benchmarks import record
from benchmarks.vote_sampling import CASES, Case
from moreaugrad.certificates import theory
from moreaugrad.certificates.assumptions import CertifyOptions
from moreaugrad.certificates.votes import VoteEvidence, plan_votes

SHARES = (0.02, 0.05, 0.1, 0.2)  # epsilon / sigma
SIZES = {False: 32, True: 224}  # of the images: CIFAR-10, photos
Held = dict[str, Any]


def maps(x: Tensor) -> dict[str, tuple[str, dict[str, Any]]]:
    """Name of each certified map: the ballot that it takes, and its prior."""
    high, wide = x.shape[-2:]
    pixels = mg.Group(torch.arange(high * wide).view(high, wide))
    found: dict[str, tuple[str, dict[str, Any]]] = {
        "entries": ("entries_10", {}),
        "pixels": ("entries_10", {}),  # means over the channels of the votes of entries
        "entries, 5 %": ("entries_10", {"prior": mg.L1(), "sparsity": 0.05}),
        "entries, 10 %": ("entries_10", {"prior": mg.L1(), "sparsity": 0.1}),
        "voting pixels": ("pixels_10", {"prior": pixels, "eta": 0.0}),
        "voting pixels, 5 %": ("pixels_10", {"prior": pixels, "sparsity": 0.05}),
    }
    for cells, tau in ((8, 10), (8, 15), (16, 15)):
        ballot = f"groups{cells}_{tau}"
        name, prior = f"{cells} x {cells} groups, tau {tau} %", mg.Group(cells)
        found[name] = ballot, {"prior": prior, "eta": 0.0}
        found[f"{name}, 15 %"] = ballot, {"prior": prior, "sparsity": 0.15}
    return found


def evidence(name: str, held: Held, x: Tensor, sigma: float, alpha: float) -> VoteEvidence:
    """The stored votes of one image as `certify` would have counted them."""
    ballot, prior = maps(x)[name]
    tau = int(ballot.rpartition("_")[2]) / 100
    smoothing = mg.Smoothing(sigma=sigma)
    method = mg.MoreauGrad(torch.nn.Identity(), rho=0, statistic="votes", tau=tau, smoothing=smoothing, **prior)
    units = "groups" if "prior" in prior and isinstance(prior["prior"], mg.Group) else name.partition(",")[0]
    noise = mg.FreshNoise(int(held["samples"]), alpha)
    plan = plan_votes(method, x, 0.0, CertifyOptions(noise=noise, report=mg.ReportOptions(units=units)))
    return VoteEvidence(plan, torch.from_numpy(held[ballot]).long(), int(held["target"]), tuple(x.shape[1:]))


def statements(found: mg.Certificate) -> dict[str, float]:
    """What one certificate promises, as numbers that can be averaged."""
    support, known = found.support, {"overlap": found.topk.overlap / found.topk.k, "cosine": found.change.cosine}
    known |= {"members": float(found.topk.members.sum()), "vacuous": float(found.vacuous)}
    if support is None:  # dense; or fewer units have a vote than are to be kept, and nothing is said of the support
        return known | {"stay": 0.0, "staying": 0.0, "enter": float("nan"), "no_threshold": 1.0}
    known |= {"stay": support.survivors / support.active, "staying": support.survivors}
    return known | {"enter": support.entrants / support.active, "no_threshold": 0.0}


def row(name: str, helds: list[Held], case: Case, alpha: float) -> dict[str, Any]:
    """One line of the table: the mean of each statement over the images, and the median of the cosine."""
    size = SIZES[case.photos]
    x = torch.zeros(1, 3, size, size)
    every = [evidence(name, held, x, case.sigma, alpha) for held in helds]
    at, first = {}, None
    for share in SHARES:
        certified = [each.certify(share * case.sigma) for each in every]
        first = first or max(certified, key=lambda each: each.support is not None)
        made = [statements(each) for each in certified]
        at[str(share)] = {key: average([each[key] for each in made]) for key in made[0]}
        at[str(share)]["cosine"] = float(np.median([each["cosine"] for each in made]))
        if len(made) < 20:
            at[str(share)]["overlap_of_each"] = [round(each["overlap"], 4) for each in made]
            at[str(share)]["staying_of_each"] = [each["staying"] for each in made]
    return {"map": name, "k": first.topk.k, "units": first.topk.units, "total": first.topk.total, "at": at} | {
        "active": first.support.active if first.support else None,
        "eta": float(np.median([each.eta for each in every])),
    }


def average(values: list[float]) -> float | None:
    """The mean of those that are known."""
    known = [each for each in values if not math.isnan(each)]
    return float(np.mean(known)) if known else None


def published(helds: list[Held], case: Case, alpha: float) -> dict[str, Any]:
    """Sparsified SmoothGrad's certificate of the same gradients, which are independent: each counts."""
    at: dict[str, Any] = {str(share): [] for share in SHARES}
    for held in helds:
        samples, means = int(held["samples"]), torch.from_numpy(held["relaxed"]).clamp_min(0) / int(held["samples"])
        k = max(1, round(len(means) / 10))
        proof = theory.topk_certificate(means.clamp(0, 1), k, case.sigma, samples, alpha)
        for share in SHARES:
            at[str(share)].append(proof.overlap(share * case.sigma) / k)
    overlaps = {share: {"overlap": float(np.mean(each))} for share, each in at.items()}
    return {"map": "Sparsified SmoothGrad", "k": k, "units": "pixels", "total": len(means), "at": overlaps}


def certify_case(name: str, asked: Namespace) -> dict[str, Any] | None:
    """All maps of one case, from what is stored."""
    case, files = CASES[name], sorted((Path(asked.counts) / name).glob("[0-9]*.npz"))
    helds = [dict(np.load(file, allow_pickle=False)) for file in files if file.suffixes == [".npz"]]
    helds = [held for held in helds if int(held["samples"]) >= asked.samples or not asked.samples]
    if not helds:
        return None
    size = SIZES[case.photos]
    chosen: Callable[[str], bool] = lambda each: not asked.maps or each in asked.maps.split(";")  # noqa: E731
    table = [row(each, helds, case, asked.alpha) for each in maps(torch.zeros(1, 3, size, size)) if chosen(each)]
    samples = sorted({int(held["samples"]) for held in helds})
    facts = {"case": name, "network": case.network, "sigma": case.sigma, "images": len(helds), "samples": samples}
    return facts | {"table": [*table, published(helds, case, asked.alpha)]}


def main() -> None:
    asked = record.arguments(__doc__, False, cases="", counts="build/votes", samples=0, alpha=0.001, maps="", part="")
    torch.set_num_threads(1)
    for name in asked.cases.split(",") if asked.cases else CASES:
        found = certify_case(name, asked)
        if found is None:
            continue
        for each in found["table"]:
            print(name, each["map"], {share: _round(known) for share, known in each["at"].items()}, flush=True)
        figures = {"shares": SHARES, "alpha": asked.alpha, **found}
        record.store(f"vote_certificates_{name}{asked.part}", asked.device, figures, asked.out)


def _round(known: dict[str, Any]) -> dict[str, float]:
    return {key: round(each, 3) for key, each in known.items() if isinstance(each, float)}


if __name__ == "__main__":
    main()
