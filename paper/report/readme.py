"""Renders paper/README.md from its template, with every number from a file of the results.

`python -m paper.report.readme`. The placeholders:

{{number FILE column=mean format=.2f key=value ...}}, {{interval FILE key=value ...}}, {{json FILE a.b.0}},
{{table NAME option=value ...}}, and {{if FILE key=value ...}} ... {{end}} for what may not be there.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from moreaugrad.files import replacing
from paper.report import tables
from paper.report.markdown import Results, find_stray_numbers, format_interval, reflow

HERE = Path(__file__).parents[1]
TEMPLATE, README, RESULTS = HERE / "README.in.md", HERE / "README.md", HERE / "results"
PLACE = re.compile(r"\{\{(.*?)\}\}", re.DOTALL)
OPTIONAL = re.compile(r"\{\{if (\S+?)((?: [^\s=}]+=[^\s}]+)*)\}\}\n?(.*?)\{\{end\}\}\n?", re.DOTALL)
KINDS = ("number", "interval", "json", "table")
NOTE = "<!-- Made from README.in.md by `python -m paper.report.readme`: edit that file, not this one. -->\n\n"
# digits that belong to a name, a unit or a definition, and are no result
NAMES = (
    *("CIFAR-10", "ResNet-18", "ImageNet-1K", "Lite0", "B0", "L2", "L1", "H200", "TF32", "float16", "float32"),
    *("95 %", "200-class", "8-bit", "2023"),
)


def render(template: str, folder: Path) -> str:
    """The README's text."""
    if found := find_stray_numbers(PLACE.sub(" ", template), NAMES):
        raise ValueError(f"the template must take every number from the results, got {found}; use a placeholder")
    results = Results(folder)
    kept = OPTIONAL.sub(lambda found: found[3] if _applies(results, found[1], found[2]) else "", template)
    text = PLACE.sub(lambda found: _fill(found[1], results), kept)
    return NOTE + reflow(text)


def _applies(results: Results, file: str, where: str) -> bool:
    """Whether the file is there and has a line with these values."""
    wanted = dict(word.partition("=")[::2] for word in where.split())
    return (results.folder / file).is_file() and (not wanted or bool(results.select(file, wanted)))


def _fill(asked: str, results: Results) -> str:
    """What stands in place of one placeholder."""
    kind, *words = asked.split()
    given = dict(word.partition("=")[::2] for word in words if "=" in word)
    bare = [word for word in words if "=" not in word]
    try:
        return _answer(kind, bare, given, results)
    except (ValueError, KeyError, IndexError, TypeError, OSError) as error:
        raise ValueError(f"{{{{{asked.strip()}}}}}: {error}") from error


def _answer(kind: str, bare: Sequence[str], given: dict[str, str], results: Results) -> str:
    if kind not in KINDS or not bare:
        raise ValueError(f"a placeholder must begin with one of {KINDS} and a name, got {kind!r}")
    if kind == "table":
        return tables.make(results, bare[0], given)
    spec = given.pop("format", "" if kind == "json" else ".2f")
    if kind == "json":
        return format(_walk(json.loads((results.folder / bare[0]).read_text(encoding="utf-8")), bare[1]), spec)
    column = given.pop("column", "value" if kind == "number" else "mean")
    line = results.one(bare[0], given)
    if kind == "interval":
        return format_interval(line, column, spec)
    return f"{float(line[column]):{spec}}".replace("%", " %")


def _walk(found: Any, path: str) -> Any:
    for step in path.split("."):
        found = found[int(step)] if isinstance(found, list) else found[step]
    return found


def main() -> int:
    try:
        text = render(TEMPLATE.read_text(encoding="utf-8"), RESULTS)
    except (ValueError, OSError) as error:
        sys.stderr.write(f"error: {error}\n")
        return 2
    README.parent.mkdir(parents=True, exist_ok=True)
    with replacing(README) as file:
        file.write(text.encode())
    return 0


if __name__ == "__main__":
    sys.exit(main())
