"""What is known about one explained image, in words: of numbers by name, as `Explanation.facts` has them."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

KNOWN = 0.3  # largest relative error of a map that counts as known: maps of two seeds have a cosine near 0.9

SCORES = {"logit": "logit", "prob": "probability", "logprob": "log-probability"}

Facts = Mapping[str, Any]


def describe_image(facts: Facts) -> list[str]:
    """What was explained, and how much of it the map keeps, in a few words each."""
    target, label = facts["target"], facts["label"]
    found = [] if target is None else [f"target {target}" if label is None else f"{label} (class {target})"]
    if facts["score"] is not None:
        found.append(f"{SCORES.get(facts['score_kind'], 'score')} {facts['score']:.4g}")
    entries, pixels = (f"{100 * facts[name]:.3g} %" for name in ("kept", "pixels_kept"))
    return [*found, f"keeps {entries} of the entries" + (f" ({pixels} of the pixels)" if pixels != entries else "")]


def describe_accuracy(facts: Facts) -> list[str]:
    """How well the map is known, with a warning where it is not."""
    error = facts["relative_error"] if facts["kept"] else None  # of a map of zeros nothing is known
    if error is not None and math.isnan(error):
        return ["how well it is known was not measured; spend more gradients"]
    found = [] if error is None else [f"known to within {100 * error:{'.0f' if error > 0.1 else '.2g'}} %"]
    if error is not None and error > KNOWN:
        return [f"{found[0]} only: another seed gives another map; spend more gradients"]
    if facts["converged"] is False:
        found.append("not converged; spend more gradients")
    return found


def describe_map(facts: Facts) -> list[str]:
    """All of it, with what is odd about the map."""
    found = describe_image(facts)
    sparse = bool(facts["eta"])
    if sparse:
        found.append(f"eta {facts['eta']:.3g}")
    found += describe_accuracy(facts)
    if not facts["finite"]:
        found.append("the map holds NaN or infinity")
    if not facts["kept"]:
        why = "eta is above every gradient entry; lower it or use sparsity="
        other = (
            "the score does not change with the input, nothing speaks for the class where only that is shown (relu), "
            "or the penalty of a mask outweighs it"
        )
        found.append(f"all zero: {why if sparse else other}")
    return found
