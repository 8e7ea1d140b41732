"""Small pictures for a report: the image as its network saw it beside its map, as WebP in a data URI."""

from __future__ import annotations

import warnings
from base64 import b64encode
from collections.abc import Sequence
from io import BytesIO
from typing import Any

import numpy as np
from PIL import Image, ImageOps

from moreaugrad.bulk_jobs.maps import BulkMaps
from moreaugrad.bulk_jobs.parts import BulkRow, Values
from moreaugrad.bulk_jobs.sources import BulkSource, names_code, open_source
from moreaugrad.data.images import read_image
from moreaugrad.files import first_line
from moreaugrad.plotting import pictures

SIDE = 144  # pixels of the longer side of a map
QUALITY = 80


class Photos:
    """The images of a job, as far as they can be found again.

    Args:
        maps: the job.
        source: where the images are; None looks where job.json says.

    Attributes:
        missing: how many were asked for in vain.
        reason: why, for the first of them.
    """

    def __init__(self, maps: BulkMaps, source: BulkSource | None = None) -> None:
        self.missing, self.reason = 0, ""
        self._source, self._rows = source, {}
        self._view = maps.view
        try:
            self._source = source or find_source(maps)
            self._rows = {key: row for row, key in enumerate(self._source.keys)}
        except Exception as error:  # sources are of many kinds, also users' own
            self.reason = first_line(error)

    def find(self, row: BulkRow) -> Image.Image | None:
        """What the network saw of the image of a map, in the size of the map."""
        if row.map is None:
            return None
        height, width = row.map.shape[-2:]
        try:
            if self._source is None or row.key not in self._rows:
                raise ValueError(f"the source has no image {row.key!r} any more")
            picture = read_image(self._source.read(self._rows[row.key]).image)
            crop = self._view.apply(picture)[1] if self._view is not None else picture
            return crop if crop.size == (width, height) else ImageOps.fit(crop, (width, height))
        except Exception as error:
            self.missing += 1
            self.reason = self.reason or first_line(error)
            return None


def find_source(maps: BulkMaps) -> BulkSource:
    """The source of a job, where job.json says that it was; code that it names is not run."""
    path = maps.job["configuration"]["source"].get("path")
    if path is None:
        raise ValueError("the job does not tell where its images are")
    if not isinstance(path, str):
        raise ValueError(f"the images must be in one place, got {path!r:.80}")
    if names_code(path):
        raise ValueError(f"the images come from the code {path}")
    return open_source(path, maps.folder)


def draw_pair(photo: Image.Image | None, values: Values) -> str:
    """The photo and the map over it; the map alone where there is no photo."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # of a map of zeros: it is dark, and the report tells its numbers
        drawn = pictures.scale_map(values)
    shown = np.zeros((*drawn.shape, 3)) if photo is None else pictures.read_photo(photo)
    tiles = [] if photo is None else [photo]
    return encode([*tiles, Image.fromarray(pictures.overlay(shown, drawn))])


def encode(tiles: Sequence[Image.Image]) -> str:
    """Tiles of one size side by side. Small ones grow by a whole number, so that their pixels stay sharp."""
    wide, high = tiles[0].size
    longer = max(wide, high)
    grown = SIDE // longer * longer if longer <= SIDE else SIDE
    size = max(1, wide * grown // longer), max(1, high * grown // longer)
    how: Any = Image.Resampling.NEAREST if longer <= SIDE else Image.Resampling.LANCZOS
    sheet = Image.new("RGB", (size[0] * len(tiles), size[1]))
    for place, tile in enumerate(tiles):
        sheet.paste(tile.resize(size, how), (size[0] * place, 0))
    sheet.save(stored := BytesIO(), "webp", quality=QUALITY)
    return f"data:image/webp;base64,{b64encode(stored.getvalue()).decode()}"
