"""The command: `python -m paper --figure all --data DIR --out DIR`. The same command resumes what was stopped.

Exit codes: 0 done, 1 stopped early (rerun to resume), 2 nothing done or an error, 130 interrupted.
"""

from __future__ import annotations

import argparse
import sys
import time
import traceback
from collections.abc import Sequence
from dataclasses import dataclass, replace
from importlib import import_module
from pathlib import Path

from moreaugrad.cli.terminal import Interruption
from moreaugrad.files import make_folder
from moreaugrad.locks import WHOLE, hold
from paper.settings import DATASETS, Settings, by_dataset, one_of

HERE = Path(__file__).parent
RESULTS, QUICK = HERE / "results", HERE.parent / "build" / "paper"


@dataclass(frozen=True)
class Figure:
    """What a figure shows and needs; `make(settings)` of the module of its name in `paper.figures` makes it.

    `photos`: it needs only the data set with the largest images. `rows`: it is drawn from stored rows, so drawing it
    again needs no data.
    """

    summary: str
    photos: bool = False
    rows: bool = False

    def needs(self, settings: Settings) -> tuple[str, ...]:
        """The data sets it reads."""
        if self.rows and settings.redraw:
            return ()
        return (settings.largest,) if self.photos else settings.datasets


FIGURES = {
    "rho": Figure("MoreauGrad maps for several rho"),
    "eta": Figure("sparse maps for several eta"),
    "groups": Figure("group-sparse maps for several eta"),
    "compare": Figure("methods side by side", photos=True),
    "attack": Figure("maps before and after an attack", photos=True),
    "robustness": Figure("how far an attack moves maps, against its size", rows=True),
    "units": Figure("the published protocol in the units of the paper's networks", rows=True),
    "noise": Figure("how far random noise moves maps", rows=True),
    "intro": Figure("one photo, before and after an attack", photos=True),
    "fair": Figure("methods on equal terms", rows=True),
    "frontier": Figure("how robust and how faithful sparse maps can be, by statistic and noise", rows=True),
    "accuracy": Figure("how well maps find what matters", rows=True),
    "solutions": Figure("whether the problem of a map has one solution", rows=True),
    "theory": Figure("the numbers behind the corrections to the theory"),
}


def main(words: Sequence[str] | None = None) -> int:
    """Run the command; the exit code."""
    asked = make_parser().parse_args(words)
    try:
        chosen = one_of("--figure", asked.figure, ["all", *FIGURES])
        with Interruption():
            return run(list(FIGURES) if chosen == "all" else [chosen], make_settings(asked), asked.debug)
    except KeyboardInterrupt:
        sys.stderr.write("\ninterrupted: what is done is stored, and the same command goes on\n")
        return 130
    except Exception as error:
        return report_error(error, asked.debug)


def make_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m paper",
        description="Makes the figures of the MoreauGrad paper: OUT/<figure>.png and OUT/<figure>.csv.",
        epilog="figures: " + "; ".join(f"{name}: {figure.summary}" for name, figure in FIGURES.items()),
    )
    add = parser.add_argument
    add("--figure", required=True, help=f"all, or one of {', '.join(FIGURES)}")
    add("--data", type=Path, required=True, metavar="DIR", help="folder with the data sets")
    add("--out", type=Path, metavar="DIR", help="folder of the results (default: paper/results; quick: build/paper)")
    add("--quick", action="store_true", help="a few small images and small budgets: minutes on a CPU")
    add("--device", default="auto", help="auto (a GPU where there is one), cpu, cuda, cuda:1, ...")
    add("--minutes", type=float, help="stop after about so many minutes; the same command resumes")
    add("--datasets", default=",".join(DATASETS), metavar="A,B", help=f"some of {', '.join(DATASETS)}")
    add("--model", action="append", default=[], metavar="[DATASET=]NAME", help="imagenet=timm/efficientnet_b0, ...")
    add("--weights", action="append", default=[], metavar="[DATASET=]FILE", help="a checkpoint of that model")
    add("--redraw", action="store_true", help="studies: only redraw tables and pictures from the stored rows")
    add("--shard", type=int, metavar="N", help="studies: only that shard of the images, from 1, for parallel runs")
    add("--restart", action="store_true", help="redo what is there already")
    add("--debug", action="store_true", help="show where an error came from")
    return parser


def make_settings(asked: argparse.Namespace) -> Settings:
    """The options as settings."""
    given = {name: value for name, value in vars(asked).items() if name not in ("figure", "debug", "model")}
    given["out"] = asked.out or (QUICK if asked.quick else RESULTS)
    given["weights"] = {name: Path(file) for name, file in by_dataset("--weights", asked.weights).items()}
    given["datasets"] = tuple(filter(None, asked.datasets.split(",")))
    return Settings(**given, models=by_dataset("--model", asked.model))


def run(figures: Sequence[str], settings: Settings, debug: bool = False) -> int:
    """Make the figures one by one; data and networks are looked for before any work starts."""
    from paper.data import datasets

    datasets.check(settings, list(dict.fromkeys(name for each in figures for name in FIGURES[each].needs(settings))))
    make_folder(settings.out)
    start, codes = time.monotonic(), []
    for number, name in enumerate(figures):
        left = None if settings.minutes is None else settings.minutes - (time.monotonic() - start) / 60
        if left is not None and left <= 0:
            print(f"{', '.join(figures[number:])}: not begun, the time is up; the same command goes on")
            return max([1, *codes])
        codes.append(make_figure(name, replace(settings, minutes=left), debug))
    return max(codes)


def make_figure(name: str, settings: Settings, debug: bool) -> int:
    """Make one figure; an error in it does not keep the others from being made."""
    print(f"{name}: {FIGURES[name].summary}", flush=True)
    begun = time.monotonic()
    try:
        with hold(settings.out / f".{name}.lock", f"{name} in {settings.out}", places(settings.shard)):
            done = import_module(f"paper.figures.{name}").make(settings)
    except Exception as error:
        return report_error(error, debug, f"{name}: ")
    print(f"{name}: {'done' if done else 'not finished yet'} after {time.monotonic() - begun:.0f} s", flush=True)
    return 0 if done else 1


def places(shard: int | None) -> range:
    """What a run has to itself: shards may be worked on at the same time, all of them only by one run."""
    return WHOLE if shard is None else range(shard, shard + 1)


def report_error(error: Exception, debug: bool, prefix: str = "") -> int:
    """Say what went wrong in one line, with a traceback only where asked for; the exit code."""
    if debug:
        traceback.print_exception(error)
    known = isinstance(error, ValueError | TypeError | OSError)
    text = str(error).strip() if known else f"{type(error).__name__}: {error} (--debug shows where)"
    sys.stderr.write(f"error: {prefix}{text}\n")
    return 2


if __name__ == "__main__":
    sys.exit(main())
