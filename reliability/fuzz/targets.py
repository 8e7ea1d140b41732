"""The table of fuzzers: what is tried, and the function that makes a case of it."""

from __future__ import annotations

import random
from collections.abc import Callable
from importlib import import_module

from reliability.fuzz.case import Case

Make = Callable[[random.Random], Case]

# name: (module, share of the cases); each module has `make_case(chance)`
TARGETS: dict[str, tuple[str, float]] = {
    "images": ("reliability.fuzz.images", 2000),
    "checkpoints": ("reliability.fuzz.checkpoints", 600),
}


def find(name: str) -> Make:
    """The function that makes cases of a target, by its name or as MODULE, for targets of tests."""
    module = TARGETS[name][0] if name in TARGETS else name
    make: Make = import_module(module).make_case
    return make


def make(name: str, seed: int, number: int) -> Case:
    """One case, the same in every process."""
    return find(name)(random.Random(f"{name}/{seed}/{number}"))


def share(cases: int) -> dict[str, int]:
    """How many cases each target gets."""
    whole = sum(part for _, part in TARGETS.values())
    return {name: max(1, round(cases * part / whole)) for name, (_, part) in TARGETS.items()}
