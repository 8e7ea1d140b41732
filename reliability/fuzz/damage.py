"""Ways to spoil what a file holds: its bytes, or the values of a JSON text."""

from __future__ import annotations

import copy
import math
import random
from collections.abc import Callable
from typing import Any

CELLS_OF_ROWS = (
    *(b"", b"nan", b"inf", b"-inf", b"text", b"-1", b"0", b"1e999", b"9" * 5000, b"1.5", b'"', b"a,b", b"\0", b"\xff"),
    *(b"True", b"None", b"strongest", b"\r", b"x" * 200_000),
)
LARGE = (0, 1, 0x7F, 0x80, 0xFF, 0x7FFF, 0xFFFF, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFF)
VALUES: tuple[Any, ...] = (
    *(None, True, False, 0, -1, 1, 3, 2**31, 2**63, 2**64, 10**30, -(2**63), 0.5, 1e308, -1e-320),
    *(math.nan, math.inf, "", "text", "1", "nan", "../../x", "/etc/hostname", "..", "a/b", "\0", "\ud800", "é\n"),
    *("x" * 3000, [], {}, [1], [None], [[1, 2], [3]], {"a": 1}, {"tuple": [1]}, {"dict": {}}),
)


def spoil(chance: random.Random, content: bytes) -> bytes:
    """The content with one to four kinds of damage."""
    found = bytearray(content)
    for _ in range(chance.choice((1, 1, 1, 2, 4))):
        chance.choice(DAMAGES)(chance, found)
    return bytes(found)


def _place(chance: random.Random, content: bytearray) -> int:
    """Anywhere, but half of the time near the front or the back, where formats keep what they rely on."""
    size = len(content)
    near = chance.randrange(min(size, 64)) if size else 0
    return chance.choice((near, max(0, size - 1 - near), chance.randrange(size) if size else 0))


def _flip(chance: random.Random, content: bytearray) -> None:
    for _ in range(chance.choice((1, 1, 2, 8))):
        if content:
            content[_place(chance, content)] ^= 1 << chance.randrange(8)


def _cut_end(chance: random.Random, content: bytearray) -> None:
    del content[_place(chance, content) :]


def _cut_out(chance: random.Random, content: bytearray) -> None:
    at = _place(chance, content)
    del content[at : at + chance.choice((1, 4, 16, 64))]


def _insert(chance: random.Random, content: bytearray) -> None:
    at = _place(chance, content)
    content[at:at] = chance.choice((chance.randbytes(chance.choice((1, 4, 32))), bytes(8), b"\xff" * 8))


def _repeat(chance: random.Random, content: bytearray) -> None:
    at = _place(chance, content)
    content[at:at] = content[at : at + chance.choice((4, 16, 64))] * chance.choice((1, 2, 50))


def _swap(chance: random.Random, content: bytearray) -> None:
    one, other = sorted((_place(chance, content), _place(chance, content)))
    size = min(chance.choice((4, 12, 32)), other - one)
    content[one : one + size], content[other : other + size] = (
        content[other : other + size],
        content[one : one + size],
    )


def _set_number(chance: random.Random, content: bytearray) -> None:
    at, size = _place(chance, content), chance.choice((1, 2, 4, 8))
    number = min(chance.choice(LARGE), 2 ** (8 * size) - 1)
    content[at : at + size] = number.to_bytes(size, chance.choice(("little", "big")))


def _append(chance: random.Random, content: bytearray) -> None:
    content += chance.choice((b"\0", b"\n", chance.randbytes(30), content[: chance.randrange(1, 200)]))


DAMAGES: tuple[Callable[[random.Random, bytearray], None], ...] = (
    _flip,
    _flip,
    _cut_end,
    _cut_out,
    _insert,
    _repeat,
    _swap,
    _set_number,
    _set_number,
    _append,
)


def edit(chance: random.Random, tree: Any) -> Any:
    """A copy of a JSON value in which one or two entries have another value, another name, or are gone."""
    found = [copy.deepcopy(tree)]  # in a list, so that the whole of it can be replaced
    for _ in range(chance.choice((1, 1, 2))):
        holder, key = _choose_entry(chance, found)
        what = chance.random()
        if what < 0.6 or not isinstance(holder, dict):
            holder[key] = copy.deepcopy(chance.choice(VALUES))
        elif what < 0.8:
            del holder[key]
        elif what < 0.9:
            holder[chance.choice(("new", "", "../x", "0", str(key) + "s"))] = holder.pop(key)
        else:
            holder[chance.choice(("new", "version", "format", "files", "map"))] = copy.deepcopy(chance.choice(VALUES))
    return found[0]


def _choose_entry(chance: random.Random, tree: Any) -> tuple[Any, Any]:
    """A container and the key of one of its entries, at any depth."""
    holder, key = tree, 0
    while isinstance(inner := holder[key], dict | list) and inner and chance.random() < 0.85:
        holder, key = inner, chance.choice(list(inner) if isinstance(inner, dict) else range(len(inner)))
    return holder, key
