"""`bulk`: the maps of a whole data set, in a folder that any run can go on to fill. Heavy imports are made inside."""

from __future__ import annotations

import json as json_
import shlex
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar

import typer

from moreaugrad.cli.checks import check_method, choose_method, make_output
from moreaugrad.cli.command import Imports, option
from moreaugrad.cli.options import OUTPUT, Json, MethodName, MethodOptions, ModelOptions, Quiet, TargetClass
from moreaugrad.cli.terminal import Terminal

if TYPE_CHECKING:
    from moreaugrad.bulk_jobs.engines.base import Event
    from moreaugrad.bulk_jobs.job import RunOptions
    from moreaugrad.bulk_jobs.run import RunState
    from moreaugrad.bulk_jobs.worker import WorkerSpec

ALL_DONE, NOT_ALL, NOTHING_DONE, INTERRUPTED = 0, 1, 2, 130
EVERY = 30  # seconds between two lines where nobody watches

Sources = Annotated[
    list[str] | None,
    typer.Argument(
        help="A folder, pattern or list of images, a manifest (.csv, .parquet), WebDataset shards (.tar), a folder of "
        "Hugging Face's datasets, an .npz file, or package.module:factory.",
        show_default=False,
    ),
]
Out = Annotated[Path, typer.Option(help="Folder of the job.", rich_help_panel=OUTPUT)]
Half = Annotated[
    bool,
    typer.Option("--half", help="Store values rounded to 11 bits: two thirds of the size.", rich_help_panel=OUTPUT),
]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Say what there is to do and what it costs; write nothing.")]
Status = Annotated[Path | None, typer.Option(help="Say how far the job in this folder is, and nothing else.")]


@dataclass(frozen=True)
class CarrierOptions:
    """How and where a job is carried out."""

    panel: ClassVar[str] = "Run"

    engine: str = option("local: processes here; ray: actors of a cluster; serial: this process.", default="local")
    address: str | None = option("Of a Ray cluster: HOST:PORT, ray://HOST:PORT or auto.", shown="a new one here")
    workers: int | None = option("How many workers.", shown="one for each core or GPU")
    gpus_per_worker: float = option("GPUs of each worker; two with 0.5 share one.", default=1.0)
    threads: int = option("Threads of each worker without a GPU; another number may change last digits.", default=1)
    part_size: int | None = option("Images of a part, which is written at once.", shown="4 to 64")
    shard: str | None = option("Only the I-th of N shares of the job, as one of several runs.", metavar="I/N")
    limit: int | None = option("Stop after the part with which this run has made so many images.")
    limit_seconds: float | None = option("Begin no part after so many seconds.")
    resume: bool = option("Go on with a job that is there.", "--resume/--no-resume", default=True)
    retry_errors: bool = option("Explain parts again that hold an image with an error.", default=False)

    def make(self) -> RunOptions:
        from moreaugrad.bulk_jobs.job import RunOptions

        given = {name: value for name, value in vars(self).items() if name not in ("threads", "shard")}
        return RunOptions(**given, shard=None if self.shard is None else parse_shard(self.shard))


def parse_shard(text: str) -> tuple[int, int]:
    """I/N as two numbers, I from 1."""
    number, slash, count = text.partition("/")
    if not (slash and number.isdecimal() and count.isdecimal() and 1 <= int(number) <= int(count)):
        raise ValueError(f"--shard must be I/N with I from 1 to N, got {text!r}; for example --shard 3/8")
    return int(number), int(count)


def bulk(  # noqa: PLR0913
    source: Sources = None,
    *,
    method: MethodName = None,
    target: TargetClass = None,
    model: ModelOptions,
    options: MethodOptions,
    carrier: CarrierOptions,
    out: Out = Path("bulk"),
    half: Half = False,
    dry_run: DryRun = False,
    status: Status = None,
    json: Json = False,
    quiet: Quiet = False,
    imports: Imports = None,
) -> int:
    """Explain a whole data set: Parquet parts in the folder OUT, a row for each image.

    The same command resumes a run that was stopped or killed; `mg.open_maps(OUT)` and any Parquet reader read the maps.
    --target truth explains the true class, where the source knows it.
    Exit code 0: all done; 1: some images have errors, or a limit came first; 2: nothing done.
    """
    terminal = Terminal(quiet, json)
    terminal.hear_warnings()
    if status is not None:
        return tell_status(status, terminal)
    if not source:
        raise ValueError("SOURCE must name images, got none; see --help for what it may be")
    given = options.given()
    name, seed = choose_method(method, given), int(given.pop("seed", 0))
    check_method(name, given)
    from moreaugrad.bulk_jobs.sources import open_source
    from moreaugrad.bulk_jobs.worker import WorkerSpec
    from moreaugrad.model.devices import best_device

    run = carrier.make()
    if not dry_run:
        make_output(out)
    images = open_source(source[0] if len(source) == 1 else source, out)
    spec = WorkerSpec(
        *(images, out.absolute(), model.model, name, given, model.weights, model.labels, model.view),
        target=target,
        seed=seed,
        half=half,
        threads=carrier.threads,
        device=str(best_device(model.device)),
        imports=tuple(imports or ()),
    )
    return tell_plan(spec, run, terminal) if dry_run else carry_out(spec, run, terminal)


def carry_out(spec: WorkerSpec, run: RunOptions, terminal: Terminal) -> int:
    """Run the job, tell how it goes, and what became of it. Returns the exit code."""
    from moreaugrad.bulk_jobs.job import run_job
    from moreaugrad.bulk_jobs.maps import open_maps
    from moreaugrad.bulk_jobs.run import RunState, WorkerError

    state, code, reason = RunState(0), None, ""
    command = shlex.join(["moreaugrad", *sys.argv[1:]])
    with Reporter.open(terminal, spec.method) as reporter:
        try:
            run_job(spec, run, reporter, command)
        except KeyboardInterrupt:
            code, reason = INTERRUPTED, "interrupted"
        except WorkerError as error:
            code, reason = NOTHING_DONE, str(error)
        finally:
            state = reporter.state or state
    left = state.total - state.images
    facts = count(state) | {"left": left, "out": str(spec.folder)}
    terminal.result(json_.dumps({"event": "end"} | facts))
    said = describe_counts(state)
    if code is not None:
        terminal.error(f"{reason}: {said}, {left:,} left -> {spec.folder}; the same command goes on")
        return NOT_ALL if code == NOTHING_DONE and state.images else code
    if left:
        terminal.say(f"{said}, {left:,} left -> {spec.folder}; the same command goes on")
        return NOT_ALL
    terminal.say(f"{said} -> {spec.folder}")
    if state.errors and state.errors == state.images:
        key, why = next(iter(open_maps(spec.folder).errors.items()))
        terminal.error(f"every image has an error, as {key}: {why}")
        return NOTHING_DONE
    return NOT_ALL if state.errors or state.errors_before else ALL_DONE


@dataclass
class Reporter:
    """Tells how a run goes: by a bar where somebody watches, else by a line now and then, or by JSON lines."""

    terminal: Terminal
    bar: Any
    state: RunState | None = None
    _said: float = field(default_factory=time.monotonic)
    _told: bool = False  # that it was interrupted

    @classmethod
    @contextmanager
    def open(cls, terminal: Terminal, title: str) -> Iterator[Reporter]:
        with terminal.bar(title) as watch:
            yield cls(terminal, watch)

    def __call__(self, state: RunState, event: Event | None) -> None:
        from moreaugrad.bulk_jobs.engines.base import Died, Finished

        if state.stopped == "interrupted" and not self._told:
            self._told = True
            sys.stderr.write("finishing the parts that are under way; Ctrl-C again stops at once\n")
        self.state = state
        self.bar(state.explained, max(1, state.total), {"text": describe_progress(state)})
        if isinstance(event, Finished):
            self.terminal.result(json_.dumps({"event": "part", "part": event.task.part.number} | count(state)))
        if isinstance(event, Died):
            self.terminal.result(json_.dumps({"event": "died", "worker": event.worker, "reason": event.reason}))
        if not sys.stderr.isatty() and not self.terminal.quiet and time.monotonic() - self._said >= EVERY:
            self._said = time.monotonic()
            sys.stderr.write(f"{describe_progress(state)}\n")


def count(state: RunState) -> dict[str, Any]:
    """The numbers of a run, for JSON."""
    whole = ("images", "total", "before", "errors_before", "errors", "gradients", "deaths", "workers")
    timed = ("seconds", "started", "images_per_second", "gradients_per_second")
    rounded = {name: getattr(state, name) for name in timed}
    return {name: getattr(state, name) for name in whole} | {
        name: None if value is None else round(value, 3) for name, value in rounded.items()
    }


def describe_progress(state: RunState) -> str:
    """One line on how far a run is."""
    if state.started is None:
        return f"{state.total:,} images to explain, workers are starting"
    words = [f"{state.explained:,} of {state.total:,} images", f"{state.images_per_second:.2f} images/s"]
    words += [f"{state.gradients_per_second:,.0f} gradients/s"] if state.gradients else []
    words += [f"{state.errors:,} error{'s' * (state.errors != 1)}"] if state.errors else []
    left = state.seconds_left
    return ", ".join(words + ([] if left is None else [f"about {describe_seconds(left)} left"]))


def describe_counts(state: RunState) -> str:
    """What a run has done, in words."""
    done = state.images - state.errors
    words = [f"{done:,} explained"] + ([f"{state.errors:,} with errors"] if state.errors else [])
    if state.before:
        failed = f" ({state.errors_before:,} with errors)" if state.errors_before else ""
        words.append(f"{state.before:,} were there before{failed}")
    words += [f"{state.deaths:,} worker{'s' * (state.deaths != 1)} died"] if state.deaths else []
    return ", ".join([*words, describe_seconds(state.seconds)])


def describe_seconds(seconds: float) -> str:
    """A duration in the unit that fits."""
    for unit, size in (("days", 86400), ("h", 3600), ("min", 60)):
        if seconds >= 2 * size:
            return f"{seconds / size:.1f} {unit}"
    return f"{seconds:.1f} s"


def tell_status(folder: Path, terminal: Terminal) -> int:
    """Say how far a job is."""
    from moreaugrad.bulk_jobs.status import read_status

    found = read_status(folder)
    words = [f"{found.images:,} of {found.total:,} images", f"{found.errors:,} with errors"]
    words += ["a run is at work" if found.running else "no run is at work"]
    if found.images_per_second and found.seconds_left is not None:
        words += [f"{found.images_per_second:.2f} images/s", f"about {describe_seconds(found.seconds_left)} left"]
    terminal.say(", ".join(words))
    terminal.result(json_.dumps(vars(found) | {"seconds_left": found.seconds_left}))
    return ALL_DONE


def tell_plan(spec: WorkerSpec, run: RunOptions, terminal: Terminal) -> int:
    """Say what there is to do, and what it costs by the first image."""
    from moreaugrad.bulk_jobs.cost import estimate_cost
    from moreaugrad.bulk_jobs.job import choose_devices, make_plan, prepare_spec

    with terminal.busy("trying an image"):
        spec, explainer = prepare_spec(spec)
        plan, cost = make_plan(spec, explainer, run), estimate_cost(spec)
    workers = run.workers or (1 if run.engine == "serial" else len(choose_devices(spec, run)))
    facts: dict[str, Any] = {"images": plan.images, "before": plan.before, "parts": len(plan.todo), "workers": workers}
    facts |= {"gradients": cost.gradients * plan.images, "seconds": cost.seconds * plan.images / workers}
    facts |= {"bytes": cost.bytes * plan.images, "configuration": dict(plan.configuration)}
    for line in describe_plan(facts):
        terminal.say(line)
    terminal.result(json_.dumps(facts))
    return ALL_DONE


def describe_plan(facts: Mapping[str, Any]) -> list[str]:
    """The plan in lines."""
    job, images = facts["configuration"], facts["images"]
    options = ", ".join(f"{name}={value}" for name, value in job["options"].items())
    size = facts["bytes"] / 1e6
    return [
        f"{images:,} images to explain in {facts['parts']:,} parts, {facts['before']:,} are there",
        f"model {job['model']}, method {job['method']}: {options}",
        f"{facts['gradients']:,} gradients, about {describe_seconds(facts['seconds'])} on {facts['workers']} worker"
        f"{'s' * (facts['workers'] != 1)} like this machine's, about {size:,.1f} MB, by a trial of one image",
    ]
