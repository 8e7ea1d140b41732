"""What explains the parts of a job: in a process of its own, on a Ray actor, or in this process."""

from __future__ import annotations

import logging
import threading
import warnings
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from hashlib import blake2b
from pathlib import Path
from time import perf_counter
from typing import Any, TypeAlias

import pyarrow as pa
import torch
from torch import nn

from moreaugrad.api import Explainer, ReadImage, Record, describe_error
from moreaugrad.bulk_jobs.folder import Part
from moreaugrad.bulk_jobs.parts import BulkRow, make_table, write_tables
from moreaugrad.bulk_jobs.sources import BulkSource
from moreaugrad.model.prepared import HALF
from moreaugrad.models.classes import find_class
from moreaugrad.models.classifier import Classifier
from moreaugrad.models.custom import Labels, Model, as_classifier, open_model
from moreaugrad.registry import import_plugin

TRUTH = "truth"  # the target that is the true class of each image
BATCH = {"cuda": 64, "cpu": 16}  # images solved together; maps do not depend on it
READERS = 4  # threads that read ahead for a GPU; they work on the CPU alone, or they would wait for the solver

Tell: TypeAlias = Callable[[int], None]  # called with the number of images that were explained just now


class DeviceLost(RuntimeError):
    """The device of this process takes no more work, so that every further image would fail."""


@dataclass(frozen=True)
class WorkerSpec:
    """All that a worker needs to know; it is pickled on its way."""

    source: BulkSource
    folder: Path
    model: Model
    method: str = "sparse_moreau"
    options: Mapping[str, Any] = field(default_factory=dict)
    weights: str | Path | None = None
    labels: Labels | None = None
    view: Mapping[str, Any] = field(default_factory=dict)  # size, mean and std, where the model does not know them
    target: int | str | None = None
    seed: int = 0
    half: bool = False
    threads: int = 1  # of a worker without a GPU: sums are split over them, which rounds differently
    device: str = "cpu"
    imports: Sequence[str] = ()  # modules that register members

    def make_explainer(self) -> Explainer:
        """Load the model, and make the method."""
        for module in self.imports:
            import_plugin(module)
        return Explainer(self.load_model(), self.method, self.options)

    def load_model(self) -> Classifier:
        if isinstance(self.model, str):
            from moreaugrad.models import load_model

            return load_model(self.model, self.weights, self.labels, self.device, **self.view)
        network, names = open_model(self.model, self.weights, self.labels, self.device)
        return as_classifier(network, labels=names)


@dataclass(frozen=True, slots=True)
class Task:
    """What a worker is asked to do.

    Args:
        part: where the rows belong.
        rows: those to explain: all of the part, which is then written; or one of them, which is then returned.
        upcoming: what will be asked next, to be read meanwhile.
    """

    part: Part
    rows: range
    upcoming: range = range(0)


@dataclass(frozen=True)
class Done:
    """What a worker has done of a task, and how long it took: waiting for images, explaining, and writing."""

    images: int
    errors: int
    gradients: int
    waiting: float
    explaining: float
    writing: float
    rows: list[BulkRow] | None = None  # of a task for less than a part


class Worker:
    """Explains parts of a job, and writes them.

    Args:
        spec: what to do.
    """

    def __init__(self, spec: WorkerSpec) -> None:
        self.spec, self.explainer = spec, spec.make_explainer()
        self._readers = ThreadPoolExecutor(READERS if spec.device.startswith("cuda") else 1)
        self._packer = ThreadPoolExecutor(1)
        self._alone = threading.Lock()  # sources need not be safe for threads; decoding is
        self._coming: dict[int, Future[ReadImage | Record]] = {}
        self._truths: dict[int, int | None] = {}

    def run(self, task: Task, tell: Tell = lambda images: None) -> Done:
        """Explain the rows of a task; write the part if they are all of it.

        Images are read, and maps made into rows, by other threads while the next ones are explained.
        """
        futures = [self._read_soon(row) for row in task.rows]
        rest = [self._read_soon(row) for row in task.upcoming]
        self._coming = dict(zip(task.upcoming, rest, strict=True))
        packing: list[Future[tuple[list[BulkRow], pa.Table]]] = []
        waiting = explaining = 0.0
        size = BATCH.get(torch.device(self.spec.device).type, 16)
        for start in range(0, len(futures), size):
            began = perf_counter()
            images = [each.result() for each in futures[start : start + size]]
            waiting, began = waiting + perf_counter() - began, perf_counter()
            records = self._explain(images)
            explaining += perf_counter() - began
            packing.append(self._packer.submit(self._pack, task.rows[start : start + size], records))
            tell(len(images))
        began = perf_counter()
        packed = [each.result() for each in packing]
        found = [row for rows, _ in packed for row in rows]
        whole = len(found) == len(task.part.rows)
        if whole:
            write_tables(task.part.path(self.spec.folder), [table for _, table in packed])
        errors = sum(row.error is not None for row in found)
        gradients = sum(row.gradients or 0 for row in found)
        rows = None if whole else found
        return Done(len(found), errors, gradients, waiting, explaining, perf_counter() - began, rows)

    @staticmethod
    def prepare_process(spec: WorkerSpec) -> None:
        """What a process that does nothing else sets for good, and where its own copy of the model goes."""
        if isinstance(spec.model, nn.Module):
            spec.model.to(spec.device)
        if spec.device == "cpu":
            torch.set_num_threads(spec.threads)
        warnings.simplefilter("ignore", UserWarning)  # such as of an all-zero map: the row says so
        logging.getLogger("moreaugrad").setLevel(logging.ERROR)

    def close(self) -> None:
        for threads in (self._readers, self._packer):
            threads.shutdown(wait=False, cancel_futures=True)

    def _read_soon(self, row: int) -> Future[ReadImage | Record]:
        coming = self._coming.pop(row, None)
        return self._readers.submit(self._read, row) if coming is None else coming

    def _read(self, row: int) -> ReadImage | Record:
        key = self.spec.source.keys[row]
        try:
            with self._alone:
                item = self.spec.source.read(row)
            self._truths[row] = self._find_truth(item.truth)
            target = self._choose_target(item.target, self._truths[row])
        except Exception as error:
            return Record(key, error=describe_error(error))
        return self.explainer.try_reading(key, item.image, target, row_seed(self.spec.seed, key))

    def _find_truth(self, given: int | str | None) -> int | None:
        """The number of the true class; None where the model knows no class of that name."""
        try:
            return None if given is None else find_class(given, self.explainer.classifier.labels, TRUTH)
        except ValueError:
            return None

    def _choose_target(self, given: int | str | None, truth: int | None) -> int | None:
        """The class of an image: as the source asks, else as the job does; None is the predicted one."""
        wanted = self.spec.target if given is None else given
        if wanted == TRUTH:
            if truth is None:
                raise ValueError(f"target={TRUTH!r} needs the true class of each image, got one without; leave it out")
            return truth
        return None if wanted is None else find_class(wanted, self.explainer.classifier.labels)

    def _explain(self, images: Sequence[ReadImage | Record]) -> list[Record]:
        records = self.explainer.explain_inputs(images)
        if any("CUDA error" in (record.error or "") for record in records):
            raise DeviceLost(next(record.error for record in records if "CUDA error" in (record.error or "")))
        asked = self.explainer.method.precision
        if asked in HALF and any(_precision(record) not in (None, asked) for record in records):
            # an image in which a half precision overflows turns all later ones to float32: so each starts anew
            records = []
            for image in images:
                if self.explainer.method.prepared is not None:
                    self.explainer.method.prepared.forget()
                records += self.explainer.explain_inputs([image])
        return records

    def _pack(self, rows: range, records: Sequence[Record]) -> tuple[list[BulkRow], pa.Table]:
        found = [self._make_row(row, record) for row, record in zip(rows, records, strict=True)]
        return found, make_table(found, self.spec.half)

    def _make_row(self, row: int, record: Record) -> BulkRow:
        truth = self._truths.pop(row, None)
        shared: dict[str, Any] = {"key": record.key, "row": row, "truth": truth}
        one = record.explanation
        if one is None:
            return BulkRow(**shared, error=record.error)
        (facts,) = one.facts()
        for name in ("score", "eta", "kept", "relative_error", "converged", "gradients"):
            shared[name] = facts[name]
        if not facts["finite"]:
            return BulkRow(**shared, error="the map must be finite, got NaN or infinity; look at the model's gradient")
        values = one.map[0].float().numpy()
        return BulkRow(
            **shared, target=record.target, label=record.label, seed=one.seed, seconds=record.seconds, map=values
        )


def row_seed(seed: int, key: str) -> int:
    """The seed of an image's noise: independent of those of other images, and of where and when it is explained."""
    return int.from_bytes(blake2b(f"{seed} {key}".encode(), digest_size=8).digest()) >> 2


def _precision(record: Record) -> Any:
    return None if record.explanation is None else record.explanation.options.get("precision")
