"""Manifests: tables, in CSV or Parquet, that list images with the classes to explain."""

from __future__ import annotations

import csv
from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from pathlib import Path
from typing import Any

from moreaugrad.bulk_jobs.sources.listing import (
    Item,
    Listing,
    as_class,
    digest,
    file_sizes,
    numbers,
    open_encoded,
)
from moreaugrad.data.sources import as_path

COLUMNS = ("path", "key", "target", "truth")
Table = Mapping[str, Sequence[Any]]
Classes = Sequence[int | str | None]


@dataclass(eq=False, kw_only=True)
class _Manifest(Listing):
    targets: Classes
    truths: Classes

    def describe(self) -> dict[str, Any]:
        asked = sum(each is not None for each in self.targets)
        return super().describe() | ({"targets": asked} if asked else {})  # images with a class of their own

    def _item(self, row: int, image: Any) -> Item:
        return Item(image, self.targets[row], self.truths[row])


@dataclass(eq=False, kw_only=True)
class PathManifest(_Manifest):
    """Images in files that a table names.

    Args:
        targets: the class to explain of each image.
        truths: the true class of each image.
        names: the files, absolute or relative to the folder of the table.
    """

    names: Sequence[str]

    def read(self, row: int) -> Item:
        return self._item(row, Path(str(self.path)).parent / self.names[row])


@dataclass(eq=False, kw_only=True)
class BytesManifest(_Manifest):
    """Encoded images in the column `bytes` of a Parquet file.

    The row group that was read last is kept, so neighbours are best read one after the other, and row groups are best
    small (a few hundred images).

    Args:
        targets: the class to explain of each image.
        truths: the true class of each image.
        ends: the row behind each row group.
    """

    ends: Sequence[int]

    def read(self, row: int) -> Item:
        group = bisect_right(self.ends, row)
        opened = self._opened
        if opened is None or opened[0] != group:
            from pyarrow.parquet import ParquetFile

            with ParquetFile(str(self.path)) as file:
                self._opened = opened = group, file.read_row_group(group, columns=["bytes"])["bytes"]
        start = self.ends[group] - len(opened[1])
        return self._item(row, open_encoded(opened[1][row - start].as_py(), f"row {row} of {self.path!r}"))


def open_manifest(path: Path) -> PathManifest | BytesManifest:
    """Read the table of a manifest, but none of its images.

    Columns: `path` of a file, relative to the folder of the manifest or absolute, or, in Parquet, `bytes` of an
    encoded image; and, where wanted, `key` (default: the path, or the number of the row), `target`, the class to
    explain by number or name (default and where empty: the predicted one), and `truth`, the true class.

    Args:
        path: a .csv or .parquet file.

    Raises:
        ValueError: a table that cannot be read, lacks columns, or has a row without path or key.
    """
    path = path.absolute()
    if not path.is_file():
        raise ValueError(f"a manifest must be one file, got {str(path)!r}: nothing there; check the path")
    if path.suffix.lower() == ".csv":
        return _list_paths(path, _read_csv(path))
    return _open_parquet(path)


def _list_paths(path: Path, table: Table) -> PathManifest:
    names = _texts(path, "path", table["path"])
    for name in names:
        if "://" in name:
            as_path(name)  # refuses it
    sizes = file_sizes(path.parent, names)
    if names and all(size is None for size in sizes):
        raise ValueError(
            f"the files of a manifest must be there, got {str(path)!r} of which none is: the first is {names[0]!r}; "
            "paths are relative to the folder of the manifest"
        )
    keys = _texts(path, "key", table["key"]) if "key" in table else names
    targets, truths = _classes(path, table, "target", len(names)), _classes(path, table, "truth", len(names))
    return PathManifest(
        kind="manifest",
        path=str(path),
        keys=keys,
        digest=digest(keys, names, sizes, targets, truths),
        targets=targets,
        truths=truths,
        names=names,
    )


def _texts(path: Path, column: str, values: Sequence[Any]) -> list[str]:
    """A column in which no cell may be empty."""
    texts = ["" if value is None else str(value) for value in values]
    if "" in texts:
        raise ValueError(
            f"each row of {str(path)!r} must have a {column}, got none in row {texts.index('') + 1}; add it"
        )
    return texts


def _classes(path: Path, table: Table, column: str, rows: int) -> Classes:
    if column not in table:
        return [None] * rows
    try:
        known: dict[Any, int | str | None] = {value: as_class(value) for value in set(table[column])}
        return [known[value] for value in table[column]]
    except (ValueError, TypeError) as error:  # TypeError: lists
        raise ValueError(f"the column {column} of {str(path)!r} must hold classes, and does not: {error}") from error


def _read_csv(path: Path) -> Table:
    try:
        with path.open(encoding="utf-8-sig", newline="") as handle:
            rows = csv.reader(handle)
            header = [name.strip() for name in next(rows, [])]
            _check_columns(path, header)
            cells = [row for row in rows if row]
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise ValueError(f"a manifest must be a readable CSV file in UTF-8, got {str(path)!r}: {error}") from error
    places = {name: header.index(name) for name in COLUMNS if name in header}
    return {name: [row[at] if at < len(row) else "" for row in cells] for name, at in places.items()}


def _check_columns(path: Path, columns: Sequence[str]) -> None:
    parquet = path.suffix.lower() == ".parquet"
    images = [name for name in ("path", "bytes") if name in columns and (parquet or name == "path")]
    if len(images) != 1:
        needed = "exactly one of the columns path and bytes" if parquet else "the column path"
        raise ValueError(
            f"a manifest must have {needed}, and may have key, target and truth, got {str(path)!r} with "
            f"{list(columns)}; rename or remove columns"
        )


def _open_parquet(path: Path) -> PathManifest | BytesManifest:
    from pyarrow import ArrowException
    from pyarrow.parquet import ParquetFile

    try:
        with ParquetFile(path) as file:
            columns = file.schema_arrow.names
            _check_columns(path, columns)
            read = file.read(columns=[name for name in COLUMNS if name in columns])
            table = {name: read[name].to_pylist() for name in read.column_names}
            groups = [file.metadata.row_group(number).num_rows for number in range(file.num_row_groups)]
    except (OSError, ArrowException) as error:
        raise ValueError(f"a manifest must be a readable Parquet file, got {str(path)!r}: {error}") from error
    return _list_paths(path, table) if "path" in table else _list_bytes(path, table, groups)


def _list_bytes(path: Path, table: Table, groups: Sequence[int]) -> BytesManifest:
    ends = list(accumulate(groups))
    rows = ends[-1] if ends else 0
    keys = _texts(path, "key", table["key"]) if "key" in table else numbers(rows)
    targets, truths = _classes(path, table, "target", rows), _classes(path, table, "truth", rows)
    return BytesManifest(
        kind="manifest",
        path=str(path),
        keys=keys,
        digest=digest(keys, targets, truths, [_read_footer(path)]),
        targets=targets,
        truths=truths,
        ends=ends,
    )


def _read_footer(path: Path) -> bytes:
    """Where Parquet keeps the sizes, places and extremes of its columns, so that no image is read for the digest."""
    with path.open("rb") as handle:
        handle.seek(-8, 2)
        length = int.from_bytes(handle.read(4), "little")
        handle.seek(-8 - length, 2)
        return handle.read(length)
