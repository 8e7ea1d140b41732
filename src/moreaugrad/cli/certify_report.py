"""A certificate -> a picture, a JSON file, lines for people. Says what is vacuous, and what was tried in vain."""

from __future__ import annotations

import math
import warnings
from dataclasses import asdict, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from moreaugrad.attacks.base import predict_logits
from moreaugrad.certificates.certificate import Certificate
from moreaugrad.cli.certify_curve import curve
from moreaugrad.cli.certify_trials import NOISE_ALONE, Trial
from moreaugrad.cli.method_options import told
from moreaugrad.cli.report import cut, seen, strict, versions, write_json
from moreaugrad.plotting import certificate as certified
from moreaugrad.plotting import pictures

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from moreaugrad.cli.certify_job import Case, Verdict

ANY = "any"  # in place of an infinite radius


def facts(verdict: Verdict) -> dict[str, Any]:
    """Everything that is known, as JSON can hold it; what is not a number is null."""
    case, found = verdict.case, verdict.certificate
    chances = predict_logits(case.classifier, case.x).double().softmax(1)[0].cpu()
    predicted, line = int(chances.argmax()), curve(found)
    known = {
        "model": case.classifier.name,
        "method": case.asked.method,
        "score": found.method.score,
        "pixels": case.asked.pixels,
        "target": case.target,
        "label": case.classifier.label(case.target),
        "predicted": predicted,
        "probability_of_target": float(chances[case.target]),
        "vacuous": found.vacuous,
        "foreseen": case.hopeless,
        "certificate": found.record(),
        "words": str(found),
        "map_shape": list(found.map.shape),
        "top": found.top(found.map).nonzero().flatten().tolist(),
        "members": None if found.topk.members is None else found.topk.members.nonzero().flatten().tolist(),
        "radii": {name: ANY if each == math.inf else each for name, each in line.radii.items()},
        "curve": {"epsilon": line.epsilons, "overlap": line.overlaps, "logarithmic": line.logarithmic},
        "trials": [asdict(each) for each in verdict.trials],
        "seconds": dict(verdict.seconds),
        "options": {"method": _told(case, found), "certify": dict(case.terms), "asked": _asked(case)},
        "versions": versions(),
    }
    told_all: dict[str, Any] = strict(known)
    return told_all


def write(verdict: Verdict, known: dict[str, Any], stem: Path) -> None:
    """Both files, each whole or not at all."""
    write_json(known, stem.with_name(f"{stem.name}.json"))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # an all-zero map was mentioned by the method
        figure = picture(verdict, known)
    pictures.write(figure, stem.with_name(f"{stem.name}.png"))


def lines(verdict: Verdict, known: dict[str, Any]) -> list[str]:
    """The certificate's own words first."""
    found, units = verdict.certificate, _units(verdict.case, verdict.certificate)
    said = f"{known['key']}: {_target(known)}, probability {known['probability_of_target']:.3f}"
    said += "" if known["predicted"] == known["target"] else f" (class {known['predicted']} is predicted)"
    told_all = [said, str(found), _reach(known, found.topk.k, units)]
    if verdict.trials:
        parts = ", ".join(_trial(each) for each in verdict.trials)
        told_all.append(f"Tried: of the top {found.topk.k} {units} there stayed {parts}.")
    if any(each.overlap < each.promised for each in verdict.trials):
        told_all.append(
            "Fewer stayed than promised: the map of a changed input was measured with an error of its own, which "
            "only --compared computed allows for."
            if found.compared == "ideal"
            else f"Fewer stayed than promised: this may happen with probability {found.alpha:g}."
        )
    return told_all


def picture(verdict: Verdict, known: dict[str, Any]) -> Figure:
    """Input, map with its certified units, and the promise against epsilon."""
    case, found = verdict.case, verdict.certificate
    k, units = found.topk.k, _units(case, found)
    top, sure = (None if each is None else _mask(found, each) for each in (found.top(found.map), found.topk.members))
    marked = certified.Marked(_sizes(found), top if found.change.norm else None, sure, _legend(found))
    alone = next((each.overlap / k for each in verdict.trials if each.kind == NOISE_ALONE), None)
    length = "pixels, 0..1" if case.asked.pixels else "units of the input"
    promise = certified.CertifiedCurve(
        known["curve"]["epsilon"],
        [each / k for each in known["curve"]["overlap"]],
        found.epsilon,
        [(each.epsilon, each.overlap / k) for each in verdict.trials if each.kind != NOISE_ALONE],
        alone,
        (f"epsilon: l2 length of the change, {length}", f"share of the top {k} {units} that stays"),
        known["curve"]["logarithmic"],
        f"VACUOUS\nat {found.epsilon:g}" if found.vacuous else "",
    )
    headline = f"at least {found.topk.overlap} of the top {k} {units} stay"
    headline = f"VACUOUS, promises nothing: {headline}" if found.vacuous else headline
    title = f"{case.asked.method} by {found.recipe}, changes up to {found.epsilon:g}: {headline}"
    names = (f"input\n{cut(_target(known))}", f"map of {units}\n{_noise(found)}")
    return certified.picture(seen(case.x, case.classifier), marked, promise, title, names)


def _legend(found: Certificate) -> tuple[str, str]:
    """What is known of each unit, and what of the rest together."""
    if found.topk.members is None:
        return "", f"top {found.topk.k}, of which at least {found.topk.overlap} stay, but not known which"
    sure = int(found.topk.members.sum())
    others = f"the other {found.topk.k - sure} of the top {found.topk.k}" if sure else f"top {found.topk.k}"
    more = f", of which at least {found.topk.overlap - sure} stay" if found.topk.overlap > sure else ""
    return f"each surely stays: {sure} of the top {found.topk.k}", others + more


def _trial(tried: Trial) -> str:
    if tried.kind == NOISE_ALONE:
        return f"{tried.overlap} without a change, on new noise"
    return f"{tried.overlap} at epsilon {tried.epsilon:.3g} ({tried.kind})"


def _noise(found: Certificate) -> str:
    noise = "no noise" if found.constants.sigma is None else f"sigma {found.constants.sigma:g}"
    return noise if found.constants.rho is None else f"{noise}, rho {found.constants.rho:.3g}"


def _units(case: Case, found: Certificate) -> str:
    return "cells" if case.terms["grid"] is not None and found.topk.units == "pixels" else found.topk.units


def _sizes(found: Certificate) -> Tensor:
    """One number per place."""
    scores = found.topk.sizes(found.map[None])[0]
    shape = found.map.shape[1:]
    return scores.view(shape) if found.topk.units == "pixels" else found.map.norm(dim=0)


def _mask(found: Certificate, chosen: Tensor) -> certified.Mask:
    """Which places belong to the chosen units."""
    chosen = chosen.cpu()
    groups = getattr(found.method, "groups", None)
    if found.topk.units == "groups" and isinstance(groups, Tensor):
        chosen = chosen[groups.cpu().reshape(-1)]
    if chosen.numel() == found.map.numel():
        chosen = chosen.view(found.map.shape).any(0)
    mask: certified.Mask = chosen.view(found.map.shape[1:]).to(torch.bool).numpy()
    return mask


def _reach(known: dict[str, Any], k: int, units: str) -> str:
    """Up to which change how many stay."""
    radii = known["radii"]
    if radii["one"] is None:
        return f"No change is so small that one of the top {k} {units} surely stays: the map's own error is too large."
    told_all = [
        f"{words} up to {radii[name]:.3g}" if isinstance(radii[name], float) else f"{words} whatever the change"
        for name, words in (("all", f"all {k}"), ("half", "half of them"), ("one", "one"))
        if radii[name] is not None
    ]
    return f"Of the top {k} {units} there stay, by the length of the change: {'; '.join(told_all)}."


def _target(known: dict[str, Any]) -> str:
    return str(known["label"] or f"class {known['target']}")


def _told(case: Case, found: Certificate) -> dict[str, Any]:
    """The options of the method, with what was frozen at this input."""
    eta = getattr(found.method, "eta", None)
    frozen = {"rho": found.constants.rho, "eta": eta if isinstance(eta, float) else None}
    return told(case.method) | {name: value for name, value in frozen.items() if value is not None}


def _asked(case: Case) -> dict[str, Any]:
    return {each.name: getattr(case.asked, each.name) for each in fields(case.asked) if each.name != "terms"}
