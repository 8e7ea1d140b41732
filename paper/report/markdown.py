"""Finds lines of the results by their values, and writes Markdown: cells, tables, pages made from templates."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from textwrap import fill

from paper import names
from paper.data import records
from paper.data.records import number

Row = Mapping[str, str]
NOT_PROSE = re.compile(  # code, formulas, links, comments
    r"```.*?```|`[^`\n]*`|\$\$.*?\$\$|\$[^$\n]+(?:\n[^$\n]+)*\$|(?:\[[\w./-]+)?\]\([^)]*\)|<!--.*?-->", re.DOTALL
)
WIDTH = 120


@dataclass(frozen=True)
class Results:
    """The folder of the results; a file is read once."""

    folder: Path
    known: dict[str, list[dict[str, str]]] = field(default_factory=dict)

    def lines(self, file: str) -> list[dict[str, str]]:
        if file not in self.known:
            self.known[file] = records.read(self.folder / file)
        return self.known[file]

    def select(self, file: str, where: Mapping[str, str]) -> list[Row]:
        """The lines that have these values; numbers are compared as numbers."""
        return [line for line in self.lines(file) if all(_equal(line.get(key), where[key]) for key in where)]

    def one(self, file: str, where: Mapping[str, str]) -> Row:
        """The one line that has these values."""
        found = self.select(file, where)
        if len(found) != 1:
            raise ValueError(f"{file} must have one line with {dict(where)}, got {len(found)}; name other columns")
        return found[0]


def _equal(there: str | None, asked: str) -> bool:
    if there is None or there == asked:
        return there is not None
    try:
        return float(there) == float(asked)
    except ValueError:
        return False


def format_percent(share: float) -> str:
    return f"{share:.0%}".replace("%", " %")


def format_interval(line: Row, column: str = "mean", spec: str = ".2f") -> str:
    """0.45 [0.37, 0.55]; a dash where nothing was defined."""
    middle, low, high = (number(line[name]) for name in (column, f"{column}_low", f"{column}_high"))
    return "-" if math.isnan(middle) else f"{middle:{spec}} [{low:{spec}}, {high:{spec}}]"


def make_table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [list(head), ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def format_difference(line: Row) -> str:
    """A difference with its sign; bold where the interval leaves zero out."""
    text = format_interval(line, spec="+.3f")
    return f"**{text}**" if number(line["mean_low"]) * number(line["mean_high"]) > 0 else text


def title_difference(metric: str) -> str:
    """The heading of a metric's differences."""
    return f"{names.metric(metric)} ({'below' if names.is_lower_better(metric) else 'above'} zero is better)"


def find_stray_numbers(template: str, names: Iterable[str]) -> list[str]:
    """Lines whose prose holds a digit: outside code, formulas, links, comments and the names that may hold one."""
    prose = NOT_PROSE.sub(" ", template)
    for name in sorted(names, key=len, reverse=True):
        prose = re.sub(rf"(?<!\w){re.escape(name)}(?!\w)", " ", prose)
    return [line.strip() for line in prose.splitlines() if re.search(r"\d", line)]


def reflow(text: str) -> str:
    """The text with paragraphs and list items wrapped; tables, headings, code and pictures as they are."""
    found = []
    for part in re.split(r"(```.*?```)", text, flags=re.DOTALL):
        blocks = [part] if part.startswith("```") else re.split(r"\n{2,}", part.strip("\n"))
        found += [_reflow_block(block) for block in blocks if block.strip()]
    return "\n\n".join(found) + "\n"


def _reflow_block(block: str) -> str:
    if block.startswith(("|", "#", "!", "<", "```")):
        return block
    style = {"break_long_words": False, "break_on_hyphens": False}
    items = (" ".join(item.split()) for item in re.split(r"\n(?=- )", block))
    return "\n".join(fill(item, WIDTH, subsequent_indent="  " * item.startswith("- "), **style) for item in items)
