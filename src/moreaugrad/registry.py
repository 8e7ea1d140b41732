"""Named families (methods, priors, ...): one line per member, imported only when it is used.

Listing a table costs no torch import, so the command line answers at once.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from importlib import import_module
from typing import Any


class UnknownNameError(KeyError, ValueError):
    """A name that is in no table. A KeyError for mappings, a ValueError for users."""

    def __str__(self) -> str:
        return str(self.args[0])


def unknown(what: str, name: object, known: list[str]) -> UnknownNameError:
    close = get_close_matches(str(name), known, n=1)
    hint = f" Did you mean {close[0]!r}?" if close else ""
    return UnknownNameError(f"{what} must be one of {known}, got {name!r}.{hint}")


@dataclass(frozen=True, slots=True)
class Entry:
    """One member: where its class lives, what it is in a line, and what it can do."""

    path: str  # "package.module:Class"
    summary: str
    flags: frozenset[str] = frozenset()

    def load(self) -> Any:
        module, name = self.path.split(":")
        return getattr(import_module(module), name)

    def __call__(self, *args: Any, **options: Any) -> Any:
        return self.load()(*args, **options)


class Table(Mapping[str, Entry]):
    """A read-only mapping from name to Entry, whose errors name the members."""

    def __init__(self, what: str, **entries: Entry) -> None:
        self.what = what
        self._entries = entries

    def __getitem__(self, name: str) -> Entry:
        try:
            return self._entries[name]
        except (KeyError, TypeError):
            raise unknown(self.what, name, list(self._entries)) from None

    def __iter__(self) -> Iterator[str]:
        return iter(self._entries)

    def __len__(self) -> int:
        return len(self._entries)

    def __repr__(self) -> str:
        return f"Table({self.what}: {', '.join(self)})"
