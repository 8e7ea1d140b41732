"""Files of every kind come in as upright 8-bit RGB; bad ones are named."""

import struct
import warnings
import zlib
from io import BytesIO
from pathlib import Path

import numpy as np
import pytest
from PIL import EpsImagePlugin, Image

from moreaugrad.bulk_jobs.sources.listing import open_encoded
from moreaugrad.cli.index_page import _make_thumbnail
from moreaugrad.data.decoders import silence_decoders
from moreaugrad.data.frames import FORMATS, count_frames
from moreaugrad.data.images import read_image
from moreaugrad.data.sources import STILL_KINDS

RAMP = np.arange(6 * 8, dtype=np.uint8).reshape(6, 8) * 5  # 0, 5, ..., 235
COLOURS = np.stack([RAMP, RAMP[::-1], RAMP[:, ::-1]], axis=2)


def saved(folder: Path, image: Image.Image, name: str = "picture.png", **how: object) -> np.ndarray:
    image.save(folder / name, **how)
    found = read_image(folder / name)
    assert found.mode == "RGB"
    return np.asarray(found)


@pytest.mark.parametrize("orientation", range(1, 9))
def test_exif_rotation_is_applied(tmp_path, orientation):
    """Each orientation is undone by the operation that the EXIF standard gives for it."""
    upright = {
        1: lambda a: a,
        2: np.fliplr,
        3: lambda a: np.rot90(a, 2),
        4: np.flipud,
        5: lambda a: a.transpose(1, 0, 2),
        6: lambda a: np.rot90(a, -1),
        7: lambda a: np.rot90(a, 2).transpose(1, 0, 2),
        8: np.rot90,
    }
    exif = Image.Exif()
    exif[0x0112] = orientation
    found = saved(tmp_path, Image.fromarray(COLOURS), exif=exif)
    assert (found == upright[orientation](COLOURS)).all()


def test_alpha_is_laid_over_white(tmp_path):
    alpha = np.zeros((6, 8), np.uint8)
    alpha[:, 4:] = 255
    found = saved(tmp_path, Image.fromarray(np.dstack([COLOURS, alpha])))
    assert (found[:, :4] == 255).all()
    assert (found[:, 4:] == COLOURS[:, 4:]).all()
    grey = saved(tmp_path, Image.merge("LA", (Image.fromarray(RAMP), Image.fromarray(alpha))))
    assert (grey[:, :4] == 255).all()
    assert (grey[:, 4:, 0] == RAMP[:, 4:]).all()


def test_transparent_palette(tmp_path):
    image = Image.new("P", (4, 2), 0)
    image.putpalette([10, 20, 30, 200, 100, 50])
    image.putpixel((3, 1), 1)
    found = saved(tmp_path, image, transparency=0)
    assert (found[0] == 255).all()
    assert tuple(found[1, 3]) == (200, 100, 50)
    assert tuple(saved(tmp_path, image)[0, 0]) == (10, 20, 30)


def test_transparent_colour_of_an_rgb_file(tmp_path):
    found = saved(tmp_path, Image.fromarray(COLOURS), transparency=tuple(int(v) for v in COLOURS[0, 0]))
    assert tuple(found[0, 0]) == (255, 255, 255)
    assert (found[1:] == COLOURS[1:]).all()


def test_sixteen_bit_grey_keeps_its_upper_byte(tmp_path):
    deep = RAMP.astype(np.uint16) * 257
    assert (saved(tmp_path, Image.fromarray(deep))[..., 1] == RAMP).all()
    assert (saved(tmp_path, Image.fromarray(deep), "deep.tif")[..., 0] == RAMP).all()
    assert (saved(tmp_path, Image.fromarray(deep.astype(np.int32)), "wide.tif")[..., 0] == RAMP).all()


@pytest.mark.parametrize(("low", "high"), [(0, 1), (0, 235), (-3.0, 5.0), (0, 1e6)])
def test_floating_point_grey(tmp_path, low, high):
    values = (low + (high - low) * RAMP.astype(np.float32) / 235).astype(np.float32)
    found = saved(tmp_path, Image.fromarray(values), "float.tif")[..., 2].astype(int)
    top = 235 if high == 235 else 255
    assert np.abs(found - np.rint(RAMP.astype(float) * top / 235)).max() <= 1


def test_grey_bits_and_cmyk(tmp_path):
    assert (saved(tmp_path, Image.fromarray(RAMP)) == RAMP[..., None]).all()
    bits = saved(tmp_path, Image.fromarray(RAMP > 100))
    assert (bits == np.where(RAMP > 100, 255, 0)[..., None]).all()
    cmyk = saved(tmp_path, Image.new("CMYK", (8, 6), (0, 255, 255, 0)), "print.jpg", quality=100)
    assert np.abs(cmyk.astype(int) - [255, 0, 0]).max() <= 3


@pytest.mark.parametrize(
    "array",
    [COLOURS, COLOURS / 255.0, COLOURS.astype(np.uint16) * 257, np.dstack([COLOURS, np.full((6, 8), 255, np.uint8)])],
    ids=["bytes", "floats", "sixteen bits", "with alpha"],
)
def test_arrays(array):
    assert (np.asarray(read_image(array)) == COLOURS).all()


def test_grey_arrays_and_pil_images():
    assert (np.asarray(read_image(RAMP)) == RAMP[..., None]).all()
    assert (np.asarray(read_image(RAMP[..., None] > 100))[..., 0] == np.where(RAMP > 100, 255, 0)).all()
    assert read_image(Image.fromarray(RAMP)).mode == "RGB"


def bomb(width: int, height: int) -> bytes:
    """A PNG that claims a size and holds nothing."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    head = chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0))
    return b"\x89PNG\r\n\x1a\n" + head + chunk(b"IDAT", zlib.compress(b"")) + chunk(b"IEND", b"")


def broken(folder: Path) -> dict[str, tuple[Path, str]]:
    whole = folder / "whole.png"
    Image.fromarray(np.random.default_rng(0).integers(0, 255, (60, 60, 3), dtype=np.uint8)).save(whole)
    contents = {
        "empty.png": (b"", "empty file"),
        "text.jpg": (b"not a picture at all", "of another kind"),
        "cut.png": (whole.read_bytes()[:4000], "truncated or damaged"),
        "huge.png": (bomb(10_100, 10_000), "megapixels, got 10100 x 10000"),
        "monstrous.png": (bomb(60_000, 60_000), "megapixels"),
    }
    found = {}
    for name, (content, words) in contents.items():
        (folder / name).write_bytes(content)
        found[name] = (folder / name, words)
    return found | {"missing": (folder / "nowhere.png", "nothing there"), "folder": (folder, "got a folder")}


@pytest.mark.parametrize("name", ["empty.png", "text.jpg", "cut.png", "huge.png", "monstrous.png", "missing", "folder"])
def test_bad_files_are_named_with_a_way_out(tmp_path, name):
    path, words = broken(tmp_path)[name]
    with pytest.raises(ValueError, match=words) as caught:
        read_image(path)
    assert repr(str(path)) in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_pil_image_of_a_cut_file(tmp_path):
    path, _ = broken(tmp_path)["cut.png"]
    with Image.open(path) as image, pytest.raises(ValueError, match="truncated or damaged"):
        read_image(image)


@pytest.mark.parametrize(
    ("array", "words"),
    [
        (np.zeros((3, 8, 9)), "channels last"),
        (np.zeros((0, 8)), "shape"),
        (np.full((4, 4, 3), 128.0), "must lie in"),
        (np.full((4, 4), np.nan), "must lie in"),
        (np.array([["a"]]), "numbers"),
        (3, "a path, a PIL image or a numpy array, got int"),
    ],
)
def test_bad_arrays(array, words):
    with pytest.raises((ValueError, TypeError), match=words):
        read_image(array)


def test_a_picture_that_was_closed_is_refused():
    picture = Image.new("RGB", (4, 4))
    picture.close()
    with pytest.raises(ValueError, match="must be readable, got a closed"):
        read_image(picture)


@pytest.mark.parametrize("order", ["<", ">"])
def test_a_dark_picture_of_sixteen_bits_stays_dark_in_either_order_of_bytes(tmp_path, order):
    deep = (np.arange(48).reshape(6, 8) * 5).astype(f"{order}u2")  # at most 235 of 65535
    assert (saved(tmp_path, Image.fromarray(deep), "deep.tif")[..., 0] == np.rint(deep / 257)).all()
    assert (np.asarray(read_image(deep))[..., 0] == np.rint(deep / 257)).all()


@pytest.mark.parametrize(
    "notes", [b"Exif\0\0II*\0\xff\xff\xff\xff", b"Exif\0\0MM", b"junk", b"Exif\0\0II*\0\x08\0\0\0\x09\0"]
)
def test_damaged_notes_leave_the_pixels(tmp_path, notes):
    assert (saved(tmp_path, Image.fromarray(COLOURS), exif=notes, icc_profile=b"junk") == COLOURS).all()


def store(kind: str, **how: object) -> bytes:
    Image.fromarray(COLOURS).save(handle := BytesIO(), kind, **how)
    return handle.getvalue()


UNREADABLE = {  # errors of Pillow's that are ValueErrors themselves, and those of other kinds
    "a cut header": ("a.ppm", b"P6 8"),
    "too few numbers": ("a.pgm", b"P2 2 2 255 1 2"),
    "a cut table": ("a.tif", store("tiff")[:-20]),
}


@pytest.mark.parametrize(("name", "content"), UNREADABLE.values(), ids=UNREADABLE.keys())
def test_errors_of_decoders_are_told_in_our_words_and_without_their_warnings(tmp_path, name, content):
    path = tmp_path / name
    path.write_bytes(content)
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        with pytest.raises(ValueError, match="must be an image file, got one that is truncated or damaged"):
            read_image(path)
        assert count_frames(path) == 1
    assert told == []


def test_a_pil_image_without_pixels():
    with pytest.raises(ValueError, match="0 x 3"):
        read_image(Image.new("RGB", (0, 3)))


def test_threads_that_read_leave_the_warning_filters_as_they_were():
    """Whichever thread comes first and leaves last."""
    before = list(warnings.filters)
    for order in ((0, 1), (1, 0)):
        readers = [silence_decoders(), silence_decoders()]
        for reader in readers:
            reader.__enter__()
        readers[order[0]].__exit__(None, None, None)
        with warnings.catch_warnings(record=True) as told:
            warnings.warn_explicit("of a decoder", UserWarning, "x.py", 1, module="PIL.Image")
        readers[order[1]].__exit__(None, None, None)
        assert (told, warnings.filters) == ([], before)


@pytest.mark.parametrize("door", ["file", "bytes", "thumbnail"])
def test_postscript_under_another_name_reaches_no_other_program(tmp_path, monkeypatch, door):
    """Pillow knows it by its content, and would give it to Ghostscript."""
    started = []
    monkeypatch.setattr(EpsImagePlugin, "Ghostscript", lambda *given, **options: started.append(given))
    path = tmp_path / "photo.png"
    Image.new("RGB", (8, 8), "red").save(path, "EPS")
    if door == "file":
        with pytest.raises(ValueError, match="must be an image file, got a file of another kind"):
            read_image(path)
    elif door == "bytes":
        with pytest.raises(ValueError, match="must be an encoded image"):
            open_encoded(path.read_bytes(), "row 0")
    else:
        assert _make_thumbnail(path) == {}
    assert not started


def test_every_kind_that_is_looked_for_has_a_format():
    """And the other way round."""
    kinds = Image.registered_extensions()
    found = {kinds[f".{kind}"] for kind in STILL_KINDS.split() if f".{kind}" in kinds}
    assert found == {name for name in FORMATS if name in Image.OPEN}
