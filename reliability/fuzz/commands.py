"""Command lines, right and wrong: each option of each command, as Typer declares it, so that a new one is tried too."""

from __future__ import annotations

import random
import shlex
from collections.abc import Callable, Iterator
from functools import cache, partial
from typing import Any, get_args, get_type_hints

from typer.main import get_command

from moreaugrad.cli import train
from moreaugrad.cli.app import app
from reliability.fuzz.case import Case
from reliability.fuzz.command_inputs import ODD_NAME
from reliability.fuzz.command_runs import check_answer, load_package, run_line
from reliability.fuzz.typed_words import IMPORTS, IN, NET, PATHS, PHOTO, PLACES, WORDS, Option, fitting_value, odd_value

KINDS = {"bool": "flag", "int": "int", "float": "float", "Path": "Path"}
FIT = 0.42  # share of the lines in which every word fits
SMALL = ["--model", NET, "--budget", "4", "--samples", "2"]
FEW = ["--model", NET, "--budget", "4", "--attack-budget", "4", "--steps", "1"]
ARRAYS = ["--data", "../in/data.npz", "--out", "weights.safetensors", "--device", "cpu"]
# how each command does little work; what is typed behind it wins
LITTLE = {
    "explain": [*SMALL, "--formats", "npz"],
    "compare": [*SMALL, "--methods", "gradient,sparse_moreau"],
    "attack": [*FEW, "--method", "smoothgrad"],
    "robustness": [*FEW, "--methods", "gradient", "--attacks", "noise", "--norms", "1", "--modes", "frozen"],
    "certify": ["--model", NET, "--epsilon", "0.1", "--samples", "20", "--attack-steps", "0"],
    "bulk": [*SMALL, "--engine", "serial"],
    "serve": ["--model", NET, "--port", "0"],
    "train cifar10": [*ARRAYS, "--network", "lipschitz", "--widths", "4", "--epochs", "1", "--batch", "32"],
    "train-mask": [*ARRAYS, "--model", NET, "--steps-selector", "1", "--steps-decoder", "1", "--batch", "4"],
}
OPERANDS = {
    "explain": [PHOTO, "photos", "../in/*.png", "photos/b[1].png", "-", f"{IN}/{ODD_NAME}"],
    "compare": [PHOTO, f"{IN}/{ODD_NAME}", "photos/a.png", "-"],
    "attack": [PHOTO, f"{IN}/{ODD_NAME}"],
    "certify": [PHOTO, f"{IN}/{ODD_NAME}"],
    "robustness": [PHOTO, "photos/a.png"],
    "bulk": ["photos", "../in", PHOTO, "../in/data.npz"],
    "report": ["job"],
}
SHARES = {
    "explain": 26,
    "bulk": 14,
    "compare": 10,
    "attack": 9,
    "certify": 12,
    "robustness": 9,
    "report": 6,
    "serve": 5,
    "train cifar10": 3,
    "train tiny-imagenet": 2,
    "train-mask": 3,
    "methods": 1,
    "models": 1,
    "demo": 1,
    "train": 1,
}
# lines of these are never right: `demo` is half a minute of work, and the other needs a data set and minutes
NEVER_RIGHT = {"demo": ["--out", PHOTO], "train tiny-imagenet": ["--data", "../in"]}


def prepare() -> None:
    """Everything that commands load, before the first case."""
    load_package()


def make_case(chance: random.Random) -> Case:
    """A command line, and what it may do."""
    name = chance.choices(list(SHARES), [SHARES[each] for each in SHARES])[0]
    line = [
        *type_operands(chance, name),
        *LITTLE.get(name, []),
        *type_options(chance, name, chance.choice([0, 1, 1, 2, 3])),
    ]
    if chance.random() > FIT:
        for spoil in chance.choices(SPOILS, WEIGHTS, k=chance.choice([1, 1, 2, 3])):
            line = spoil(chance, name, line)
    line += NEVER_RIGHT.get(name, [])
    words = [*name.split(), *line] if chance.random() < 0.98 else [chance.choice(WORDS), *line]
    name = shlex.join(words)[:300].encode(errors="backslashreplace").decode()
    return Case(name, partial(run_line, words, chance.random() < 0.05), check_answer)


@cache
def find_options(name: str) -> list[Option]:
    """The options of a command: their words as the library that parses them has them, their types as declared."""
    command: Any = get_command(app)
    for word in name.split():
        command = command.commands[word]
    declared = {
        info.name or info.callback.__name__: info.callback
        for info in [*app.registered_commands, *train.app.registered_commands]
        if info.callback
    }
    types = get_type_hints(declared[name.rsplit(maxsplit=1)[-1]]) if name != "train" else {}
    return [
        Option(each.name, (*each.opts, *each.secondary_opts), find_kind(types[each.name]))
        for each in command.params
        if each.param_type_name == "option" and each.name in types
    ]


def find_kind(declared: Any) -> str:
    """The plain type within lists and alternatives."""
    parts = {each.__name__ for each in [declared, *get_args(declared)] if isinstance(each, type)}
    return next((name for word, name in KINDS.items() if word in parts), "text")


def type_operands(chance: random.Random, name: str) -> list[str]:
    known = OPERANDS.get(name, [])
    return [chance.choice(known)] if known else []


def type_options(chance: random.Random, name: str, count: int) -> list[str]:
    """Options with values that fit."""
    return [
        word
        for each in chance.sample(find_options(name), k=min(count, len(find_options(name))))
        for word in fit(chance, each)
    ]


def fit(chance: random.Random, option: Option) -> Iterator[str]:
    # torch.compile takes half a minute, and sets what it likes in the process
    yield chance.choice([word for word in option.words if word != "--compile"])
    if option.kind != "flag":
        yield fitting_value(chance, option)


def give_odd_value(chance: random.Random, name: str, line: list[str]) -> list[str]:
    found = [each for each in find_options(name) if each.kind != "flag"]
    if not found:
        return [*line, chance.choice(WORDS)]
    option = chance.choice(found)
    value = odd_value(chance, option)
    word = chance.choice(option.words)
    return [*line, f"{word}={value}"] if chance.random() < 0.3 and word.startswith("--") else [*line, word, value]


def misspell(chance: random.Random, name: str, line: list[str]) -> list[str]:
    """An option that is nearly one, with or without a value."""
    word = chance.choice(chance.choice(find_options(name)).words if find_options(name) else ["--help"])
    place = chance.randrange(2, len(word) + 1)
    wrong = chance.choice([word[:place], word + chance.choice("s=-_x"), word.replace("-", "_"), word.upper(), word[1:]])
    return [*line, wrong, *chance.choice([[], ["1"], ["x"]])]


def leave_out_operand(chance: random.Random, name: str, line: list[str]) -> list[str]:
    return line[1:] if name in OPERANDS else [*line, "--data"]


def swap_operand(chance: random.Random, name: str, line: list[str]) -> list[str]:
    return [chance.choice(chance.choice([PATHS, PATHS, WORDS])), *(line[1:] if name in OPERANDS else line)]


def add_operand(chance: random.Random, name: str, line: list[str]) -> list[str]:
    return [*line, chance.choice(chance.choice([PATHS, WORDS]))]


def repeat(chance: random.Random, name: str, line: list[str]) -> list[str]:
    """One option several times, which all must agree on."""
    if not find_options(name):
        return [*line, "--help", "--help"]
    option = chance.choice(find_options(name))
    return [*line, *fit(chance, option), *fit(chance, option)]


def leave_out_value(chance: random.Random, name: str, line: list[str]) -> list[str]:
    found = [each for each in find_options(name) if each.kind != "flag"]
    return [*line, chance.choice(found).words[0]] if found else [*line, "--"]


def give_flag_a_value(chance: random.Random, name: str, line: list[str]) -> list[str]:
    found = [each.words[0] for each in find_options(name) if each.kind == "flag"]
    return [*line, f"{chance.choice(found)}={chance.choice(WORDS)}"] if found else [*line, "--help=1"]


def import_something(chance: random.Random, name: str, line: list[str]) -> list[str]:
    return [*line, "--import", chance.choice(IMPORTS)]


def put_out_anywhere(chance: random.Random, name: str, line: list[str]) -> list[str]:
    return [*line, "--out", chance.choice(PLACES)]


def ask_help(chance: random.Random, name: str, line: list[str]) -> list[str]:
    return [*line, "--help"]


Spoil = Callable[[random.Random, str, list[str]], list[str]]
SPOILS: list[Spoil] = [
    *(give_odd_value, misspell, leave_out_operand, swap_operand, add_operand, repeat, leave_out_value),
    *(give_flag_a_value, import_something, put_out_anywhere, ask_help),
]
WEIGHTS = [50, 7, 4, 8, 5, 5, 4, 4, 5, 6, 1]
