"""Image files made by hand or by Pillow, of every kind that can be read, each with the pixels that it must show."""

from __future__ import annotations

import random
import struct
import zlib
from functools import cache
from io import BytesIO
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from PIL import Image, features

Pixels = NDArray[np.uint8]
HUGE = (0, 1, 9_999, 10_001, 20_000, 65_535, 99_999_999, 2**31 - 1, 2**32 - 1)


class Sample(NamedTuple):
    """A file: its ending, its content, and the RGB pixels (H, W, 3) it shows; None where its kind loses some."""

    ending: str
    content: bytes
    pixels: Pixels | None = None


def _noise(shape: tuple[int, ...], most: int = 255) -> Pixels:
    return np.random.default_rng(7).integers(0, most + 1, shape).astype(np.uint8)


COLOUR, GREY = _noise((7, 9, 3)), _noise((7, 9))


def store(image: Image.Image, kind: str, **options: Any) -> bytes:
    """An image as a file of Pillow's."""
    image.save(stored := BytesIO(), kind, **options)
    return stored.getvalue()


@cache
def list_samples() -> dict[str, Sample]:
    """Whole files by name."""
    rgb, grey = Image.fromarray(COLOUR), Image.fromarray(GREY)
    wide = np.repeat(GREY[..., None], 3, 2)
    sheer = np.dstack([COLOUR, np.where(GREY > 128, 255, 0).astype(np.uint8)])
    over = np.where(sheer[..., 3:] > 0, COLOUR, 255).astype(np.uint8)
    found = {
        "png": Sample(".png", store(rgb, "png"), COLOUR),
        "grey png": Sample(".png", store(grey, "png"), wide),
        "16-bit png": Sample(".png", store(Image.fromarray(GREY.astype(np.uint16) * 257), "png"), wide),
        "1-bit png": Sample(".png", store(Image.fromarray(GREY > 128), "png"), np.where(wide > 128, 255, 0)),
        "palette png": Sample(".png", store(rgb.quantize(8), "png")),
        "png with alpha": Sample(".png", store(Image.fromarray(sheer), "png"), over),
        "png with a clear colour": Sample(".png", store(rgb, "png", transparency=(1, 2, 3)), COLOUR),
        "animated png": Sample(".png", store(rgb, "png", save_all=True, append_images=[rgb, rgb.rotate(9)]), COLOUR),
        "jpeg": Sample(".jpg", store(rgb, "jpeg")),
        "progressive jpeg": Sample(".jpeg", store(rgb, "jpeg", progressive=True)),
        "cmyk jpeg": Sample(".jpg", store(rgb.convert("CMYK"), "jpeg")),
        "gif": Sample(".gif", store(grey, "gif"), wide),
        "animated gif": Sample(".gif", store(grey, "gif", save_all=True, append_images=[grey.rotate(90)] * 4), wide),
        "bmp": Sample(".bmp", store(rgb, "bmp"), COLOUR),
        "palette bmp": Sample(".bmp", store(grey, "bmp"), wide),
        "ico": Sample(".ico", store(rgb.resize((16, 16)), "ico")),
        "ppm": Sample(".ppm", store(rgb, "ppm"), COLOUR),
        "text pgm": Sample(".pgm", b"P2 2 1 255 0 255", np.array([[[0] * 3, [255] * 3]], np.uint8)),
        "tga": Sample(".tga", store(rgb, "tga"), COLOUR),
        "float tiff": Sample(".tif", store(Image.fromarray(GREY.astype(np.float32) / 255), "tiff"), wide),
        "cmyk tiff": Sample(".tif", store(rgb.convert("CMYK"), "tiff")),
        "palette tiff": Sample(".tif", store(rgb.quantize(8), "tiff")),
        "tiff of pages": Sample(".tiff", store(rgb, "tiff", save_all=True, append_images=[rgb, grey]), COLOUR),
        "Lab tiff": Sample(".tif", store(Image.new("LAB", (5, 5)), "tiff")),
    }
    found |= {
        f"{how} tiff": Sample(".tif", store(rgb, "tiff", compression=how), COLOUR)
        for how in ("raw", "tiff_lzw", "packbits", "tiff_adobe_deflate")
    }
    for name, kind in {"webp": "webp", "avif": "avif", "jpg_2000": "jpeg2000"}.items():
        if features.check(name):
            ending = {"jpg_2000": ".jp2"}.get(name, f".{name}")
            exact = {"lossless": True} if name == "webp" else {}
            found[name] = Sample(ending, store(rgb, kind, **exact), COLOUR if exact else None)
    if features.check("webp"):
        frames = store(rgb, "webp", save_all=True, append_images=[rgb.rotate(90)] * 2, lossless=True)
        found["animated webp"] = Sample(".webp", frames, COLOUR)
    for order in "<>":
        for most in (65535, 200):  # a dark picture of 16 bits stays dark
            deep = np.random.default_rng(3).integers(0, most + 1, (4, 5)).astype(f"{order}u2")
            shown = np.rint(np.repeat(deep[..., None], 3, 2) / 257).astype(np.uint8)
            name = f"16-bit tiff up to {most}, {'little' if order == '<' else 'big'} end first"
            found[name] = Sample(".tif", make_tiff(5, 4, deep.tobytes(), order, 16), shown)
    return found


def make_tiff(width: int, height: int, data: bytes, order: str = "<", bits: int = 8, after: int = 0) -> bytes:
    """A grey TIFF of one strip; `after` is where it says that the next page is."""
    tags = {256: width, 257: height, 258: bits, 259: 1, 262: 1, 273: 8, 277: 1, 278: height, 279: len(data)}
    head = (b"II*\0" if order == "<" else b"MM\0*") + struct.pack(f"{order}I", 8 + len(data))
    entries = b"".join(struct.pack(f"{order}HHII", tag, 4, 1, value) for tag, value in tags.items())
    return head + data + struct.pack(f"{order}H", len(tags)) + entries + struct.pack(f"{order}I", after)


def make_chunk(kind: bytes, data: bytes) -> bytes:
    """A part of a PNG file."""
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))


def make_bomb(chance: random.Random) -> Sample:
    """A small file that claims to be a large picture, or to hold much text."""
    width, height = chance.choice(HUGE), chance.choice(HUGE)
    short = min(width, 65535), min(height, 65535)
    header = struct.pack(">II", width, height) + bytes(
        (chance.choice((1, 8, 16)), chance.choice((0, 2, 3, 6)), 0, 0, 0)
    )
    body = make_chunk(b"IDAT", zlib.compress(bytes(chance.choice((0, 100, 100_000)))))
    text = zlib.compress(bytes(chance.choice((10, 80_000_000))), 1) if chance.random() < 0.1 else b"junk"
    extra = chance.choice((b"", make_chunk(b"zTXt", b"a\0\0" + text), make_chunk(b"iCCP", b"a\0\0" + text)))
    frames = make_chunk(b"acTL", struct.pack(">II", chance.choice((0, 1, 3, 2**31)), 0))
    signature = b"\x89PNG\r\n\x1a\n"
    png = signature + make_chunk(b"IHDR", header) + chance.choice((b"", frames)) + extra + body
    png += chance.choice((b"", make_chunk(b"IEND", b"")))
    gif = b"GIF89a" + struct.pack("<HH", *short) + b"\x80\0\0" + bytes(6) + b"," + struct.pack("<HHHH", 0, 0, *short)
    bitmap = struct.pack("<IiiHHIIiiII", 40, min(width, 2**31 - 1), -min(height, 2**31 - 1), 1, 24, 0, 0, 0, 0, 0, 0)
    canvas = struct.pack("<I", min(width, 2**24))[:3] + struct.pack("<I", min(height, 2**24))[:3]
    icon = b"\0\0\1\0\1\0" + struct.pack("<BBBBHHII", 0, 0, 0, 0, 1, 32, len(png), 22) + png
    return chance.choice(
        (
            Sample(".png", png),
            Sample(".tif", make_tiff(width, height, b"\0" * 12, after=chance.choice((0, 20, 8)))),
            Sample(".gif", gif + b"\0\2\2L\1\0" + chance.choice((b"", b";"))),
            Sample(".bmp", b"BM" + struct.pack("<IHHI", 54, 0, 0, 54) + bitmap + b"\0" * 9),
            Sample(".ppm", b"P%d %d %d 255\n" % (chance.choice((2, 3, 5, 6)), width, height) + b"1 " * 9),
            Sample(".webp", b"RIFF\x30\0\0\0WEBPVP8X\x0a\0\0\0\x10\0\0\0" + canvas + b"VP8L\0\0\0\0"),
            Sample(".ico", icon),
            Sample(".tga", bytes((0, 0, 10)) + bytes(9) + struct.pack("<HH", *short) + b"\x18\0" + b"\xff\0\0\0"),
            Sample(".jpg", b"\xff\xd8\xff\xc0\0\x11\x08" + struct.pack(">HH", *short) + b"\3\1\x11\0\2\x11\1\3\x11\1"),
        )
    )
