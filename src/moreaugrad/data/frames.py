"""Files that hold several pictures: animations, documents of several pages, and videos."""

from __future__ import annotations

import logging
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from importlib.util import find_spec
from io import BytesIO
from itertools import islice
from pathlib import Path
from typing import Any, BinaryIO

from PIL import Image

from moreaugrad.data.decoders import silence_decoders
from moreaugrad.data.sources import HEIF, STDIN, VIDEO, Frame, ImageSource, find_fault, find_images

log = logging.getLogger("moreaugrad")

# Of STILL_KINDS. Pillow tells them by their content, and gives what is PostScript by its content to another program.
FORMATS = ("JPEG", "PNG", "WEBP", "GIF", "BMP", "TIFF", "AVIF", "PPM", "JPEG2000", "TGA")
SEVERAL = ("AVIF", "GIF", "PNG", "TIFF", "WEBP")  # not MPO: its other pictures are previews and gain maps of the first
_readers: dict[Path, tuple[int, Iterator[Image.Image]]] = {}  # the video that is being read, and its next frame


def list_sources(image: Any, frames: bool) -> list[Any]:
    """What to read: files of folders and patterns, and single frames where they are wanted."""
    found: list[Any] = []
    for each in image if isinstance(image, list | tuple) else [image]:
        files = find_images([each]) if isinstance(each, str | Path) else [each]
        found += split_frames(files) if frames and isinstance(each, str | Path) else files
    return found


def split_frames(paths: Iterable[Path]) -> list[ImageSource]:
    """Each frame of each file; a file with one picture, and one that cannot be read, stays as it is."""
    found: list[ImageSource] = []
    for path in paths:
        if path == STDIN:
            raise ValueError("frames are taken from files, got standard input; save it to a file first")
        count = 1 if find_fault(path) else count_frames(path)
        found += [path] if count == 1 else [Frame(path, index, count) for index in range(count)]
    return found


def count_frames(path: Path) -> int:
    """How many frames a file holds; 1 where it cannot be read."""
    with suppress(Exception):  # decoders raise anything; reading the file says what is wrong
        if path.suffix.lower() in VIDEO:
            return max(1, _count_video(path))
        with silence_decoders(), _open_still(path) as image:
            return _count_still(image)
    return 1


@contextmanager
def open_picture(path: Path, index: int | None) -> Iterator[Image.Image]:
    """A frame of a file, to be loaded; None is the first, with a warning where there are others."""
    if path.suffix.lower() in VIDEO:
        yield _read_video(path, index or 0)
        count = _count_video(path) if index is None else 1
    else:
        with _open_still(path) as image:
            count = _count_still(image) if index is None else 1
            if index:
                image.seek(index)
            yield image
    if count > 1:
        log.warning(
            "%s holds %d frames: the first one is taken; for all of them use frames=True (--frames)", path, count
        )


def open_still(file: Path | BinaryIO, formats: Iterable[str] = FORMATS) -> Image.Image:
    """A picture, to be loaded; PIL.UnidentifiedImageError where it has none of the formats, whatever its name."""
    known = [each for each in formats if each != "AVIF" or find_spec("PIL.AvifImagePlugin")]  # Pillow 11.0 has none
    return Image.open(file, formats=known)


def _open_still(path: Path) -> Image.Image:
    if path.suffix.lower() in HEIF:
        return _read_heif(path)
    return open_still(BytesIO(sys.stdin.buffer.read()) if path == STDIN else path)


def _read_heif(path: Path) -> Image.Image:
    from pillow_heif import open_heif

    try:
        return open_heif(path).to_pillow()  # type: ignore[no-any-return]
    except ValueError as error:
        raise OSError(str(error)) from error  # as the decoders of Pillow do


def _count_still(image: Image.Image) -> int:
    return int(getattr(image, "n_frames", 1)) if image.format in SEVERAL else 1


def _count_video(path: Path) -> int:
    """As the file says; where it does not say, by decoding it."""
    import av

    with av.open(str(path)) as file:
        return file.streams.video[0].frames or sum(1 for _ in file.decode(video=0))


def _read_video(path: Path, index: int) -> Image.Image:
    """A frame by its number. They are mostly asked for in order, so the last reader is kept where it stopped."""
    position, frames = _readers.pop(path, (0, None))
    if frames is None or index < position:
        position, frames = 0, _decode(path)
    try:
        found = next(islice(frames, index - position, None), None)
    except ValueError as error:
        raise OSError(str(error)) from error
    if found is None:
        raise EOFError(f"it ends before frame {index}")
    _readers.clear()
    _readers[path] = index + 1, frames
    return found


def _decode(path: Path) -> Iterator[Image.Image]:
    import av

    with av.open(str(path)) as file:
        for frame in file.decode(video=0):
            image, turned = frame.to_image(), getattr(frame, "rotation", 0)
            # portrait videos of phones lie on their side, with a note
            yield image.rotate(turned, expand=True) if turned else image
