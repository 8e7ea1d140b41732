"""How far a job is, told from its folder alone."""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path

from moreaugrad.bulk_jobs.folder import LOCK
from moreaugrad.bulk_jobs.maps import BulkMaps
from moreaugrad.bulk_jobs.parts import count_rows
from moreaugrad.locks import is_held

RECENT = 600  # seconds of which the rate is told


@dataclass(frozen=True)
class JobStatus:
    """How far a job is.

    Attributes:
        images, total: with a row, and of the source.
        errors: images without a map.
        running: whether some run is at work.
        images_per_second: of the last ten minutes, where a run is at work.
    """

    images: int
    total: int
    errors: int
    running: bool
    images_per_second: float | None

    @property
    def seconds_left(self) -> float | None:
        return (self.total - self.images) / self.images_per_second if self.images_per_second else None


def read_status(folder: Path) -> JobStatus:
    """Count what is there."""
    maps = BulkMaps(folder)
    running = is_held(folder / LOCK)
    rate = None
    if running:
        now = time.time()
        ages = {path: now - path.stat().st_mtime for path in maps.parts}
        recent = [path for path, age in ages.items() if age < RECENT]
        if recent:
            span = max(ages[path] for path in recent)
            rate = sum(count_rows(path) or 0 for path in recent) / span if span > 0 else None
    return JobStatus(len(maps), maps.total, maps.facts.num_rows - maps.facts.column("error").null_count, running, rate)
