"""The maps of a job, read from its folder as they are asked for."""

from __future__ import annotations

import json
import warnings
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from hashlib import blake2b
from itertools import groupby
from operator import itemgetter
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any, SupportsIndex

import numpy as np
import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import torch
from torch.utils.data import Dataset

from moreaugrad.bulk_jobs.folder import JOB, parts_of, read_job
from moreaugrad.bulk_jobs.parts import FACTS, GROUP, SCHEMA, BulkRow, Values, count_rows, read_row
from moreaugrad.files import first_line, first_names
from moreaugrad.identity import read_view
from moreaugrad.models.classifier import CentreCrop
from moreaugrad.registry import unknown

if TYPE_CHECKING:
    import pandas as pd

_MOST = 10_000  # keys that the message of an unknown one is compared with


@dataclass
class MeanMap:
    """The mean of the absolute maps of a class, each of norm 1, as it grows. Maps of zeros have no part in it."""

    total: Values | None = None
    count: int = 0

    def add(self, row: BulkRow) -> None:
        """Take in the map of a row, if it has one."""
        if row.map is None or not row.map.any():
            return
        one = np.abs(row.map) / np.linalg.norm(row.map)
        if self.total is not None and self.total.shape != one.shape:
            raise ValueError(f"maps of class {row.target} must have one shape, got {self.total.shape} and {one.shape}")
        self.total, self.count = one if self.total is None else self.total + one, self.count + 1

    @property
    def values(self) -> Values | None:
        """The mean so far; None before the first map."""
        return None if self.total is None else self.total / np.float32(self.count)


class BulkMaps(Dataset[BulkRow]):
    """The rows of a job that are there so far, in the order of its source. Made by `open_maps` and `bulk`.

    `len(maps)`; `maps["cat.jpg"]` and `maps[3]` read one `BulkRow`; iteration reads all, a part at a time. It is a
    map-style dataset for a torch `DataLoader`, with `collate_fn=list` or your own.

    Attributes:
        folder: where they are.
        job: what job.json says: the source, the model, the method with its options, and the runs.
        parts: the files that are whole, and were there when it was opened.

    Example:
        >>> maps = mg.bulk(net, [photo], "maps", "gradient", run=mg.RunOptions(engine="serial"))
        >>> len(maps), maps.total, maps["photo.jpg"].map.shape
        (1, 1, (3, 224, 224))
    """

    def __init__(self, folder: str | PathLike[str]) -> None:
        self.folder = Path(folder)
        self.job = read_job(self.folder)
        paths = [part.path(self.folder) for part in parts_of(self.job)]
        self._files = [path for path in paths if path.is_file()]

    @cached_property
    def parts(self) -> list[Path]:
        """The files that are whole, and were there when the job was opened."""
        return [path for path, rows in self._rows.items() if rows is not None]

    @cached_property
    def _rows(self) -> dict[Path, int | None]:
        """How many rows each file has; a run makes files anew that are not as they must be."""
        wanted = {part.path(self.folder): len(part.rows) for part in parts_of(self.job)}
        found = {path: count_rows(path) for path in self._files}
        good = {path: rows for path, rows in found.items() if rows is not None and rows <= wanted[path]}
        bad = [path.name for path in found if path not in good]
        if bad:
            warnings.warn(
                f"{self.folder}: {len(bad)} part{'s' * (len(bad) > 1)} damaged or changed ({first_names(bad)}), whose "
                "images count as not done; the same command makes them again",
                stacklevel=3,
            )
        return {path: good.get(path) for path in found}

    @cached_property
    def view(self) -> CentreCrop | None:
        """How the model cut photos; None where that is the user's own function."""
        return read_view(self.job["configuration"].get("view", ""))

    @property
    def total(self) -> int:
        """How many images the source has."""
        return int(self.job["configuration"]["source"]["images"])

    @property
    def finished(self) -> bool:
        """Whether every image has its row."""
        return len(self) == self.total

    @cached_property
    def facts(self) -> pa.Table:
        """All columns but the maps', as an Arrow table in the order of the source."""
        if not self.parts:
            return SCHEMA.empty_table().select(list(FACTS))
        files = [str(path) for path in self.parts]
        try:
            found = ds.dataset(files, SCHEMA).to_table(columns=list(FACTS))
            found.validate(full=True)  # as that texts are UTF-8
        except (OSError, ValueError, pa.ArrowException) as error:
            raise _name_damaged(self.folder, error) from error
        return found

    @cached_property
    def keys(self) -> list[str]:
        """The names of the images."""
        found: list[str] = self.facts.column("key").to_pylist()
        return found

    @property
    def errors(self) -> dict[str, str]:
        """What went wrong, by key, for the images without a map."""
        column = self.facts.column("error")
        failed = self.facts.filter(column.is_valid())
        return dict(zip(failed.column("key").to_pylist(), failed.column("error").to_pylist(), strict=True))

    def to_pandas(self) -> pd.DataFrame:
        """All that is known of each image, without the maps; needs pandas.

        Returns:
            A data frame with a row per image, in the order of the source.
        """
        return self.facts.to_pandas()

    def digest(self) -> str:
        """A digest of every row, its map included, but not of the seconds: equal for equal results.

        Returns:
            Thirty-two hexadecimal digits.
        """
        found = blake2b(digest_size=16)
        for row in self:
            facts = {name: getattr(row, name) for name in FACTS if name != "seconds"}
            found.update(json.dumps(facts).encode())
            if row.map is not None:
                found.update(np.ascontiguousarray(row.map).tobytes())
        return found.hexdigest()

    def mean_map(self, target: int) -> torch.Tensor:
        """The mean of the absolute maps of one class, each of norm 1.

        Args:
            target: the class that was explained.

        Returns:
            Values of the maps' shape.

        Raises:
            ValueError: no map explains this class, or such maps differ in shape.
        """
        mean = MeanMap()
        for row in self.read(np.flatnonzero(self.facts.column("target").to_numpy() == target)):
            mean.add(row)
        if mean.values is None:
            raise ValueError(f"target must be a class that was explained, got {target}; see to_pandas()['target']")
        return torch.from_numpy(mean.values)

    def read(self, places: Iterable[int]) -> Iterator[BulkRow]:
        """Rows by number, which must ascend. No group of a part is read twice, and none that holds no such row.

        Args:
            places: numbers of rows, as `maps[3]` takes them.

        Returns:
            The rows, one after the other.
        """
        for path, within in groupby(map(self._locate, places), itemgetter(0)):
            numbers = [number for _, number in within]
            for group, some in groupby(numbers, lambda number: number // GROUP):
                places = [number - group * GROUP for number in some]
                yield from (replace(row, view=self.view) for row in _read_places(path, group, places))

    def __len__(self) -> int:
        return int(self.facts.num_rows)

    def __contains__(self, key: object) -> bool:
        return key in self._places

    def __getitem__(self, which: SupportsIndex | str) -> BulkRow:
        place = self._find(which) if isinstance(which, str) else range(len(self))[which]
        return next(self.read([place]))

    def __iter__(self) -> Iterator[BulkRow]:
        return self.read(range(len(self)))

    def __repr__(self) -> str:
        method = self.job["configuration"]["method"]
        return f"BulkMaps({str(self.folder)!r}: {len(self)} of {self.total} images by {method})"

    @cached_property
    def _places(self) -> dict[str, int]:
        return {key: place for place, key in enumerate(self.keys)}

    @cached_property
    def _starts(self) -> np.ndarray[Any, np.dtype[np.int64]]:
        """The place of the first row of each part, and behind the last."""
        lengths = [self._rows[path] or 0 for path in self.parts]
        return np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)

    def _find(self, key: str) -> int:
        if key not in self._places:
            raise unknown(f"a key of {self.folder / JOB}", key, self.keys[:_MOST])
        return self._places[key]

    def _locate(self, place: int) -> tuple[Path, int]:
        part = int(np.searchsorted(self._starts, place, "right")) - 1
        return self.parts[part], place - int(self._starts[part])


def _read_places(path: Path, group: int, places: Iterable[int]) -> list[BulkRow]:
    """Some rows of a group of a part."""
    try:
        with pq.ParquetFile(path) as file:
            table = file.read_row_group(group, SCHEMA.names)
        return [read_row(table, place) for place in places]
    except Exception as error:  # whatever damage makes Arrow raise
        raise _name_damaged(path, error) from error


def _name_damaged(path: Path, error: Exception) -> ValueError:
    return ValueError(
        f"{path} must be as a run wrote it, got what cannot be read ({first_line(error)}); remove the damaged part, "
        "and the same command makes it again"
    )


def open_maps(folder: str | PathLike[str]) -> BulkMaps:
    """Open the maps of a job of `bulk`, which may still be running. All but job.json is read when it is asked for.

    Other tools read the parts as they are, for example DuckDB:
    `SELECT label, count(*), avg(score) FROM 'maps/part-*.parquet' GROUP BY label`.

    Args:
        folder: the output folder of the job.

    Returns:
        The rows that are there: by key, by number, or one after the other.

    Raises:
        ValueError: the folder holds no job, or one of a newer version.

    Example:
        >>> _ = mg.bulk(net, [photo], "maps", "gradient", run=mg.RunOptions(engine="serial"))
        >>> [row.key for row in mg.open_maps("maps")]
        ['photo.jpg']
    """
    return BulkMaps(folder)
