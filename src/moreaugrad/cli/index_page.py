"""index.html of a results folder: every image with its map, to look through in a browser, in one file.

The page is index.html of this package with the records as JSON in it. Thumbnails are cut out of the pictures; those
of earlier runs are taken from the page that is there.
"""

from __future__ import annotations

import json
import warnings
from base64 import b64encode
from collections.abc import Mapping, Sequence
from importlib.resources import files
from io import BytesIO
from pathlib import Path
from typing import Any

from moreaugrad.cli.results_folder import MENDED, Record, ResultsFolder

INDEX = "index.html"
SIDE = 144  # pixels of a tile in a thumbnail; a multiple of 16, so that JPEG mixes no colours of two tiles
SHOWN = ("input", "overlay")
MOST = 1500  # thumbnails, about 11 kB each; the page loads further pictures from their files
FIELDS = (
    *("id", "key", "file", "model", "method", "preset", "target", "label", "score", "entries_kept", "pixels_kept"),
    *("relative_error", "converged", "seconds", "files", "error"),
)
_START, _END = '<script type="application/json" id="records">', "</script>"
_HOLE = "[]"  # what stands between them in the template


def write_index(folder: ResultsFolder) -> Path | None:
    """Write the page of all records in the folder; None where an index.html lies there that is not ours."""
    from moreaugrad.files import replacing

    path = folder.path / INDEX
    thumbnails = _read_thumbnails(path)
    if thumbnails is None:
        warnings.warn(f"{path} was not written by moreaugrad and is left alone; there is no page", stacklevel=2)
        return None
    _add_thumbnails(thumbnails, folder.records, folder.path)  # the long part, without keeping others from writing
    with folder.alone():
        folder.read_lines()
        _add_thumbnails(thumbnails, folder.records, folder.path)
        entries = [
            {name: record[name] for name in FIELDS if record.get(name) is not None} | thumbnails.get(identity, {})
            for identity, record in _drop_mended(folder.records).items()
        ]
        data = json.dumps(entries, ensure_ascii=False, separators=(",", ":")).replace("<", "\\u003c")
        page = files(__package__).joinpath(INDEX).read_text(encoding="utf-8")
        with replacing(path) as handle:
            handle.write(page.replace(f"{_START}{_HOLE}{_END}", f"{_START}{data}{_END}").encode())
    return path


def _read_thumbnails(path: Path) -> dict[str, dict[str, str]] | None:
    """By id, from the page of an earlier run; None from a page of someone else."""
    from moreaugrad.files import parse_json

    if not path.is_file():
        return {}
    page = path.read_text(encoding="utf-8", errors="replace")
    if 'content="moreaugrad explain"' not in page:
        return None
    try:
        entries = parse_json(page.partition(_START)[2].partition(_END)[0])
        return {each["id"]: {"thumbnail": each["thumbnail"]} for each in entries if "thumbnail" in each}
    except (ValueError, TypeError, KeyError):  # edited, or of another version
        return {}


def _drop_mended(records: Mapping[str, Record]) -> dict[str, Record]:
    """Without failures of files that the same method has explained since, as after fetching them again."""
    last = set({tuple(record.get(name) for name in MENDED): key for key, record in records.items()}.values())
    return {key: record for key, record in records.items() if "error" not in record or key in last}


def _add_thumbnails(found: dict[str, dict[str, str]], records: Mapping[str, Record], folder: Path) -> None:
    for identity, record in records.items():
        if identity not in found and len(found) < MOST:
            picture = record["files"].get("png")
            found[identity] = {} if picture is None else _make_thumbnail(folder / picture)


def _make_thumbnail(path: Path) -> dict[str, str]:
    """Input and overlay beside each other, or the whole picture where it does not say where they are."""
    from PIL import Image

    from moreaugrad.data.decoders import silence_decoders
    from moreaugrad.data.frames import open_still
    from moreaugrad.files import parse_json
    from moreaugrad.plotting.display import TILES

    try:
        with silence_decoders(), open_still(path) as picture:
            known: dict[str, Any] = parse_json(picture.info.get(TILES, "{}"))
            boxes = [known[name] for name in SHOWN if name in known] or [(0, 0, *picture.size)]
            tiles = [picture.convert("RGB").resize((SIDE, _height(box)), box=box) for box in boxes]
    except Exception:  # vanished, or replaced by whatever makes Pillow raise
        return {}
    sheet = Image.new("RGB", (SIDE * len(tiles), tiles[0].height))
    for place, tile in enumerate(tiles):
        sheet.paste(tile, (SIDE * place, 0))
    stored = BytesIO()
    sheet.save(stored, "jpeg", quality=72)
    return {"thumbnail": f"data:image/jpeg;base64,{b64encode(stored.getvalue()).decode()}"}


def _height(box: Sequence[float]) -> int:
    left, top, right, bottom = box
    return max(1, min(2 * SIDE, round(SIDE * (bottom - top) / (right - left))))
