"""What every source shares: its list of keys, a digest of that list, and how classes and encoded images are read."""

from __future__ import annotations

import math
import re
import stat
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from hashlib import blake2b
from io import BytesIO
from numbers import Integral
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

_WHOLE = re.compile(r"-?\d+(\.0*)?")  # "281.0": tables with gaps are often stored as floats


@dataclass(frozen=True, slots=True)
class Item:
    """One image of a source, and the classes that the source knows.

    Args:
        image: what `read_image` takes: a path, a PIL image or an array. Files are not opened yet.
        target: the class to explain, by number or name, where the source asks for one; None: the predicted class.
        truth: the true class, by number or name; None where it is not known.

    Example:
        >>> Item("cat.jpg", truth=281).target is None
        True
    """

    image: Any
    target: int | str | None = None
    truth: int | str | None = None


@runtime_checkable
class BulkSource(Protocol):
    """Images of a data set in a fixed order, read one at a time.

    It is sent to worker processes, so it must be picklable. Implement these three members to explain images that
    `open_source` does not understand.
    """

    @property
    def keys(self) -> Sequence[str]:
        """One name per image; all are different."""
        ...

    def read(self, row: int) -> Item:
        """Read one image.

        Args:
            row: its place in `keys`.

        Returns:
            The image and its classes.

        Raises:
            Exception: the image cannot be read; other rows are not affected.
        """
        ...

    def describe(self) -> dict[str, Any]:
        """What the images are, as JSON.

        Returns:
            "kind", "path" (text, or None for objects), "images" (their number) and "digest", which is the same as
            long as the images are.
        """
        ...


@dataclass(eq=False, kw_only=True)
class Listing:
    """The part of a source that is known before any image is read.

    Args:
        kind: the kind of source, a word.
        path: where its images are; None for objects.
        keys: one name per image; all are different.
        digest: hash of what is listed, see `digest`.

    Raises:
        ValueError: there are no images, or two have one key.
    """

    kind: str
    path: str | None
    keys: Sequence[str]
    digest: str
    _opened: Any = field(default=None, init=False, repr=False)  # stays in its process

    def __post_init__(self) -> None:
        where = f"the {self.kind}" + ("" if self.path is None else f" {self.path!r}")
        if not self.keys:
            raise ValueError(f"a source must hold at least one image, got {where} without any; check what it holds")
        if len(set(self.keys)) == len(self.keys):
            return
        rows: dict[str, int] = {}
        for row, key in enumerate(self.keys, 1):
            if rows.setdefault(key, row) != row:
                raise ValueError(
                    f"keys must be unique, got {key!r} for images {rows[key]} and {row} of {where}; rename one, or "
                    "leave it out"
                )

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_opened": None}

    def describe(self) -> dict[str, Any]:
        return {"kind": self.kind, "path": self.path, "images": len(self.keys), "digest": self.digest}


def digest(*columns: Iterable[object]) -> str:
    """Hash of keys, sizes and classes: cheap for millions of files, since none is opened.

    It changes when an image is added, removed, renamed, moved to another row, resized on disk or given another class.
    A file whose content changes while its size stays the same is not noticed; neither is a new time stamp.
    """
    found = blake2b(digest_size=16)
    for column in columns:
        found.update("\n".join(map(repr, column)).encode() + b"\0")  # repr: no line breaks, and any byte of a name
    return found.hexdigest()


def numbers(count: int) -> list[str]:
    """Keys of images without names."""
    return list(map(str, range(count)))


def as_text(names: Sequence[str]) -> Sequence[str]:
    """File names as keys: bytes that are no text, which neither JSON nor Parquet can hold, are escaped."""
    try:
        "".join(names).encode()
    except UnicodeEncodeError:
        return [name.encode(errors="backslashreplace").decode() for name in names]
    return names


def file_sizes(root: Path, names: Iterable[str]) -> list[int | None]:
    """Bytes of each file; None where there is none."""
    return [_file_size(root / name) for name in names]


def _file_size(path: Path) -> int | None:
    try:
        status = path.stat()
    except (OSError, ValueError):  # ValueError: a name with a null byte
        return None
    return status.st_size if stat.S_ISREG(status.st_mode) else None


def as_class(value: Any) -> int | str | None:
    """A class by number or name; None for an empty text, NaN or None."""
    if getattr(value, "ndim", None) == 0:  # numbers of numpy and torch
        value = value.item()
    if isinstance(value, str):
        text = value.strip()
        return int(text.split(".")[0]) if _WHOLE.fullmatch(text) else text or None
    if value is None or (isinstance(value, float) and math.isnan(value)):
        return None
    if isinstance(value, Integral) or (isinstance(value, float) and value.is_integer()):
        number: int = int(value)
        return number
    raise ValueError(f"a class must be a whole number or a name, got {value!r} of type {type(value).__name__}")


def open_encoded(content: bytes | None, name: str) -> Any:
    """The content of an image file as a PIL image, which is decoded when it is used."""
    from PIL import Image

    from moreaugrad.data.decoders import silence_decoders
    from moreaugrad.data.frames import open_still
    from moreaugrad.data.images import MOST_PIXELS

    must = f"{name} must be an encoded image, as in a PNG or JPEG file"
    if not content:
        raise ValueError(f"{must}, got nothing; fetch it again")
    try:
        with silence_decoders():
            image = open_still(BytesIO(content))
        pixels = image.width * image.height
    except Image.DecompressionBombError:
        pixels = MOST_PIXELS + 1
    except Exception as error:  # decoders raise OSError, SyntaxError, struct.error, ...
        raise ValueError(f"{must}, got {len(content)} bytes that are none ({type(error).__name__})") from error
    if pixels > MOST_PIXELS:
        raise ValueError(f"{must}, of at most {MOST_PIXELS // 10**6} megapixels, got more; make it smaller")
    return image
