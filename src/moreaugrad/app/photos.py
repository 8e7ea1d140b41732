"""Photos that visitors sent: checked before they are decoded, and kept for a while as the bytes that came.

Nothing that came is ever sent back: what a browser gets is drawn anew from the pixels.
"""

from __future__ import annotations

import hashlib
import secrets
import threading
import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field
from io import BytesIO
from typing import TypeVar

from PIL import Image, UnidentifiedImageError

from moreaugrad.app.refusal import Refusal
from moreaugrad.data.decoders import silence_decoders
from moreaugrad.data.frames import open_still
from moreaugrad.data.images import read_image

MOST_BYTES, MOST_PIXELS = 20_000_000, 40_000_000  # of one photo
MOST_LONG = 100  # times as long as short: a network's view of a longer one may be huge
DECODING = threading.Lock()  # a large photo takes half a gigabyte for a moment
KEPT_BYTES, KEPT_SECONDS = 400_000_000, 3600  # of all; those that were not used for longest go first
T = TypeVar("T")
FORMATS = ("JPEG", "PNG", "WEBP", "GIF", "BMP", "TIFF", "AVIF", "PPM")  # what browsers and cameras make
THUMBNAIL = 160


@dataclass
class Photo:
    """A photo as it came, and what is known of it."""

    data: bytes = field(repr=False)
    width: int
    height: int
    name: str = ""
    digest: str = ""
    example: bool = False
    used: float = field(default_factory=time.monotonic)

    def use(self, make: Callable[[Image.Image], T]) -> T:
        """What a function makes of the picture, upright and RGB; of all photos one at a time."""
        with DECODING:
            return make(decode(self.data))


def decode(data: bytes) -> Image.Image:
    """The picture of a file, upright and RGB; what cannot be one is refused before its pixels are made."""
    if len(data) > MOST_BYTES:
        raise Refusal(413, f"a photo must have at most {MOST_BYTES // 10**6} MB, got {len(data) / 1e6:.1f} MB")
    must = f"a photo must be a {', '.join(FORMATS[:-1])} or {FORMATS[-1]} file"
    small = f"a photo must have at most {MOST_PIXELS // 10**6} megapixels, got"
    try:
        with silence_decoders(), open_still(BytesIO(data), FORMATS) as image:
            if image.width * image.height > MOST_PIXELS:
                raise Refusal(422, f"{small} {image.width} x {image.height}; make it smaller")
            if max(image.size) > MOST_LONG * min(image.size):
                long = f"at most {MOST_LONG} times as long as short, got {image.width} x {image.height}"
                raise Refusal(422, f"a photo must be {long}; cut it")
            return read_image(image)
    except UnidentifiedImageError:
        raise Refusal(422, f"{must}, got something else") from None
    except Image.DecompressionBombError:
        raise Refusal(422, f"{small} more; make it smaller") from None
    except Refusal:
        raise
    except Exception:  # decoders raise OSError, SyntaxError, EOFError, struct.error, zlib.error, ...
        raise Refusal(422, f"{must}, got one that is truncated or damaged") from None


class PhotoStore:
    """Photos by ids that nobody can guess."""

    def __init__(self) -> None:
        self._photos: OrderedDict[str, Photo] = OrderedDict()
        self._lock = threading.Lock()

    def add(self, data: bytes) -> tuple[str, Photo]:
        """Keep a photo, if it can be decoded."""
        photo = read_photo(data)
        key = secrets.token_urlsafe(16)
        with self._lock:
            self._photos[key] = photo
        self.forget()
        return key, photo

    def add_example(self, name: str, data: bytes, key: str | None = None) -> None:
        """A photo for everybody, which is never forgotten; its id names its content, whatever server has it."""
        photo = read_photo(data, name, example=True)
        self._photos[key or photo.digest[:16]] = photo

    @property
    def examples(self) -> dict[str, Photo]:
        with self._lock:
            return {key: photo for key, photo in self._photos.items() if photo.example}

    def __getitem__(self, key: object) -> Photo:
        self.forget()
        with self._lock:
            photo = self._photos.get(key) if isinstance(key, str) else None
            if photo is None:
                raise Refusal(
                    404,
                    "the photo must be one that was sent, got an unknown one; photos are forgotten in "
                    f"{KEPT_SECONDS // 60} minutes, so send it again",
                )
            photo.used = time.monotonic()
            self._photos.move_to_end(key)  # type: ignore[arg-type]
            return photo

    def forget(self) -> None:
        """Drop what is old, and the oldest while all together are too large."""
        with self._lock:
            sent = [(key, photo) for key, photo in self._photos.items() if not photo.example]
            total, now = sum(len(photo.data) for _, photo in sent), time.monotonic()
            for key, photo in sent:
                if now - photo.used > KEPT_SECONDS or total > KEPT_BYTES:
                    total -= len(photo.data)
                    del self._photos[key]


def read_photo(data: bytes, name: str = "", example: bool = False) -> Photo:
    """A photo of a file, if it can be decoded."""
    with DECODING:
        width, height = decode(data).size
    return Photo(data, width, height, name, hashlib.sha256(data).hexdigest(), example)


def encode(picture: Image.Image, kind: str = "PNG") -> bytes:
    """A picture as a file, made of its pixels alone."""
    picture.save(handle := BytesIO(), kind, **({"quality": 85} if kind == "JPEG" else {"compress_level": 1}))
    return handle.getvalue()


def make_thumbnail(picture: Image.Image) -> bytes:
    small = picture.copy()
    small.thumbnail((THUMBNAIL, THUMBNAIL))
    return encode(small, "JPEG")
