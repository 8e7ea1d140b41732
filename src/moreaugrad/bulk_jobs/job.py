"""A job from its options: what determines its maps, where it runs, and `mg.bulk`."""

from __future__ import annotations

import io
import os
import pickle
import warnings
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from types import FunctionType
from typing import Any

import torch

from moreaugrad import limits, validate
from moreaugrad.api import Explainer
from moreaugrad.bulk_jobs.engines.base import Engine, Event
from moreaugrad.bulk_jobs.folder import Part, hold_parts, join_job, read_job, split_parts
from moreaugrad.bulk_jobs.maps import BulkMaps
from moreaugrad.bulk_jobs.parts import count_errors, count_rows
from moreaugrad.bulk_jobs.run import PartQueue, Run, RunState, Watcher
from moreaugrad.bulk_jobs.sources import open_source
from moreaugrad.bulk_jobs.worker import BATCH, TRUTH, WorkerSpec
from moreaugrad.files import make_folder
from moreaugrad.identity import describe_explainer
from moreaugrad.methods.options import plain, versions
from moreaugrad.model.devices import Device, best_device, device_of
from moreaugrad.model.prepared import MANY
from moreaugrad.models.classes import find_class
from moreaugrad.models.custom import Labels, Model

ENGINES = ("local", "ray", "serial")


@dataclass(frozen=True, kw_only=True)
class RunOptions:
    """How and where a job is carried out. Nothing of it changes a map.

    Args:
        engine: "local" takes processes of this machine, "ray" actors of a cluster, "serial" this very process.
        address: of the Ray cluster, as `ray.init` takes it; None starts one on this machine.
        workers: how many; None: one for each CPU core or GPU.
        gpus_per_worker: GPUs of each worker; two with 0.5 share one.
        part_size: images of a part, the file that a worker writes at once; None chooses. Kept when a job is resumed.
        shard: (number from 1, count): only this share of the parts, as one of several runs on one folder.
        limit: stop after the part with which this run has made so many images.
        limit_seconds: begin no part after so many seconds.
        resume: whether a folder that holds the job already may be filled further.
        retry_errors: explain the parts again that hold an image with an error.

    Example:
        >>> mg.RunOptions(engine="ray", workers=4, gpus_per_worker=0.5).workers
        4
    """

    engine: str = "local"
    address: str | None = None
    workers: int | None = None
    gpus_per_worker: float = 1
    part_size: int | None = None
    shard: tuple[int, int] | None = None
    limit: int | None = None
    limit_seconds: float | None = None
    resume: bool = True
    retry_errors: bool = False

    def __post_init__(self) -> None:
        limits.take_plain_numbers(self)
        validate.one_of("engine", self.engine, dict.fromkeys(ENGINES))
        for name in ("workers", "part_size", "limit"):
            if getattr(self, name) is not None:
                validate.at_least(name, getattr(self, name), 1)
        for name in ("gpus_per_worker", "limit_seconds"):
            if getattr(self, name) is not None:
                validate.positive(name, getattr(self, name))
        if self.address is not None and self.engine != "ray":
            raise ValueError(f"address must be left out without engine='ray', got {self.address!r}; add engine='ray'")
        for name in ("resume", "retry_errors"):
            if not isinstance(getattr(self, name), bool):
                raise TypeError(f"{name} must be True or False, got {getattr(self, name)!r}")
        if self.shard is not None and (not isinstance(self.shard, tuple | list) or len(self.shard) != 2):
            raise TypeError(f"shard must be (number, count), got {self.shard!r}")
        number, count = self.shard or (1, 1)
        validate.at_least("shard", number, 1)
        validate.at_least("shard", count, 1)
        if number > count:
            raise ValueError(f"shard must be (number, count) with number <= count, got {self.shard}")


@dataclass(frozen=True)
class Plan:
    """What a run has to do.

    Attributes:
        configuration: all that the maps depend on.
        parts: of this run's share of the job.
        todo: those that are not there yet.
        before: images that are.
    """

    configuration: Mapping[str, Any]
    parts: Sequence[Part]
    todo: Sequence[Part]
    before: int

    def count_errors(self, folder: Path) -> int:
        """Images with an error among those that are there."""
        todo = {part.number for part in self.todo}
        return sum(count_errors(part.path(folder)) for part in self.parts if part.number not in todo)

    @property
    def images(self) -> int:
        return sum(len(part.rows) for part in self.todo)


def bulk(  # noqa: PLR0913
    model: Model,
    source: Any,
    out: str | os.PathLike[str],
    method: str = "sparse_moreau",
    *,
    target: int | str | None = None,
    seed: int = 0,
    half: bool = False,
    weights: str | Path | None = None,
    labels: Labels | None = None,
    device: Device = None,
    threads: int = 1,
    imports: Sequence[str] = (),
    run: RunOptions | None = None,
    watch: Callable[[RunState, Event | None], None] = lambda state, event: None,
    **options: Any,
) -> BulkMaps:
    """Explain a whole data set into a folder, which any later run can go on to fill.

    The maps are the same whatever the engine, the number of workers and the size of parts, and however often the run
    is killed. An image that cannot be explained becomes a row with its error.

    Args:
        model: a name for `load_model`, or a module that other processes can import.
        source: a folder, a pattern or a list of images, a manifest (.csv, .parquet), a Hugging Face dataset or its
            folder, WebDataset shards (.tar), an .npz file, a map-style dataset such as those of torchvision, or
            "package.module:factory" for one that workers make for themselves.
        out: the folder of the job.
        method: a key of `METHODS`.
        target: the class to explain in every image, by number or name; "truth": the true one, where the source knows
            it; None: the one that a manifest names, else the predicted one.
        seed: of the noise; that of an image comes from this one and its key.
        half: store values rounded to 11 bits, relative to the largest of each map: two thirds of the size.
        weights: of a model that is loaded by name: a checkpoint file, or "random".
        labels: names of the classes, or a file with them.
        device: where models run; None takes the GPUs if there are any.
        threads: of each worker without a GPU. Sums are split over threads, so another number may change last digits.
        imports: modules, or .py files, that register methods, priors or models which the job uses.
        run: where the job runs and how much of it now, a `RunOptions`.
        watch: called with a `RunState` at every event, and a few times a second.
        options: options of the method, and `noise_level`, `sigma`, `samples` of its smoothing.

    Returns:
        The maps that are there, as `open_maps` gives them.

    Raises:
        ValueError: the source has no images, an option is wrong, or the folder holds another job.
        BlockingIOError: another run is at work on the folder.
        WorkerError: something went wrong that is no image's own, such as a full disk; what is written stays.
        KeyboardInterrupt: after Ctrl-C, when the parts under way are written.

    Example:
        >>> maps = mg.bulk(net, [photo], "maps", sparsity=0.05, budget=16, run=mg.RunOptions(engine="serial"))
        >>> maps["photo.jpg"].map.shape, round(maps["photo.jpg"].kept, 2)
        ((3, 224, 224), 0.05)
    """
    validate.at_least("seed", seed, 0)
    folder = Path(out)
    spec = WorkerSpec(
        *(open_source(source, folder), folder.absolute(), model, method, dict(options), weights, labels),
        target=target,
        seed=seed,
        half=half,
        threads=threads,
        device=choose_device(model, device),
        imports=tuple(imports),
    )
    return run_job(spec, run or RunOptions(), watch)


def choose_device(model: Model, asked: Device) -> str:
    """Where a model runs: a module where it is."""
    own = None if isinstance(model, str) else device_of(model, asked)
    return str(best_device(asked) if own is None else own)


def run_job(spec: WorkerSpec, run: RunOptions, watch: Watcher, command: str = "") -> BulkMaps:
    """Carry out what is left of a job, or as much of it as was asked for."""
    validate.at_least("threads", spec.threads, 1)
    spec, explainer = prepare_spec(spec)
    packed = None if run.engine == "serial" else pack(spec)
    with ExitStack() as stack:
        make_folder(spec.folder)
        plan = make_plan(spec, explainer, run)
        stack.enter_context(hold_parts(spec.folder, range(plan.parts[0].number, plan.parts[-1].number + 1)))
        plan = make_plan(spec, explainer, run)  # again, now that nobody else writes
        runs = join_job(spec.folder, plan.configuration, _describe_run(spec, run, command))
        _warn_of_change(runs, spec)
        state = RunState(plan.images, plan.before, plan.count_errors(spec.folder))
        if plan.todo:
            engine = stack.enter_context(closing(open_engine(spec, packed, run, len(plan.todo))))
            state.workers = getattr(engine, "workers", 1)
            Run(engine, PartQueue(plan.todo, spec), state, watch, run.limit, run.limit_seconds).finish()
        watch(state, None)
    if state.stopped == "interrupted":
        raise KeyboardInterrupt
    return BulkMaps(spec.folder)


def prepare_spec(spec: WorkerSpec) -> tuple[WorkerSpec, Explainer]:
    """The spec with what depends on the whole job; and its explainer, loaded once to check and to describe it."""
    explainer = replace(spec, device="cpu").make_explainer() if spec.device != "cpu" else spec.make_explainer()
    if explainer.method.several is not None:
        raise ValueError("a job holds one map per image, got a list of eta or sparsity; give one value")
    if spec.target not in (None, TRUTH):
        find_class(spec.target, explainer.classifier.labels)
    many = spec.device.startswith("cuda") and len(spec.source.keys) >= MANY and not explainer.method.once
    return (replace(spec, options={"compile": True} | dict(spec.options)) if many else spec), explainer


def make_plan(spec: WorkerSpec, explainer: Explainer, run: RunOptions) -> Plan:
    """The parts of a job, and which of them are left."""
    configuration = _describe_job(spec, explainer, run)
    every = split_parts(len(spec.source.keys), configuration["part_size"])
    number, count = run.shard or (1, 1)
    share = every[(number - 1) * len(every) // count : number * len(every) // count]
    if not share:
        raise ValueError(f"shard must leave a part for everyone, got {number}/{count} of {len(every)} parts")
    paths = {part.number: part.path(spec.folder) for part in share}
    todo = [part for part in share if count_rows(paths[part.number]) != len(part.rows)]
    if run.retry_errors:
        there = {part.number for part in share} - {part.number for part in todo}
        todo += [part for part in share if part.number in there and count_errors(paths[part.number])]
    before = sum(len(part.rows) for part in share) - sum(len(part.rows) for part in todo)
    if before and not run.resume:
        raise ValueError(f"{str(spec.folder)!r} must be new without resume, got {before} images there; name another")
    return Plan(configuration, share, todo, before)


def open_engine(spec: WorkerSpec, packed: bytes | None, run: RunOptions, parts: int) -> Engine:
    """The workers of a run: no more than there are parts."""
    if packed is None:
        from moreaugrad.bulk_jobs.engines.serial import SerialEngine

        return SerialEngine(spec)
    on_gpu = spec.device.startswith("cuda")
    if run.engine == "ray":
        from moreaugrad.bulk_jobs.engines.ray_actors import RayEngine

        gpus = run.gpus_per_worker if on_gpu else 0
        workers = None if run.workers is None else min(run.workers, parts)
        return RayEngine(packed, workers, run.address, gpus, spec.threads)
    from moreaugrad.bulk_jobs.engines.local import LocalEngine

    devices = choose_devices(spec, run)[:parts]
    return LocalEngine(packed, devices, spec.threads)


def choose_devices(spec: WorkerSpec, run: RunOptions) -> list[str]:
    """The device of each local worker."""
    if not spec.device.startswith("cuda"):
        cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
        alone = 1 if spec.device != "cpu" else max(1, cores // spec.threads)
        return [spec.device] * (run.workers or alone)
    cards = [spec.device] if ":" in spec.device else [f"cuda:{card}" for card in range(torch.cuda.device_count())]
    return [
        cards[worker % len(cards)] for worker in range(run.workers or max(1, int(len(cards) / run.gpus_per_worker)))
    ]


class _Pickler(pickle.Pickler):
    """Refuses what another process could not find."""

    def reducer_override(self, thing: Any) -> Any:
        if isinstance(thing, FunctionType | type) and thing.__module__ == "__main__":
            raise pickle.PicklingError(f"{thing.__qualname__} is defined in the program itself")
        return NotImplemented


def pack(spec: WorkerSpec) -> bytes:
    """A spec on its way to workers; one that they could not take in is refused."""
    try:
        _Pickler(stored := io.BytesIO()).dump(spec)
    except Exception as error:
        raise ValueError(
            f"the model, options and source of a job must be such that worker processes can make them, got {error}; "
            "put the code into a module, and name it: model='module:factory', source='module:factory', or take "
            "engine='serial'"
        ) from error
    return stored.getvalue()


def _describe_job(spec: WorkerSpec, explainer: Explainer, run: RunOptions) -> dict[str, Any]:
    """All that maps depend on beside the versions of packages and the kind of device."""
    known = read_job(spec.folder)["configuration"] if (spec.folder / "job.json").exists() else {}
    images = len(spec.source.keys)
    if spec.device.startswith("cuda"):  # whole batches; several, so that the GPU seldom waits for the writing of one
        size = BATCH["cuda"] * min(4, max(1, images // (8 * BATCH["cuda"])))
    else:
        size = min(64, max(4, images // 128))
    found = {"source": spec.source.describe()} | describe_explainer(explainer)
    found["options"] = {name: value for name, value in found["options"].items() if name != "seed"}
    found |= {"target": spec.target, "seed": spec.seed, "half": spec.half}
    found |= {"threads": spec.threads if spec.device == "cpu" else None}
    found |= {"part_size": run.part_size or known.get("part_size", size)}
    return {name: plain(value) for name, value in found.items()}


def _describe_run(spec: WorkerSpec, run: RunOptions, command: str) -> dict[str, Any]:
    began = datetime.now(UTC).isoformat(timespec="seconds")
    where = {"engine": run.engine, "shard": run.shard, "device": _name_device(spec.device)}
    return {"began": began, "command": command, **where, "versions": versions()}


def _name_device(device: str) -> str:
    if device.startswith("cuda"):
        return torch.cuda.get_device_name()
    return f"cpu, {torch.backends.cpu.get_cpu_capability()}" if device == "cpu" else device


def _warn_of_change(runs: Sequence[Mapping[str, Any]], spec: WorkerSpec) -> None:
    """Say when rows of a job come from machines or versions that may round differently."""
    now = {"device": _name_device(spec.device), "versions": versions()}
    for name, value in now.items():
        if runs and runs[0].get(name) != value:
            warnings.warn(
                f"this job began with {name} {runs[0].get(name)} and goes on with {value}: last digits of its maps may "
                "differ from those that are there",
                stacklevel=3,
            )
