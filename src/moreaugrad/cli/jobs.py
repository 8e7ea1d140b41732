"""What `explain` has to do: the images, and how each is told from all others. Heavy imports are made inside."""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from moreaugrad.cli.results_folder import identify
from moreaugrad.data.sources import STDIN, Frame, ImageSource, printable, unique_names

if TYPE_CHECKING:
    from moreaugrad.api import Explainer
    from moreaugrad.models.classes import Wanted


@dataclass(frozen=True, slots=True)
class Job:
    """One image to explain."""

    key: str  # its name
    source: Any  # what `read_image` takes
    file: str  # as it was typed
    target: Wanted
    identity: str  # of the image and of everything that its map depends on
    facts: dict[str, int] = field(default_factory=dict)  # what its line says of it: frame, rank


def make_jobs(sources: Sequence[ImageSource], targets: Sequence[Wanted], explainer: Explainer, out: Path) -> list[Job]:
    """A job for each picture and target, once.

    A file is known by its content, so that a changed one is explained again and a copied or touched one is not, and
    by its place as seen from `out`, so that the two can be moved together.
    """
    from moreaugrad.data.images import read_image
    from moreaugrad.identity import describe_explainer, digest_bytes, digest_file
    from moreaugrad.models.classes import Ranked

    found: dict[str, Job] = {}
    run = describe_explainer(explainer)
    digests: dict[Path, str | None] = {}
    for key, source in zip(unique_names(sources), sources, strict=True):
        path, frame = (source.path, {"frame": source.index}) if isinstance(source, Frame) else (source, {})
        picture = read_image(STDIN) if path == STDIN else None  # it can be read only once
        if path not in digests:
            digests[path] = (
                digest_file(path) if picture is None else digest_bytes(repr(picture.size).encode() + picture.tobytes())
            )
        about = run | {"file": place_of(path, out), "content": digests[path]} | frame
        for target in targets:
            rank = {"rank": target.rank} if isinstance(target, Ranked) else {}
            identity = identify(about | {"target": None if rank else target} | rank)
            name = f"{key}_top{rank['rank']}" if rank else key
            job = Job(name, picture or source, printable(str(path)), target, identity, frame | rank)
            found.setdefault(identity, job)
    return list(found.values())


def place_of(path: Path, out: Path) -> str:
    """Where a file is, as seen from the results."""
    place = path.parent.resolve() / path.name
    with suppress(ValueError):  # Windows: on another drive
        place = Path(os.path.relpath(place, out.resolve()))
    return place.as_posix()
