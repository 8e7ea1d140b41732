"""The target `saved`: files and folders that the package writes itself, damaged or edited, read and gone on with."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

from reliability.fuzz.case import Case
from reliability.fuzz.damage import spoil
from reliability.fuzz.saved_explanations import list_explanations, make_explanation_case
from reliability.fuzz.saved_folders import Template, list_templates

Change = Callable[[Path], None]  # of a folder


def prepare() -> None:
    """The files and folders that cases damage."""
    list_templates()
    list_explanations()


def make_case(chance: random.Random) -> Case:
    if chance.random() < 0.35:
        return make_explanation_case(chance)
    name = chance.choice(list(list_templates()))
    template = list_templates()[name]
    file = chance.choice(template.files)
    what, change = choose_change(chance, template, file)
    act = chance.choice(list(template.acts))

    def run(folder: Path) -> object:
        place = folder / "out" / "job"
        template.unpack(place)
        change(place)
        return template.acts[act](place)

    return Case(f"{name}: {file} {what}, then {act}", run, template.check)


def choose_change(chance: random.Random, template: Template, file: str) -> tuple[str, Change]:
    """What becomes of a file of a folder, in words and as a function."""
    content = template.contents[file]
    edited = template.edit(chance, file)
    if edited is not None and chance.random() < 0.6:
        return "edited", lambda place: _replace(place / file, edited)
    spoilt, some, other = (
        spoil(chance, content),
        content[: chance.randrange(len(content))],
        chance.choice(template.files),
    )
    far = chance.choice(("/etc/hostname", "../../beside", ".", "nothing", f"../job/{other}"))
    changes: dict[str, Change] = {
        "spoilt": lambda place: _replace(place / file, spoilt),
        "cut": lambda place: _replace(place / file, some),
        "empty": lambda place: _replace(place / file, b""),
        "gone": lambda place: (place / file).unlink(),
        "a folder": lambda place: _make_folder(place / file),
        f"a link to {far}": lambda place: _link(place / file, far),
        f"a copy of {other}": lambda place: _replace(place / file, template.contents[other]),
        "untouched": lambda place: None,
    }
    weights = [10, 5, 2, 2, 1, 2, 2, 1]
    (what,) = chance.choices(list(changes), weights)
    return what, changes[what]


def _replace(path: Path, content: Any) -> None:
    path.write_bytes(content)


def _make_folder(path: Path) -> None:
    path.unlink()
    path.mkdir()


def _link(path: Path, to: str) -> None:
    (path.parent.parent.parent / "beside").write_bytes(path.read_bytes())
    path.unlink()
    path.symlink_to(to)
