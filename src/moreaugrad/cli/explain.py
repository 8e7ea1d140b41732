"""`explain`: pictures, raw maps and JSON lines of images, in a folder that any run can go on with.

Heavy imports are made inside.
"""

from __future__ import annotations

import gc
import json
import logging
import math
import time
import warnings
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from moreaugrad.cli.checks import check_method, choose_method, make_output, refuse_missing
from moreaugrad.cli.index_page import write_index
from moreaugrad.cli.jobs import Job, make_jobs
from moreaugrad.cli.options import (
    OUTPUT,
    ClassOptions,
    Frames,
    ImageFiles,
    Json,
    MethodName,
    MethodOptions,
    ModelOptions,
    Out,
    Quiet,
)
from moreaugrad.cli.results_folder import BUSY, ENDINGS, MINE, ResultsFolder
from moreaugrad.cli.terminal import INTERRUPTED, Interruption, Terminal
from moreaugrad.data.sources import RESULTS, as_path, find_images

if TYPE_CHECKING:
    from moreaugrad.api import Explainer, Record

log = logging.getLogger("moreaugrad")

ALL_DONE, SOME_FAILED, NOTHING_DONE = 0, 1, 2
BATCH = {"cuda": 64}  # images per call; one by one on other devices

Resume = Annotated[
    bool,
    typer.Option(
        "--resume/--no-resume",
        help="Skip images that OUT holds already, explained with equal options.",
        rich_help_panel=OUTPUT,
    ),
]
Pictures = Annotated[
    bool, typer.Option("--pictures/--no-pictures", help="Draw a picture of each map.", rich_help_panel=OUTPUT)
]
Formats = Annotated[
    str,
    typer.Option(
        help="Files for each image, with commas: png (picture), npz (raw map), json (as its line).",
        rich_help_panel=OUTPUT,
    ),
]


def explain(  # noqa: PLR0913
    images: ImageFiles,
    *,
    method: MethodName = None,
    classes: ClassOptions,
    model: ModelOptions,
    options: MethodOptions,
    frames: Frames = False,
    out: Out = Path("maps"),
    formats: Formats = "png,npz",
    pictures: Pictures = True,
    resume: Resume = True,
    json: Json = False,
    quiet: Quiet = False,
) -> int:
    """Explain images: write a picture, the raw map (.npz) and a JSON line for each to the folder OUT.

    The same command goes on where it was stopped, and several may work on one folder. OUT/index.html shows all.
    """
    terminal = Terminal(quiet, json)
    terminal.hear_warnings()
    given = options.given()
    name = choose_method(method, given)
    endings = choose_endings(formats, pictures)
    paths = find_images(images, skip=out)
    refuse_missing(paths)
    check_method(name, given)
    from moreaugrad.api import Explainer
    from moreaugrad.data.frames import split_frames

    make_output(out)
    with Interruption() as interruption:
        classifier = model.load(terminal)
        wanted, given = classes.choose(classifier), classes.contrast(classifier, given)
        explainer = Explainer(classifier, name, given)
        with ResultsFolder(out) as folder:
            named = set(map(as_path, images))
            mine = [path for path in paths if path in named or not folder.owns(path)]
            jobs = make_jobs(split_frames(mine) if frames else mine, wanted, explainer, out)
            run = FolderRun(folder, explainer, endings, terminal, interruption, again=not resume)
            return run.explain(jobs, BATCH.get(classifier.device.type, 1))


def choose_endings(formats: str, pictures: bool = True) -> list[str]:
    """The endings of the files to write, in the order of ENDINGS."""
    asked = {each.strip().lower().removeprefix(".") for each in formats.split(",") if each.strip()}
    if not asked or not asked <= set(ENDINGS):
        raise ValueError(f"--formats must name some of {','.join(ENDINGS)}, got {formats!r}")
    return [each for each in ENDINGS if each in asked and (pictures or each != "png")]


@dataclass
class FolderRun:
    """One method on many images, with the results in one folder. Stopped at any moment, it can be resumed."""

    folder: ResultsFolder
    explainer: Explainer
    endings: Sequence[str]
    terminal: Terminal
    interruption: Interruption
    again: bool = False  # explain images that are done, too
    done: int = 0
    failed: int = 0
    skipped: int = 0
    began: float = field(default_factory=time.perf_counter)

    def explain(self, jobs: Sequence[Job], size: int = 1) -> int:
        """Explain what is not done yet, `size` images at a time; tell what became of it. Returns the exit code."""
        gc.freeze()  # figures make much garbage, and the collector need not look at torch each time
        code = None
        try:
            self._work(self._skip_done(jobs), size, len(jobs))
        except KeyboardInterrupt:
            code, reason = INTERRUPTED, "interrupted"
        except _NotWritten as error:
            code, reason = SOME_FAILED, str(error)
        finally:
            gc.unfreeze()
        page = None
        with self.interruption.held():
            try:
                page = write_index(self.folder)
            except OSError as error:  # as when the disk is full
                if code is None:  # else its reason says as much
                    why, path = error.strerror or str(error), self.folder.path
                    log.warning("the page about %s could not be written (%s); the results are whole", path, why)
        counts = {"done": self.done, "failed": self.failed, "skipped (done before)": self.skipped}
        found = ", ".join(f"{count} {what}" for what, count in counts.items() if count or what == "done")
        found += f", {time.perf_counter() - self.began:.1f} s"
        if code is not None:
            left = len(jobs) - self.done - self.failed - self.skipped
            again = "run the same command again to go on"
            self.terminal.error(f"{reason}: {found}, {left} of {len(jobs)} left -> {self.folder.path}; {again}")
            return code
        if len(jobs) > self.failed or self.failed > 1:  # one image that failed has been told of
            self.terminal.say(f"{found} -> {page or self.folder.path}")
        return ALL_DONE if not self.failed else NOTHING_DONE if self.failed == len(jobs) else SOME_FAILED

    def _skip_done(self, jobs: Sequence[Job]) -> list[Job]:
        if self.again:
            return list(jobs)
        done = self.folder.find_done([job.identity for job in jobs], self.endings)
        if done:
            self.terminal.say(f"{len(done)} of {len(jobs)} are done already; --no-resume explains them again")
        for job in jobs:
            if job.identity in done:
                self._skip(job.identity)
        return [job for job in jobs if job.identity not in done]

    def _skip(self, identity: str) -> None:
        self.skipped += 1
        self.terminal.result(json.dumps(self.folder.records[identity], ensure_ascii=False))

    def _work(self, jobs: Sequence[Job], size: int, total: int) -> None:
        from moreaugrad.model.prepared import MANY

        if size > 1 and len(jobs) >= MANY and not self.explainer.method.once:
            self.explainer = replace(self.explainer, options={"compile": True} | dict(self.explainer.options))
        queue = deque(jobs)
        while queue:
            some = self._claim(queue, size)
            if not some:
                time.sleep(0.1 if queue else 0)  # other processes have the rest; one that is killed leaves it to us
                continue
            place = self.done + self.failed + self.skipped + 1
            with self.terminal.bar(f"{Path(some[0].file).name} ({place} of {total})") as watch:
                records = self.explainer([(job.key, job.source) for job in some], [job.target for job in some], watch)
            for job, record in zip(some, records, strict=True):
                self.store(job, record)

    def _claim(self, queue: deque[Job], size: int) -> list[Job]:
        """Up to `size` jobs that no other process works on; those of others go to the end of the queue."""
        found: list[Job] = []
        for _ in range(len(queue)):
            job = queue.popleft()
            state = self.folder.claim(job.identity, self.endings, self.again)
            if state == MINE:
                found.append(job)
            elif state == BUSY:
                queue.append(job)
            else:
                self._skip(job.identity)
            if len(found) == size:
                break
        return found

    def store(self, job: Job, record: Record) -> None:
        """Write the files and the line of one image, and report it."""
        contents: dict[str, bytes | None] = {}
        if record.explanation is not None:
            try:
                contents = draw(record, self.explainer.name, self.endings)
            except Exception as error:  # a picture that cannot be drawn must not stop the others
                record = replace(record, explanation=None, error=f"the map cannot be drawn: {error}")
        facts = as_json(record, job.file, self.explainer) | job.facts
        try:
            with self.interruption.held():
                name = f"{record.key}.{self.explainer.name}".replace("/", "_")  # captum/Occlusion
                line = self.folder.store(job.identity, name, facts, contents)
                self.folder.release(job.identity)
                self.done, self.failed = self.done + (not record.error), self.failed + bool(record.error)
        except OSError as error:
            raise _NotWritten(f"results of {job.file} cannot be written: {error.strerror or error}") from error
        self.terminal.result(json.dumps(line, ensure_ascii=False))
        if record.error is not None:
            self.terminal.error(f"{job.file}: {record.error}")
        else:
            file = next((line["files"][end] for end in contents), RESULTS)
            self.terminal.say(f"{record.key}: {describe(record)} -> {self.folder.path / file}")


class _NotWritten(Exception):
    """The folder takes no more files."""


def draw(record: Record, method: str, endings: Sequence[str]) -> dict[str, bytes | None]:
    """The files of an explained image by their endings."""
    from moreaugrad.plotting import display, pictures

    one = record.explanation
    assert one is not None
    found: dict[str, bytes | None] = dict.fromkeys(endings)
    if "png" in found:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)  # the method has warned of an all-zero map already
            figure = pictures.panel(record.picture, one.map[0], f"{record.key}, {method}: {describe(record)}")
        found["png"] = display.to_png(figure)
    if "npz" in found:
        found["npz"] = one.to_bytes()
    return found


def as_json(record: Record, file: str, explainer: Explainer) -> dict[str, Any]:
    """What the line says of an image, as strict JSON has it: NaN and infinity are null."""
    from moreaugrad.methods.options import describe_options, versions

    one, model = record.explanation, explainer.classifier.name
    found: dict[str, Any] = {"file": file, "key": record.key, "model": model, "method": explainer.name}
    if one is None:
        return found | {"error": record.error}
    preset = one.options.get("preset")
    found |= {} if preset is None else {"preset": preset}
    numbers: dict[str, Any] = {"score": one.score, "entries_kept": one.kept, "pixels_kept": one.pixels_kept}
    numbers |= {
        name: getattr(one, name) for name in ("eta", "envelope", "residual", "relative_error", "converged", "gradients")
    }
    found |= {"target": record.target, "label": record.label}
    found |= {} if record.against is None else {"against": record.against}
    found |= {name: _number(value) for name, value in numbers.items()} | {"seed": one.seed}
    found |= {"seconds": round(record.seconds, 3), "precision": one.options.get("precision")}
    found |= {name: _number(length) for name, length in record.lengths.items()}
    return found | {"options": describe_options(explainer.method), "versions": versions()}


def describe(record: Record) -> str:
    """What was explained, how much of the image the map keeps, and how well it is known."""
    from moreaugrad.wording import describe_accuracy, describe_image

    assert record.explanation is not None
    (facts,) = record.explanation.facts()
    words = ["the only output"] * (record.target is None) + describe_image(facts | {"label": record.label})
    if record.against is not None:
        words[0] += f" against {record.against}"
    preset = record.explanation.options.get("preset")
    words += [] if preset is None else [f"preset {preset}"]
    return ", ".join(words + describe_accuracy(facts))


def _number(value: Any) -> float | bool | None:
    """The only element of a tensor; None where there is none, or where it is NaN or infinite."""
    found = value.item() if hasattr(value, "item") else value
    return None if isinstance(found, float) and not math.isfinite(found) else found
