"""The target `images`: damaged, hostile and odd image files, folders and arrays for everything that reads pictures."""

from __future__ import annotations

import random
import warnings
from collections.abc import Callable
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

import moreaugrad as mg
from moreaugrad.data.images import read_image
from reliability.fuzz.case import Case
from reliability.fuzz.damage import spoil
from reliability.fuzz.data_tables import make_table_case
from reliability.fuzz.image_files import COLOUR, Pixels, Sample, list_samples, make_bomb, store
from reliability.fuzz.image_places import make_folder_case, make_place_case
from reliability.fuzz.tiny_network import find_fault, shared_network

OTHERS = (b"", b"\0", b"<!DOCTYPE html><p>404", b"PK\3\4junk", b"\x80\x04\x95junk.", b"%PDF-1.4", b"\x89PNG\r\n\x1a\n")
TURNS: dict[int, Callable[[Pixels], Pixels]] = {  # of EXIF: how the stored pixels become upright
    1: lambda pixels: pixels,
    2: lambda pixels: pixels[:, ::-1],
    3: lambda pixels: pixels[::-1, ::-1],
    4: lambda pixels: pixels[::-1],
    5: lambda pixels: pixels.transpose(1, 0, 2),
    6: lambda pixels: pixels[::-1].transpose(1, 0, 2),
    7: lambda pixels: pixels[::-1, ::-1].transpose(1, 0, 2),
    8: lambda pixels: pixels.transpose(1, 0, 2)[::-1],
}


def make_case(chance: random.Random) -> Case:
    kinds = {
        make_damaged_case: 40,
        make_whole_case: 12,
        make_bomb_case: 10,
        make_long_case: 4,
        make_place_case: 12,
        make_folder_case: 8,
        make_array_case: 8,
        make_table_case: 10,
    }
    (make,) = chance.choices(list(kinds), list(kinds.values()))
    return make(chance)


def read_through(how: str, path: Path) -> object:
    """A file through one of the doors that pictures come in by."""
    if how == "read":
        return read_image(path)
    if how == "opened":
        return read_opened(path)
    if how == "labelled":
        return mg.LabelledImages([path, path], np.zeros(2, np.int64), ["a", "b"], ["cat"]).pixels()
    if how == "several":
        return mg.explain(shared_network(), [path, COLOUR], "gradient")
    return mg.explain(shared_network(), str(path), "gradient", frames=how == "frames")


WAYS = ("one", "one", "frames", "read", "opened", "labelled", "several")


def read_opened(path: Path) -> object:
    """A picture of Pillow's that was opened, but not read."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # opening is the user's call of Pillow, with whatever comes of it
            image = Image.open(BytesIO(path.read_bytes()))
    except Exception:
        return None
    return read_image(image)


def check(found: object) -> str | None:
    """An answer from whichever door is a picture, pixels, maps, or nothing."""
    if isinstance(found, Image.Image):
        return None if found.mode == "RGB" and min(found.size) > 0 else f"{found.mode} of {found.size}"
    if isinstance(found, np.ndarray):
        return None if found.dtype == np.uint8 and found.shape[3] == 3 else f"{found.dtype} of {found.shape}"
    return find_fault(found) if isinstance(found, mg.Explanation) else None


def check_pixels(expected: Pixels) -> Callable[[Any], str | None]:
    """The picture shows these pixels."""

    def compare(found: Any) -> str | None:
        pixels = np.asarray(found)
        if pixels.shape != expected.shape:
            return f"pixels of shape {pixels.shape} instead of {expected.shape}"
        apart = np.abs(pixels.astype(int) - expected).max()
        return f"pixels that are up to {apart} off" if apart else None

    return compare


def make_file_case(name: str, sample: Sample, how: str) -> Case:
    def run(folder: Path) -> object:
        (path := folder / f"photo{sample.ending}").write_bytes(sample.content)
        return read_through(how, path)

    return Case(f"{name} as {sample.ending} by {how}", run, check)


def make_damaged_case(chance: random.Random) -> Case:
    """A damaged file, one of another kind, or a whole one under the ending of another kind."""
    name = chance.choice(list(list_samples()))
    sample = list_samples()[name]
    what = chance.random()
    if what < 0.85:
        sample = sample._replace(content=spoil(chance, sample.content))
    elif what < 0.95:
        name, sample = "another kind", sample._replace(content=chance.choice(OTHERS))
    if chance.random() < 0.1:
        sample = sample._replace(ending=chance.choice((".png", ".jpg", ".TIFF", ".webp", ".gif", ".bmp")))
    return make_file_case(f"damaged {name}", sample, chance.choice(WAYS))


def make_bomb_case(chance: random.Random) -> Case:
    return make_file_case("a claim of much", make_bomb(chance), chance.choice(WAYS))


def make_whole_case(chance: random.Random) -> Case:
    """A whole picture, also with notes that are turned or broken: its pixels must come as they are."""
    if chance.random() < 0.4:
        name = chance.choice([name for name, each in list_samples().items() if each.pixels is not None])
        sample = list_samples()[name]
        return _make_pixel_case(name, sample, sample.pixels)
    exif = Image.Exif()
    exif[0x0112] = turn = chance.choice(list(TURNS))
    exif[0x010E] = "a photo"
    notes, pixels = exif.tobytes(), TURNS[turn](COLOUR)
    name = f"turned by {turn}"
    if chance.random() < 0.5:  # which way is up cannot be told any more
        notes = b"Exif\0\0" + chance.choice((spoil(chance, notes[6:]), b"", b"II*\0\xff\xff\xff\xff", b"junk"))
        name = "broken EXIF"
    profile = chance.choice((None, b"junk", b"\0" * 128, chance.randbytes(300)))
    more = {} if profile is None else {"icc_profile": profile}
    kind = chance.choice(("png", "webp"))
    lossless = {"lossless": True} if kind == "webp" else {}
    content = store(Image.fromarray(COLOUR), kind, exif=notes, **more, **lossless)
    sample = Sample(f".{kind}", content, pixels)
    return _make_pixel_case(name, sample, pixels if name != "broken EXIF" else None)


def _make_pixel_case(name: str, sample: Sample, pixels: Pixels | None) -> Case:
    """Without `pixels`: those of the file, turned one way or the other."""
    every = [pixels] if pixels is not None else [turn(COLOUR) for turn in TURNS.values()]

    def run(folder: Path) -> object:
        (path := folder / f"photo{sample.ending}").write_bytes(sample.content)
        return read_image(path)

    def compare(found: Any) -> str | None:
        faults = [check_pixels(each)(found) for each in every]
        return None if None in faults else faults[0]

    return Case(f"whole: {name} as {sample.ending}", _refuse_nothing(run), compare)


def _refuse_nothing(run: Callable[[Path], object]) -> Callable[[Path], object]:
    """For whole files: a refusal is a wrong answer."""

    def go(folder: Path) -> object:
        try:
            return run(folder)
        except ValueError as error:
            raise AssertionError(f"refused: {error}") from error

    return go


def make_long_case(chance: random.Random) -> Case:
    """Pictures of one pixel, and long thin ones."""
    size = chance.choice(((1, 1), (1, 20_000), (20_000, 1), (1, 2), (3, 4_000), (2, 99)))
    kind = chance.choice(("png", "tiff", "bmp", "ppm"))
    image = Image.effect_noise(size, 50).convert(chance.choice(("L", "RGB")))
    return make_file_case(f"{size[0]} x {size[1]}", Sample(f".{kind}", store(image, kind)), chance.choice(WAYS))


def make_array_case(chance: random.Random) -> Case:
    """Arrays of every kind of number and shape, and images of Pillow's in every mode."""
    if chance.random() < 0.3:
        mode = chance.choice(("1", "L", "P", "RGB", "RGBA", "CMYK", "YCbCr", "LAB", "HSV", "I", "F", "LA", "La", "PA"))
        mode = chance.choice((mode, mode, "RGBa", "RGBX", "I;16", "I;16B", "I;16L"))
        size = chance.choice(((5, 4), (1, 1), (1, 300), (0, 3), (4, 0)))
        return Case(f"an image of mode {mode}, {size}", lambda folder: read_image(Image.new(mode, size)), check)
    rng = np.random.default_rng(chance.randrange(10**6))
    shapes = ((4, 5), (4, 5, 1), (4, 5, 3), (4, 5, 4), (3, 4, 5), (0, 5, 3), (4, 0), (), (7,), (4, 5, 2), (1, 4, 5, 3))
    shape = chance.choice((*shapes[:4] * 3, *shapes))
    values = rng.normal(size=shape) * chance.choice((0, 0.1, 1, 100, 1e5, 1e300))
    values = np.asarray(np.abs(values) if chance.random() < 0.6 else values)
    if values.size and chance.random() < 0.2:
        values.flat[0] = chance.choice((np.nan, np.inf, -np.inf, 1.0, 255, 256))
    kinds = "?bBhHiIlLqQefdgFDSUOMmV"
    with np.errstate(all="ignore"):
        given = _convert(values, chance.choice((*"eefdBH", *kinds, ">u2", ">i4", ">f4")))
    given = chance.choice((given, given, given[::-1] if given.ndim else given, np.asfortranarray(given)))
    how = chance.choice(("read", "one"))
    call = read_image if how == "read" else lambda array: mg.explain(shared_network(), array, "gradient")
    return Case(f"an array of {given.dtype}, {given.shape}", lambda folder: call(given), check)


def _convert(values: Any, kind: str) -> Any:
    """An array of another kind of number; of text or structures where numbers do not become them."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            return values.astype(kind)
        except (ValueError, TypeError, OverflowError):
            return np.zeros(values.shape, kind)
