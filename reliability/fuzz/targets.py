"""The table of fuzzers: what is tried, and the function that makes a case of it."""

from __future__ import annotations

import random
from collections.abc import Callable
from importlib import import_module

from reliability.fuzz.case import Case

Make = Callable[[random.Random], Case]

# name: (module, share of the cases); each module has `make_case(chance)`
TARGETS: dict[str, tuple[str, float]] = {
    "commands": ("reliability.fuzz.commands", 1200),
    "options": ("reliability.fuzz.options", 2500),
    "tensors": ("reliability.fuzz.tensors", 1500),
    "requests": ("reliability.fuzz.requests", 700),
}


def find(name: str) -> Make:
    """The function that makes cases of a target, by its name or as MODULE, for targets of tests."""
    module = TARGETS[name][0] if name in TARGETS else name
    make: Make = import_module(module).make_case
    return make


def prepare(name: str) -> None:
    """What a target loads before its first case, by a function of its module, where it has one."""
    module = import_module(TARGETS[name][0] if name in TARGETS else name)
    getattr(module, "prepare", lambda: None)()


def make(name: str, seed: int, number: int) -> Case:
    """One case, the same in every process."""
    return find(name)(random.Random(f"{name}/{seed}/{number}"))


def share(cases: int) -> dict[str, int]:
    """How many cases each target gets."""
    whole = sum(part for _, part in TARGETS.values())
    return {name: max(1, round(cases * part / whole)) for name, (_, part) in TARGETS.items()}
