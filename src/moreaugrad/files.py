"""Files that are written whole or not at all, the .npz format of explanations, and words for messages about files."""

from __future__ import annotations

import errno
import json
import os
import re
import sys
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from io import BytesIO
from numbers import Integral, Real
from pathlib import Path
from typing import Any, BinaryIO
from uuid import uuid4
from zipfile import ZIP_DEFLATED, ZipFile, ZipInfo

import numpy as np
import torch
from torch import Tensor

from moreaugrad import limits
from moreaugrad.locks import try_lock

FORMAT = "moreaugrad.explanation"
VERSION = 2  # raise it when an older reader would misread the file
_DRAFT = re.compile(r"\.[0-9a-f]{32}\.tmp")
_drafts: set[str] = set()  # names that this process writes: another handle of such a file would drop its lock


def with_ending(path: str | os.PathLike[str], *endings: str) -> Path:
    """The path itself where it has one of the endings, otherwise with the first one added."""
    found = Path(path)
    return found if found.suffix.lower() in endings else found.with_name(found.name + endings[0])


def read_text(path: str | os.PathLike[str], what: str) -> str:
    """A small text file, or one sentence on why not."""
    limits.text_file(what, Path(path))
    try:
        return Path(path).read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise ValueError(f"{what} must be a readable text file, got {str(path)!r}: {error}") from None


def parse_json(text: str | bytes) -> Any:
    """What a JSON text says; a ValueError for a text that is none, or is nested too deeply to be read."""
    try:
        return json.loads(text)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None


def first_line(error: BaseException) -> str:
    """The first line of an error's message, or its type."""
    return (str(error).strip() or type(error).__name__).splitlines()[0]


def first_names(names: Iterable[object]) -> str:
    """The first three, for a message."""
    every = [text if len(text) <= 80 else f"{text[:77]}..." for text in map(str, names)]
    return ", ".join(every[:3]) + (", ..." if len(every) > 3 else "")


def find_difference(asked: Mapping[str, Any], known: Mapping[str, Any], at: str = "") -> tuple[str, str, str] | None:
    """The first entry in which two descriptions in JSON differ: its name and both values, in a few words."""
    for name in {**asked, **known}:
        one, other = asked.get(name), known.get(name)
        if isinstance(one, dict) and isinstance(other, dict) and one and other:
            if found := find_difference(one, other, f"{at}{name}."):
                return found
        elif one != other:
            new, old = (text if len(text) <= 80 else f"{text[:77]}..." for text in map(json.dumps, (one, other)))
            return f"{at}{name}", new, old
    return None


def refuse_folder(path: Path) -> None:
    """Raise where a folder lies in the place of a file."""
    if path.is_dir():
        raise IsADirectoryError(
            f"{path} must be a file, got a folder of that name; move it away, or name another place"
        )


@contextmanager
def replacing(path: Path) -> Iterator[BinaryIO]:
    """A handle whose content replaces `path` at the end, or vanishes after an exception.

    A reader sees the old file or the new one, also after a power failure. A killed process leaves at most a hidden
    `.tmp` beside it, which `make_folder` removes.
    """
    if not path.parent.is_dir():
        raise FileNotFoundError(f"the folder of {path} must exist, got {path.parent}; create it first")
    refuse_folder(path)
    # opened directly, not by tempfile: the result then has the permissions that the user's umask gives
    draft = path.with_name(f".{uuid4().hex}.tmp")
    _drafts.add(draft.name)
    try:
        with _open_draft(draft) as handle:
            yield handle
            write_through(handle)
            if sys.platform != "win32":  # while the lock is held; Windows renames no open file
                draft.replace(path)
        if sys.platform == "win32":
            draft.replace(path)
    except BaseException:
        with suppress(OSError):  # of the draft: the exception that counts is on its way
            draft.unlink(missing_ok=True)
        raise
    finally:
        _drafts.discard(draft.name)


def _open_draft(draft: Path) -> BinaryIO:
    """A draft that nobody takes for one of a killed process: it is locked."""
    while True:
        handle = draft.open("wb")
        if try_lock(handle.fileno(), 0) is not False and draft.exists():
            return handle
        handle.close()  # `make_folder` of another process came in between


def write_through(handle: BinaryIO) -> None:
    """Wait until what was written is on the disk."""
    handle.flush()
    try:
        os.fsync(handle.fileno())
    except OSError as error:
        if error.errno not in (errno.EINVAL, errno.ENOSYS, errno.ENOTSUP):  # of disks that cannot say
            raise


def append_whole(handle: BinaryIO, data: bytes) -> None:
    """Add to the end of an unbuffered file, all or nothing; it is on the disk before this returns."""
    size = handle.seek(0, os.SEEK_END)
    rest = memoryview(data)
    try:
        while rest:  # a full disk takes a part, and fails at the next call
            rest = rest[handle.write(rest) or 0 :]
        write_through(handle)
    except BaseException:
        handle.truncate(size)
        raise


def make_folder(path: Path) -> None:
    """Make a folder for results, where there is none; and remove what killed processes left half written in it."""
    path.mkdir(parents=True, exist_ok=True)
    for draft in path.glob(".*.tmp"):
        if _DRAFT.fullmatch(draft.name) and draft.name not in _drafts:
            with suppress(OSError), draft.open("r+b") as handle:  # gone by now, or in a folder that takes no changes
                if try_lock(handle.fileno(), 0):
                    draft.unlink()


def write_npz(path: Path, values: Mapping[str, Any]) -> Path:
    """Write what `pack_npz` makes, whole or not at all."""
    with replacing(path) as handle:
        pack_npz(handle, values)
    return path


def pack_npz(handle: BinaryIO, values: Mapping[str, Any]) -> None:
    """Tensors as arrays and everything else as JSON in one .npz without pickle; equal values give equal bytes.

    A tensor `map` is the array "map"; a tuple of tensors is "map.0", "map.1", ...; the JSON text is "meta".
    """
    arrays: dict[str, Any] = {}
    plain: dict[str, Any] = {}
    tuples: dict[str, int] = {}
    for name, value in values.items():
        if isinstance(value, Tensor):
            arrays[name] = _to_array(value)
        elif isinstance(value, tuple) and value and all(isinstance(part, Tensor) for part in value):
            tuples[name] = len(value)
            arrays |= {f"{name}.{i}": _to_array(tensor) for i, tensor in enumerate(value)}
        else:
            plain[name] = _to_json(name, value)
    meta = json.dumps({"format": FORMAT, "version": VERSION, "tuples": tuples, "plain": plain})
    with ZipFile(handle, "w") as archive:
        for name, array in {"meta": np.array(meta), **arrays}.items():
            part = BytesIO()
            np.lib.format.write_array(part, array, allow_pickle=False)
            entry = ZipInfo(f"{name}.npy")  # without the time of day
            entry.compress_type = ZIP_DEFLATED
            archive.writestr(entry, part.getvalue(), compresslevel=1)  # numpy's level 6 takes three times as long


def read_npz(path: Path) -> dict[str, Any]:
    """The values that `write_npz` stored."""
    refuse_folder(path)
    if not path.exists():  # a missing file is not a damaged one
        raise FileNotFoundError(f"{path} must be a file written by Explanation.save, got nothing there; check the path")
    with path.open("rb") as handle:
        try:
            with np.load(handle, allow_pickle=False) as archive:  # every array at once: damage is found here
                arrays = {name: archive[name] for name in archive.files}
            meta = parse_json(str(arrays.pop("meta")))
            if meta["format"] != FORMAT:
                raise ValueError(f"its format is {meta['format']!r}")
            if meta["version"] <= VERSION:
                values = {name: _from_json(value) for name, value in meta["plain"].items()}
                for name, count in meta["tuples"].items():
                    values[name] = tuple(torch.from_numpy(arrays.pop(f"{name}.{i}")) for i in range(count))
                return values | {name: torch.from_numpy(array) for name, array in arrays.items()}
        except Exception as error:  # whatever damage makes numpy, zip or JSON raise
            raise ValueError(
                f"{path} must be a whole file written by Explanation.save, got one that cannot be read "
                f"({type(error).__name__}: {error}); it is another kind of file, or was cut off: write it again"
            ) from error
    raise ValueError(
        f"{path} must have format version {VERSION} or lower, got {meta['version']}: "
        "a newer moreaugrad wrote it; upgrade this one"
    )


def _to_array(tensor: Tensor) -> Any:
    """Half precisions as float32: numpy has no bfloat16, and float32 holds both exactly."""
    narrow = tensor.dtype in (torch.float16, torch.bfloat16)
    return (tensor.float() if narrow else tensor).numpy(force=True)


def _to_json(name: str, value: Any) -> Any:
    """JSON has no tuples, and for a target they differ from lists."""
    if value is None or isinstance(value, str | int | float):
        return value
    if isinstance(value, tuple):
        return {"tuple": [_to_json(name, part) for part in value]}
    if isinstance(value, list):
        return [_to_json(name, part) for part in value]
    if isinstance(value, Mapping):
        return {"dict": {str(key): _to_json(f"{name}[{key!r}]", part) for key, part in value.items()}}
    if isinstance(value, Real):  # numpy's numbers
        return int(value) if isinstance(value, Integral) else float(value)
    raise TypeError(
        f"{name} must hold text, numbers, None, or tuples and lists of these to be saved, "
        f"got {type(value).__name__}; describe it in a string"
    )


def _from_json(value: Any) -> Any:
    if isinstance(value, list):
        return [_from_json(part) for part in value]
    if isinstance(value, dict) and "tuple" in value:
        return tuple(_from_json(part) for part in value["tuple"])
    if isinstance(value, dict):
        return {key: _from_json(part) for key, part in value["dict"].items()}
    return value
