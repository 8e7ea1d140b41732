"""The map that the page shows first, kept from one start of the server to the next in the user's cache folder.

The disk never stops the server: what cannot be read is computed, and what cannot be written is not kept.
"""

from __future__ import annotations

import json
import os
from contextlib import suppress
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Any
from zipfile import ZipFile

import torch

import moreaugrad as mg
from moreaugrad.app.jobs import File, Job, JobResult
from moreaugrad.app.models import check_explainer
from moreaugrad.app.tasks import Task
from moreaugrad.files import make_folder, replacing
from moreaugrad.identity import describe_explainer, digest_bytes
from moreaugrad.models import INCLUDED, find_entry

MOST = 4  # entries; those that were written first go first
PACKAGES = ("moreaugrad", "timm", "numpy", "pillow")


def run_once(task: Task, job: Job) -> JobResult:
    """What the task gives; from the disk, where the same program on the same weights has given it before."""
    path = None
    with suppress(Exception):  # no folder, no entry, a damaged one, or none of ours
        path = find_place(task)
        result, news = _read(path)
        for name, data in news.items():
            job.tell(name, data)
        return result
    result = task.run(job)
    if path is not None:
        with suppress(Exception):  # a full disk, or a folder that takes no files
            _write(path, result, {name: data for _, name, data in job.news_after(0) if name == "classes"})
    return result


def find_place(task: Task) -> Path:
    """The file of a result. Raises for a network of the user's own code: of that, weights do not tell all."""
    if not find_entry(task.model).flags >= INCLUDED:
        raise LookupError(f"{task.model} is not kept")
    return find_folder() / f"first-{identify(task)}.zip"


def find_folder() -> Path:
    """Where programs of this user keep what they can make again."""
    local = os.environ.get("LOCALAPPDATA") if os.name == "nt" else None
    return Path(os.environ.get("XDG_CACHE_HOME") or local or Path.home() / ".cache") / "moreaugrad"


def identify(task: Task) -> str:
    """A digest of all that the result depends on: the request, the network, the code and the machine."""
    explainer = check_explainer(task.classifier, task.method, task.options)
    code = b"".join(each.read_bytes() for each in sorted(Path(mg.__file__).parent.rglob("*.py")))
    machine = [str(task.classifier.device), torch.backends.cpu.get_cpu_capability(), torch.get_num_threads()]
    program = [torch.__version__, *map(version, PACKAGES), digest_bytes(code)]
    asked = [task.same, dict(task.loaded), dict(task.asked), task.classifier.labels]
    return digest_bytes(json.dumps([asked, describe_explainer(explainer), program, machine]).encode())


def _read(path: Path) -> tuple[JobResult, dict[str, Any]]:
    with ZipFile(path) as archive:  # which checks the sums of what is read
        head = json.loads(archive.read("head"))
        if head["entry"] != path.name:
            raise ValueError("the entry is one of another name")
        files = {
            key: File(name, kind, partial(bytes, archive.read(f"files/{key}")))
            for key, (name, kind) in head["files"].items()
        }
    return JobResult(dict(head["facts"]), files, int(head["size"])), dict(head["news"])


def _write(path: Path, result: JobResult, news: dict[str, Any]) -> None:
    """Write an entry, whole or not at all, and drop those that are too many."""
    names = {key: (file.name, file.kind) for key, file in result.files.items()}
    head = {"entry": path.name, "facts": dict(result.facts), "files": names, "size": result.size, "news": news}
    make_folder(path.parent)
    with replacing(path) as handle, ZipFile(handle, "w") as archive:
        archive.writestr("head", json.dumps(head))
        for key, file in result.files.items():
            archive.writestr(f"files/{key}", file.make())
    every = sorted(path.parent.glob("first-*.zip"), key=lambda each: each.stat().st_mtime)
    for old in every[:-MOST]:
        old.unlink(missing_ok=True)
