"""The folder of a job: job.json, which says all that its maps depend on, the parts, and who may fill them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from moreaugrad.files import find_difference, parse_json, replacing
from moreaugrad.locks import hold

JOB, LOCK = "job.json", ".lock"
FORMAT = "moreaugrad.bulk"
MOST_PARTS = 10**6  # a job.json can claim any number of images
NEEDED = {"source": dict, "model": str, "method": str, "options": dict, "part_size": int, "view": str}
VERSION = 1  # raise it when an older reader would misread the folder


@dataclass(frozen=True, slots=True)
class Part:
    """Some rows of the source, which one file holds."""

    number: int
    rows: range

    def path(self, folder: Path) -> Path:
        return folder / f"part-{self.number:06d}.parquet"


def split_parts(images: int, size: int) -> list[Part]:
    """All parts of a job."""
    if images > MOST_PARTS * size:
        raise ValueError(
            f"a job must have at most {MOST_PARTS:,} parts, got {images} images by {size}; raise part_size"
        )
    starts = range(0, images, size)
    return [Part(number, range(start, min(start + size, images))) for number, start in enumerate(starts)]


def parts_of(job: Mapping[str, Any]) -> list[Part]:
    """The parts that a job.json tells of."""
    configuration = job["configuration"]
    return split_parts(configuration["source"]["images"], configuration["part_size"])


def read_job(folder: Path) -> dict[str, Any]:
    """What job.json says, or one sentence on why there is none."""
    path = folder / JOB
    if not path.is_file():
        raise ValueError(f"{str(folder)!r} must hold a job of `moreaugrad bulk`, got no {JOB} there; check the path")
    try:
        found: dict[str, Any] = parse_json(path.read_text(encoding="utf-8"))
        ours, version = found["format"] == FORMAT, int(found["version"])
        if ours and version <= VERSION:
            _check_job(found)
            parts_of(found)
    except (OSError, ValueError, LookupError, TypeError, AttributeError, ArithmeticError) as error:
        ours, reason = False, f" ({type(error).__name__}: {error})"
    else:
        reason = ""
    if not ours:
        raise ValueError(
            f"{path} must describe a job of `moreaugrad bulk`, got another file or a damaged one{reason}; name another "
            "folder"
        )
    if version > VERSION:
        raise ValueError(
            f"{path} must have version {VERSION} or lower, got {version}: a newer moreaugrad wrote it; upgrade this one"
        )
    return found


def _check_job(found: Mapping[str, Any]) -> None:
    """Raise where job.json lacks what its readers ask for."""
    configuration, runs = found["configuration"], found["runs"]
    for name, kind in NEEDED.items():
        value = configuration.get(name, "" if name == "view" else None)
        if not isinstance(value, kind) or isinstance(value, bool):
            raise ValueError(f"{name} is {value!r:.80}")
    images = configuration["source"]["images"]
    if not isinstance(images, int) or min(images, configuration["part_size"]) < 1:
        raise ValueError(f"{images!r:.80} images in parts of {configuration['part_size']}")
    if lacking := {"target", "seed"} - configuration.keys():
        raise ValueError(f"without {', '.join(lacking)}")
    if not isinstance(runs, list):
        raise ValueError(f"runs is {runs!r:.80}")
    for run in runs:
        if not {"began", "device"} <= run.keys() or not isinstance(run["versions"], dict):
            raise ValueError(f"a run is {run!r:.80}")


def join_job(folder: Path, configuration: Mapping[str, Any], run: Mapping[str, Any]) -> list[Any]:
    """Write job.json, or add a run to the one that is there; another job is refused, with what differs.

    Returns the earlier runs.
    """
    asked = json.loads(json.dumps(configuration))
    runs: list[Any] = []
    if (folder / JOB).exists():
        known = read_job(folder)
        runs = known["runs"]
        if difference := find_difference(_without_place(asked), _without_place(known["configuration"])):
            name, new, old = difference
            raise ValueError(
                f"{str(folder)!r} must hold the same job, got {name} = {new}, where its {JOB} has {old}; take that, or "
                "name another folder"
            )
    elif any(folder.glob("part-*.parquet")):
        raise ValueError(f"{str(folder)!r} must be empty or hold a job, got parts without {JOB}; name another folder")
    found = {"format": FORMAT, "version": VERSION, "configuration": asked, "runs": [*runs, run]}
    with replacing(folder / JOB) as file:
        file.write((json.dumps(found, indent=2) + "\n").encode())
    return runs


def _without_place(configuration: Mapping[str, Any]) -> dict[str, Any]:
    """A job's images may move: they are known by their digest."""
    source = {name: value for name, value in configuration["source"].items() if name != "path"}
    return {**configuration, "source": source}


def hold_parts(folder: Path, parts: range) -> AbstractContextManager[None]:
    """The right to fill some parts of a folder. Drivers of different shards may work on one folder."""
    return hold(folder / LOCK, repr(str(folder)), parts, " (--status tells how far it is)")
