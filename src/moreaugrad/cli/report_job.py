"""`report`: the page of a job of `bulk`. Heavy imports are made inside."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from moreaugrad.cli.options import Quiet
from moreaugrad.cli.terminal import Terminal


def report(
    folder: Annotated[Path, typer.Argument(help="The output folder of a job.", show_default=False)],
    *,
    images: Annotated[
        int, typer.Option(help="Show at most so many maps, spread evenly over the job.", metavar="N")
    ] = 1000,
    source: Annotated[
        str | None,
        typer.Option(help="Where the images are, if they have moved since.", show_default="as job.json says"),
    ] = None,
    quiet: Quiet = False,
) -> int:
    """Write FOLDER/report.html about a job of `moreaugrad bulk`, finished or not: numbers, classes, failures, and maps.

    The page is one file that needs no network. Images that cannot be found again are left out, and their maps are
    shown alone.
    """
    from moreaugrad.bulk_jobs.maps import open_maps
    from moreaugrad.bulk_jobs.report import write_report
    from moreaugrad.bulk_jobs.sources import open_source

    terminal = Terminal(quiet)
    terminal.hear_warnings()
    maps = open_maps(folder)
    found = None if source is None else open_source(source, folder)
    with terminal.busy("report"):
        path = write_report(maps, images=images, source=found)
    terminal.say(f"{len(maps):,} of {maps.total:,} images, {len(maps.errors):,} with an error")
    terminal.say(f"-> {path}")
    return 0
