"""Folders that the package fills and goes on with: a study, results of `explain`, a bulk job. Each is made once."""

from __future__ import annotations

import contextlib
import io
import json
import logging
import random
import tempfile
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image

import moreaugrad as mg
from reliability.fuzz.damage import CELLS_OF_ROWS, edit
from reliability.fuzz.image_files import store
from reliability.fuzz.tiny_network import NAME, shared_network

STUDY: dict[str, dict[str, Any]] = {"gradient": {}}
PHOTOS = 3


@dataclass(frozen=True)
class Template:
    """The files of a folder, what is done with it, and what must come of that."""

    contents: Mapping[str, bytes]
    acts: Mapping[str, Callable[[Path], Any]]
    check: Callable[[Any], str | None]

    @property
    def files(self) -> list[str]:
        return list(self.contents)

    def unpack(self, place: Path) -> None:
        place.mkdir(parents=True)
        write_photos(place.parent / "photos")
        for name, content in self.contents.items():
            (place / name).write_bytes(content)

    def edit(self, chance: random.Random, file: str) -> bytes | None:
        """A text with other values in it; None for a file of another kind."""
        content = self.contents[file]
        if file.endswith((".json", ".jsonl")):
            lines = content.splitlines() if file.endswith("l") else [content]
            at = chance.randrange(len(lines))
            lines[at] = dump(edit(chance, json.loads(lines[at])))
            return b"\n".join(lines) + b"\n"
        if file.endswith(".csv"):
            lines = content.split(b"\n")
            at = chance.randrange(len(lines) - 1)
            cells = lines[at].split(b",")
            cells[chance.randrange(len(cells))] = chance.choice(CELLS_OF_ROWS)
            lines[at] = b",".join(cells)
            return b"\n".join(lines)
        return edit_part(chance, content) if file.endswith(".parquet") else None


def dump(value: Any) -> bytes:
    """As JSON; by chance of a kind that cannot be read."""
    return json.dumps(value).encode(errors="replace")


def write_photos(folder: Path) -> None:
    folder.mkdir()
    for number in range(PHOTOS):
        pixels = np.random.default_rng(number).integers(0, 256, (9, 9, 3)).astype(np.uint8)
        (folder / f"{number}.png").write_bytes(store(Image.fromarray(pixels), "png"))


def edit_part(chance: random.Random, content: bytes) -> bytes:
    """A part of a job with another value in one cell, another type of a column, or other columns."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    table = pq.read_table(io.BytesIO(content))
    columns: dict[str, Any] = {name: table.column(name).to_pylist() for name in table.column_names}
    name = chance.choice(table.column_names)
    what = chance.random()
    odd = chance.choice((None, -1, 0, 2**31 - 1, 10**6, float("nan"), [], [1], [2**30, 2**30], [-1], "x", "../x", 1.5))
    kinds = dict(zip(table.column_names, table.schema.types, strict=True))
    if what < 0.6:
        columns[name][chance.randrange(len(columns[name]))] = odd
    elif what < 0.7:
        kinds[name], columns[name] = chance.choice(
            ((pa.string(), ["a"]), (pa.float64(), [1.5]), (pa.binary(), [b"\xff"]))
        )
        columns[name] *= table.num_rows
    elif what < 0.8:
        del columns[name]
    elif what < 0.9:
        columns["new"], kinds["new"] = [1] * table.num_rows, pa.int64()
    else:
        columns = {key: each * chance.choice((0, 2, 40)) for key, each in columns.items()}
    try:
        arrays = {key: pa.array(each, kinds[key]) for key, each in columns.items()}
        pq.write_table(pa.table(arrays), stored := io.BytesIO())
    except (pa.ArrowException, OverflowError, TypeError, ValueError):  # the type takes no such value
        return content[:-3]
    return stored.getvalue()


@contextlib.contextmanager
def own_log() -> Any:
    """The handlers that a command sets for its process, which here goes on to live."""
    log = logging.getLogger("moreaugrad")
    before = list(log.handlers)
    try:
        yield
    finally:
        log.handlers = before


def command(*typed: object) -> Any:
    """A command line in this process; its exit code. Errors come as they are raised."""
    from moreaugrad.cli.app import app

    with own_log(), warnings.catch_warnings():
        return app([str(each) for each in typed], prog_name="moreaugrad", standalone_mode=False)


def run_study(place: Path) -> mg.StudyResult:
    x = torch.rand(2, 3, 8, 8, generator=torch.Generator().manual_seed(2))
    study = mg.Study(STUDY, {"topk": {"steps": 1}}, epsilons=(1.0,), metrics=(), budget=4, attack_budget=4)
    return mg.run_study(study, shared_network(), x, place)


def explain_folder(place: Path) -> Any:
    photos = place.parent / "photos"
    return command("explain", photos, "--model", NAME, "--method", "gradient", "--formats", "npz", "--out", place)


def run_job(place: Path) -> mg.BulkMaps:
    run = mg.RunOptions(engine="serial", part_size=2)
    photos = str(place.parent / "photos")
    return mg.bulk(NAME, photos, place, "sparse_moreau", sparsity=0.2, budget=8, preset=None, run=run)


def read_job(place: Path) -> mg.BulkMaps:
    maps = mg.open_maps(place)
    assert len(list(maps)) == len(maps) == len(maps.keys) == maps.facts.num_rows
    assert all(maps[key].key == key for key in maps.keys)
    assert len(maps.digest()) == 32
    return maps


def report_job(place: Path) -> mg.BulkMaps:
    from moreaugrad.bulk_jobs.report import write_report

    write_report(maps := mg.open_maps(place))
    return maps


def check_study(found: Any) -> str | None:
    whole = found.finished and len(found.rows) == 2 * found.total
    return None if whole else f"{len(found.rows)} rows of {found.total} cells"


def check_results(code: Any) -> str | None:
    return None if code in (0, None) else f"exit code {code} of a folder that can be gone on with"


def check_job(found: Any) -> str | None:
    if not isinstance(found, mg.BulkMaps):
        return None
    for row in found:
        if row.map is not None and not np.isfinite(row.map).all():
            return "a map that is not finite"
    return None


@cache
def list_templates() -> dict[str, Template]:
    """Every kind of folder."""
    acts: dict[str, tuple[Callable[[Path], Any], dict[str, Callable[[Path], Any]], Callable[[Any], str | None]]] = {
        "a study": (run_study, {"resume": run_study}, check_study),
        "results": (explain_folder, {"resume": explain_folder}, check_results),
        "a job": (
            run_job,
            {
                "read": read_job,
                "report": report_job,
                "resume": run_job,
                "status": lambda at: command("bulk", "--status", at),
            },
            check_job,
        ),
    }
    found = {}
    for name, (make, every, check) in acts.items():
        with tempfile.TemporaryDirectory() as folder, torch.random.fork_rng(devices=[]):
            place = Path(folder) / "out" / "job"
            place.mkdir(parents=True)
            write_photos(place.parent / "photos")
            with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
                make(place)
            contents = {each.name: each.read_bytes() for each in sorted(place.iterdir()) if each.stat().st_size}
        found[name] = Template(contents, every, check)
    return found
