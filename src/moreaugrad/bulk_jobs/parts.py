"""Parts of a job: Parquet files that are written whole or not at all. The one place that knows their columns.

A map with many zeros is stored as the places and values of its other entries, any other map as all of its values. Both
are exact; `half` rounds values to 11 bits, relative to the largest of the map, and never to zero.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, fields
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import torch
from numpy.typing import NDArray
from PIL import Image

from moreaugrad.data.images import read_image
from moreaugrad.files import first_line, replacing
from moreaugrad.models.classifier import CentreCrop
from moreaugrad.results import Explanation
from moreaugrad.source import InputSource, Photo

GROUP = 16  # rows read together to get one of them
SPARSE = 0.5  # a map with a smaller share of entries is stored as those
MOST_ENTRIES = 2**27  # of a map: a damaged file can claim any shape
_TINIEST = np.float16(2**-24)  # the smallest number of float16
_LEAST = 2.0**-100  # a map whose largest entry is smaller is stored exactly: its smallest would vanish

Values = NDArray[np.float32]


@dataclass(frozen=True, eq=False, kw_only=True)
class BulkRow:
    """One image of a job: its map and what is known about it, or the error that there is instead.

    Attributes:
        key: name of the image.
        row: its place in the source, from 0.
        target, label: class that was explained, and its name.
        truth: the true class, where the source knows it.
        score: class score of the image.
        eta: weight of the prior.
        kept: share of the entries that are not zero.
        relative_error: how well the map is known, as in `Explanation`.
        converged: as in `Explanation`.
        gradients: sample gradients spent.
        seed: of the noise; made of the job's seed and the key.
        seconds: what the map took, shared equally among the images solved together.
        error: what went wrong, in a sentence; None for an image with a map.
        map: the raw values (C, H, W), float32; None for an image with an error.
        view: how the model cuts a photo; None where that is the user's own function.

    Example:
        >>> import numpy as np
        >>> mg.BulkRow(key="cat.jpg", row=0, map=np.zeros((3, 8, 8), np.float32)).explanation().map.shape
        torch.Size([1, 3, 8, 8])
    """

    key: str
    row: int
    target: int | None = None
    label: str | None = None
    truth: int | None = None
    score: float | None = None
    eta: float | None = None
    kept: float | None = None
    relative_error: float | None = None
    converged: bool | None = None
    gradients: int | None = None
    seed: int | None = None
    seconds: float | None = None
    error: str | None = None
    map: Values | None = field(default=None, repr=False)
    view: CentreCrop | None = field(default=None, repr=False)

    def explanation(self, image: str | Path | Image.Image | None = None) -> Explanation:
        """The map as other functions take it: for `show`, metrics and `save`.

        Args:
            image: the photo, to be drawn beside the map; jobs do not store it.

        Returns:
            An `Explanation` of one image.

        Raises:
            ValueError: the image has an error instead of a map, or the photo cannot be cut as the model did.
        """
        if self.map is None:
            raise ValueError(f"{self.key!r} must have a map, got the error: {self.error}")
        numbers = {name: getattr(self, name) for name in ("score", "eta", "converged", "gradients")}
        tensors: dict[str, Any] = {
            name: None if value is None else torch.tensor([value]) for name, value in numbers.items()
        }
        source = None if image is None else self._make_source(read_image(image), self.map.shape)
        return Explanation(
            map=torch.from_numpy(self.map)[None], target=self.target, seed=self.seed, source=source, **tensors
        )

    def _make_source(self, photo: Image.Image, shape: tuple[int, ...]) -> InputSource:
        crop, region = (photo, None) if self.view is None else (self.view.apply(photo)[1], self.view.region(photo.size))
        if crop.size != shape[:0:-1]:
            raise ValueError(
                f"image must be the picture as the model saw it, {shape[2]} x {shape[1]} pixels, got {crop.width} x "
                f"{crop.height}; its view is a function that jobs do not store: cut the photo by it first"
            )
        pixels = torch.tensor(np.asarray(crop)).movedim(-1, 0)[None]
        labels = None if self.target is None or self.label is None else {self.target: self.label}
        known = Photo(size=photo.size, region=region, crop=crop, read=lambda: photo)
        return InputSource(inputs=(pixels,), photos=(known,), labels=labels, view=self.view)


FACTS = {
    "key": pa.string(),
    "row": pa.int64(),
    "target": pa.int32(),
    "label": pa.string(),
    "truth": pa.int32(),
    "score": pa.float32(),
    "eta": pa.float32(),
    "kept": pa.float32(),
    "relative_error": pa.float32(),
    "converged": pa.bool_(),
    "gradients": pa.int32(),
    "seed": pa.int64(),
    "seconds": pa.float32(),
    "error": pa.string(),
}
MAP = {  # index: null where every value is there; scale: what values were divided by before they were rounded
    "shape": pa.list_(pa.int32()),
    "index": pa.list_(pa.int32()),
    "value": pa.list_(pa.float32()),
    "scale": pa.float32(),
}
SCHEMA = pa.schema(list((FACTS | MAP).items()))
_ENCODINGS = {"index.list.element": "DELTA_BINARY_PACKED", "value.list.element": "BYTE_STREAM_SPLIT"}
_ENCODINGS |= {name: "PLAIN" for name in SCHEMA.names if name not in ("index", "value", "shape")}
_ENCODINGS |= {"shape.list.element": "PLAIN"}
del _ENCODINGS["converged"]  # flags have a way of their own


def write_part(path: Path, rows: Sequence[BulkRow], half: bool = False) -> None:
    """Write the rows of a part, whole or not at all; equal rows give equal bytes."""
    write_tables(path, [make_table(rows, half)])


def make_table(rows: Sequence[BulkRow], half: bool = False) -> pa.Table:
    """Rows as a part has them."""
    columns: dict[str, list[Any]] = {name: [_plain(getattr(row, name)) for row in rows] for name in FACTS}
    packed = [pack_map(row.map, half) for row in rows]
    columns |= {name: [each[name] for each in packed] for name in MAP}
    return pa.table({name: pa.array(columns[name], SCHEMA.field(name).type) for name in SCHEMA.names}, SCHEMA)


def write_tables(path: Path, tables: Sequence[pa.Table]) -> None:
    """Write a part from its rows, in tables one after the other; where one ends and the next begins changes no byte."""
    pq.write_table(
        pa.concat_tables(tables).combine_chunks(),
        stored := BytesIO(),
        compression="zstd",
        use_dictionary=False,
        row_group_size=GROUP,
        column_encoding=_ENCODINGS,
        write_statistics=["key", "row", "target", "truth", "score", "kept", "relative_error", "error"],
    )
    with replacing(path) as file:
        file.write(stored.getbuffer())


def pack_map(values: Values | None, half: bool = False) -> dict[str, Any]:
    """The columns of a map."""
    if values is None:
        return dict.fromkeys(MAP)
    flat = np.ascontiguousarray(values, np.float32).reshape(-1)
    index = np.flatnonzero(flat)
    sparse = len(index) < SPARSE * len(flat)
    kept = flat[index] if sparse else flat
    scale = float(np.abs(kept).max(initial=0)) if half else None
    if scale is not None and scale < _LEAST:
        scale = None
    if scale is not None:
        kept = _round(kept, scale)
    return {
        "shape": list(values.shape),
        "index": index.astype(np.int32) if sparse else None,
        "value": kept,
        "scale": scale,
    }


def unpack_map(shape: Sequence[int], index: Any, value: Any, scale: float | None) -> Values:
    """The map that `pack_map` took apart; a ValueError where the parts make none."""
    entries = math.prod(shape) if shape and min(shape) > 0 else 0
    if not 0 < entries <= MOST_ENTRIES:
        raise ValueError(f"a map must have 1 to {MOST_ENTRIES:,} entries, got the shape {shape}")
    if len(value) != (entries if index is None else len(index)):
        raise ValueError(f"a map of shape {shape} must have a value for each place, got {len(value)}")
    if index is not None and len(index) and not 0 <= min(index) <= max(index) < entries:
        raise ValueError(f"the places of a map must lie in its shape {shape}, got {min(index)} to {max(index)}")
    if not np.isfinite(scale or 1) or not np.isfinite(np.asarray(value, np.float32)).all():
        raise ValueError("a map must be finite, got NaN or infinity")
    kept: Values = np.asarray(value, np.float32) * np.float32(scale or 1)
    if index is None:
        return kept.reshape(shape)
    flat = np.zeros(math.prod(shape), np.float32)
    flat[np.asarray(index)] = kept
    return flat.reshape(shape)


def read_rows(path: Path, group: int | None = None, maps: bool = True) -> list[BulkRow]:
    """The rows of a part, or of one of its groups."""
    names = SCHEMA.names if maps else list(FACTS)
    with pq.ParquetFile(path) as file:
        table = file.read(names) if group is None else file.read_row_group(group, names)
    return [read_row(table, place) for place in range(table.num_rows)]


def read_row(table: pa.Table, place: int) -> BulkRow:
    """One row of a table with the columns of a part."""
    facts = {name: table.column(name)[place].as_py() for name in FACTS}
    index, value = (
        table.column(name)[place].values if name in table.column_names else None for name in ("index", "value")
    )
    if value is None:
        return BulkRow(**facts)
    found = unpack_map(
        table.column("shape")[place].as_py(),
        None if index is None else index.to_numpy(zero_copy_only=False),
        value.to_numpy(zero_copy_only=False),
        table.column("scale")[place].as_py(),
    )
    return BulkRow(**facts, map=found)


def count_rows(path: Path) -> int | None:
    """How many rows a part has, by its last bytes; None where it is not a whole part of ours."""
    try:
        about = pq.read_metadata(path)
        found = about.schema.to_arrow_schema()
    except Exception:  # whatever damage makes Arrow raise
        return None
    ours = found.names == SCHEMA.names and all(
        found.field(name).type in (kind, getattr(kind, "storage_type", kind)) for name, kind in FACTS.items()
    )
    return about.num_rows if ours else None


def count_errors(path: Path) -> int:
    """How many images of a part have an error."""
    try:
        with pq.ParquetFile(path) as file:
            errors = file.read(["error"]).column("error")
    except (OSError, ValueError, pa.ArrowException) as error:
        raise ValueError(
            f"{path} must be a whole part, got what cannot be read ({first_line(error)}); remove it, and the same "
            "command makes it again"
        ) from error
    return len(errors) - int(errors.null_count)


def _round(values: Values, scale: float) -> Values:
    """Numbers divided by the largest, as float16 has them; but none that is not zero becomes zero."""
    found = (values / np.float32(scale)).astype(np.float16)
    lost = (found == 0) & (values != 0)
    found[lost] = np.copysign(_TINIEST, values[lost])
    return found.astype(np.float32)


def _plain(value: Any) -> Any:
    return None if isinstance(value, float) and not math.isfinite(value) else value


assert set(FACTS) | {"map", "view"} == {each.name for each in fields(BulkRow)}
