"""Calls with odd options, and with sound ones in all combinations, down to the map.

What is tried is read from the tables and from the public names with their signatures, so a new member is tried too.
"""

from __future__ import annotations

import ast
import inspect
import random
import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

import moreaugrad as mg
from reliability.fuzz import answers, examples, networks
from reliability.fuzz.case import Case
from reliability.fuzz.odd_inputs import SHAPE
from reliability.fuzz.odd_values import WORK, as_plain, odd_value, sound_value
from reliability.fuzz.untouched import untouched
from reliability.fuzz.uses import KNOWN_CALLS, find_use

# results, which the package makes and does not check again; bases, which nobody can call; and what reads and writes
# files, which targets of their own try
LEFT_OUT = {
    "Arrays", "AttackResult", "BulkRow", "Certificate", "Explanation", "LabelledImages", "MapAccuracy", "MapChange",
    "MapConstants", "Moments", "Randomisation", "StudyResult", "StudyRow", "Summary", "SupportGuarantee",
    "TopKGuarantee", "ValueGuarantee", "Attack", "ClassAttack", "MapAttack", "Method", "Prior", "Source",
    "BulkMaps", "bulk", "load_mask_network", "load_model", "open_maps", "read_cifar10", "read_photos",
    "read_tiny_imagenet", "write_report",
}  # fmt: skip
# `expanded` is for copies; where files go must be the caller's word
NOT_OPTIONS = {"forward_func", "prepared", "attacked", "expanded", "out"}


@dataclass(frozen=True, slots=True)
class Subject:
    """A class or function with options: `make(**options)` calls it, `kind` has its signature."""

    name: str
    kind: Any
    make: Callable[..., Any]


def make_case(chance: random.Random) -> Case:
    family = chance.choices([_methods, _attacks, _metrics, _others], [8, 4, 2, 6])[0]
    subject = chance.choice(family())
    options, odd = choose_options(chance, subject)
    plain = {name: as_plain(value) for name, value in options.items()}
    spelled = any(plain[name] is not options[name] for name in options)
    told = ", ".join(f"{name}={_show(value)}" for name, value in options.items())

    def run(folder: Path) -> Any:
        with untouched([*options.values(), networks.pictures(), networks.photos()]):
            found = _use(subject, options, folder)
            again = _use(subject, plain, folder / "again") if spelled and not odd else found
        return found, again

    def check(found: Any) -> str | None:
        fault = check_answer(subject, options, found[0])
        if fault is None and not answers.same(_values(found[0]), _values(found[1])):
            return "a number of NumPy gives another answer than the number itself"
        return fault

    return Case(f"{subject.name}({told})", run, check)


def _use(subject: Subject, options: dict[str, Any], folder: Path) -> Any:
    """Makes what the options ask for, and calls it down to the map."""
    where = {"out": folder / "out" / "study"} if "out" in examples.parameters(subject.kind) else {}
    made = subject.make(**where, **options)
    return find_use(made)(made, folder)


def choose_options(chance: random.Random, subject: Subject) -> tuple[dict[str, Any], bool]:
    """Some options of a member, all sound in half of the cases, and whether one is odd."""
    known = {
        name: each
        for name, each in examples.parameters(subject.kind).items()
        if name not in NOT_OPTIONS and name[0] != "_"
    }
    if not known:
        return {}, False
    names = chance.sample(list(known), min(len(known), chance.choice([1, 1, 2, 2, 3, 4, 6])))
    options = {name: _sound(chance, subject, name, known[name]) for name in names}
    odd = chance.random() < 0.5
    if odd:
        name = chance.choice(names)
        options[name] = odd_value(chance, name)
    if chance.random() < 0.02:
        options[chance.choice(["nonsense", "sigmas", "rho_", "self", "_"])] = 1
        odd = True
    return options, odd


def _sound(chance: random.Random, subject: Subject, name: str, parameter: inspect.Parameter) -> Any:
    words = () if name in WORK or name == "model" else learn_words(subject.name, name)  # a word for a model loads it
    if words and chance.random() < 0.8:
        return chance.choice(words)
    return sound_value(chance, name, parameter)


@cache
def learn_words(subject: str, option: str) -> tuple[str, ...]:
    """The words that an option can be, as its own refusal of another one lists them."""
    found = next(each for each in (*_methods(), *_attacks(), *_metrics(), *_others()) if each.name == subject)
    try:
        found.make(**{option: "no such word"})
    except Exception as error:
        if listed := re.search(rf"\b{option} must be one of (\[.*?\])", str(error)):
            return tuple(ast.literal_eval(listed[1]))
    return ()


@cache
def _methods() -> list[Subject]:
    def make(name: str, **options: Any) -> Any:
        return examples.make_method(name, networks.pictures(), **options)

    return [Subject(name, entry.load(), partial(make, name)) for name, entry in mg.METHODS.items()]


@cache
def _attacks() -> list[Subject]:
    def make(name: str, **options: Any) -> Any:
        return examples.make_attack(name, networks.pictures(), **options)

    return [Subject(name, entry.load(), partial(make, name)) for name, entry in mg.ATTACKS.items()]


@cache
def _metrics() -> list[Subject]:
    def make(name: str, **options: Any) -> Any:
        given = examples.metric_arguments(random.Random(name), name)
        taken = list(inspect.signature(mg.METRICS[name].load()).parameters)[: len(given)]
        return mg.METRICS[name].load()(
            **(dict(zip(taken, given, strict=True)) | examples.cheap_options(name, mg.METRICS[name].load()) | options)
        )

    return [Subject(name, entry.load(), partial(make, name)) for name, entry in mg.METRICS.items()]


@cache
def _others() -> list[Subject]:
    """The public names that are in no table."""
    tables = (mg.METHODS, mg.ATTACKS, mg.METRICS)
    members = {entry.load() for table in tables for entry in table.values()}
    found = []
    for name in sorted(set(dir(mg)) - LEFT_OUT):
        member = getattr(mg, name)
        if callable(member) and member not in members:
            found.append(Subject(name, member, partial(_call, name)))
    return found


def _call(name: str, **options: Any) -> Any:
    """A public name, with what it needs beside its options."""
    member = getattr(mg, name)
    needed = KNOWN_CALLS[name]() if name in KNOWN_CALLS else {}
    return member(**(examples.cheap_options(name, member) | needed | options))


def check_answer(subject: Subject, options: dict[str, Any], found: Any) -> str | None:
    """What is wrong with the answer of a use."""
    if subject.name in mg.METHODS:
        shared = subject.name == "sparse_moreau" and not options.get("prior")  # of entries, not of groups
        return answers.check_map(torch.ones(SHAPE), found, options.get("sparsity") if shared else None)
    if subject.name in mg.ATTACKS:
        return answers.check_attack(*found)
    if subject.name in mg.METRICS:
        return answers.check_figures(subject.name, SHAPE[0], found)
    return _check_kind(found)


def _check_kind(found: Any) -> str | None:
    """What is wrong with an answer, by what it is."""
    if isinstance(found, list) and found and isinstance(found[0], mg.Certificate):
        return answers.check_certificates(torch.ones(len(found), 1), found)
    if isinstance(found, mg.Explanation) and found.source is not None:
        return answers.check_explanation(found.source.inputs[0], found)
    bad = isinstance(found, Tensor) and found.is_floating_point() and not bool(found.isfinite().all())
    return "the answer is not finite" if bad else None


def _values(found: Any) -> Any:
    """The part of an answer that can be compared with another."""
    result = found[-1] if isinstance(found, tuple) else found
    result = getattr(result, "x", getattr(result, "map", result))
    return result if isinstance(result, Tensor) else None


def _show(value: Any) -> str:
    return re.sub(r"\s+", " ", repr(value))[:60]
