"""The values of the page on reliability, from what the programs in `reliability` have stored.

A part of doc_values.py, which names the topics.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from functools import cache
from pathlib import Path
from typing import Any

from reliability.fuzz.case import MEMORY
from reliability.fuzz.runner import LONGEST

RESULTS = Path(__file__).parents[1] / "benchmarks" / "results"
SIGNALS = ("SIGKILL", "SIGINT", "SIGTERM")
TRIED = {  # targets of the fuzzers, in words
    "images": "image files: damaged, huge, empty, oddly named, without permission",
    "checkpoints": "checkpoints: damaged, hostile, of other shapes",
    "saved": "saved maps, studies, results and jobs: cut off, edited, of other versions",
    "tensors": "tensors, targets and models of every kind",
    "options": "options of everything public",
    "commands": "command lines",
    "requests": "requests to the page",
}

Values = dict[str, Any]


@cache
def read(name: str) -> Any:
    return json.loads((RESULTS / f"{name}_cpu.json").read_text(encoding="utf-8"))


def rows(cells: Iterable[Iterable[object]]) -> str:
    """Rows of a Markdown table."""
    return "\n".join(f"| {' | '.join(map(str, row))} |" for row in cells)


def fuzz() -> Values:
    """Calls with bad input."""
    found = read("fuzz")
    return {
        "cases": found["cases"],
        "seed": found["seed"],
        "date": found["date"].split()[0],
        "longest": LONGEST,
        "gigabytes": MEMORY / 2**30,
        "table": rows((TRIED[row["target"]], f"{row['cases']:,}", row["failures"]) for row in found["targets"]),
    }


def failures() -> Values:
    """Failures planted at calls of models and at writes."""
    table: list[tuple[object, ...]] = []
    for what in ("model calls", "writes"):
        some = [row for row in read("failures")["rows"] if row["what"] == what]
        sums = (sum(row[key] for row in some) for key in ("failures", "faults"))
        many = "every method, attack, metric and other call" if what == "model calls" else f"{len(some)} commands"
        table.append((what, many, *(f"{each:,}" for each in sums)))
    return {"table": rows(table)}


def kills() -> Values:
    """Commands that were ended at random moments."""
    found = read("kills")["commands"]
    table = [
        (
            f"`{row['command']}`",
            ", ".join(str(row["kills"].get(name, 0)) for name in SIGNALS),
            *(row[key] for key in ("finished", "different", "faults")),
        )
        for row in found
    ]
    sums = [sum(row[key] for row in found) for key in ("finished", "different", "faults")]
    whole = ", ".join(str(sum(row["kills"].get(name, 0) for row in found)) for name in SIGNALS)
    return {"table": rows([*table, ("all", whole, *sums)])}


def threads() -> Values:
    """Calls from several threads and processes."""
    found = read("threads")
    table = [(row["check"], f"{row['calls']:,}", len(row["faults"])) for row in found["checks"]]
    return {"calls": found["calls"], "threads": found["threads"], "table": rows(table)}


def determinism() -> Values:
    """Maps of one seed, made in different places."""
    table = [
        (
            row["what"],
            row["methods"],
            row["same"],
            f"{row['largest']:.1e}" if row["largest"] else "0",
            f"`{row['test'].rpartition('::')[2]}`" if "::" in row["test"] else row["test"],
        )
        for row in read("determinism")["table"]
    ]
    return {"table": rows(table)}


def leaks() -> Values:
    """What repeated calls leave behind."""
    found = read("leaks")
    kinds: dict[str, list[Any]] = {}
    for row in found["rows"]:
        member = row["what"].split()[0] in ("method", "attack", "metric")
        kinds.setdefault(f"every {row['what'].split()[0]}" if member else row["what"], []).append(row)
    table = [
        (
            kind,
            f"{min(row['calls'] for row in some):,}",
            f"{max(row['bytes_per_call'] for row in some):.0f}",
            sum(len(row["faults"]) for row in some),
        )
        for kind, some in kinds.items()
    ]
    return {"limit": found["limit_bytes_per_call"], "table": rows(table)}
