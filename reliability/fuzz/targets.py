"""The table of fuzzers: what is tried, and the function that makes a case of it."""

from __future__ import annotations

import random
from importlib import import_module
from types import ModuleType

from reliability.fuzz.case import Case

# name: (module, share of the cases); each module has `make_case(chance)`, and may have a `prepare()`
TARGETS: dict[str, tuple[str, float]] = {
    "images": ("reliability.fuzz.images", 2000),
    "checkpoints": ("reliability.fuzz.checkpoints", 600),
    "saved": ("reliability.fuzz.saved", 1500),
    "tensors": ("reliability.fuzz.tensors", 1500),
    "options": ("reliability.fuzz.options", 2500),
    "commands": ("reliability.fuzz.commands", 1200),
    "requests": ("reliability.fuzz.requests", 700),
}


def find(name: str) -> ModuleType:
    """The module of a target, by the name of the target or by its own, for targets of tests."""
    return import_module(TARGETS[name][0] if name in TARGETS else name)


def prepare(name: str) -> None:
    """Make what the cases of a target share, where it has a `prepare()`: no case is timed with that."""
    getattr(find(name), "prepare", int)()


def make(name: str, seed: int, number: int) -> Case:
    """One case, the same in every process."""
    case: Case = find(name).make_case(random.Random(f"{name}/{seed}/{number}"))
    return case


def share(cases: int) -> dict[str, int]:
    """How many cases each target gets."""
    whole = sum(part for _, part in TARGETS.values())
    return {name: max(1, round(cases * part / whole)) for name, (_, part) in TARGETS.items()}
