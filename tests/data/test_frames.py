"""Every frame of a file can be asked for; without asking the first comes, with a warning."""

from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from moreaugrad.data.frames import count_frames, split_frames
from moreaugrad.data.images import read_image
from moreaugrad.data.sources import Frame

COLOURS = ("red", "lime", "blue")


def save_frames(path: Path) -> Path:
    frames = [Image.new("RGB", (16, 12), colour) for colour in COLOURS]
    how = {".webp": {"lossless": True}, ".avif": {"quality": 100}}.get(path.suffix, {})
    frames[0].save(path, save_all=True, append_images=frames[1:], **how)
    return path


def save_clip(path: Path, frames: int = 5) -> Path:
    """A clip whose frame i has the grey value 40 i."""
    av = pytest.importorskip("av")
    with av.open(str(path), "w") as file:
        stream = file.add_stream("mpeg4", rate=5)
        stream.width, stream.height = 32, 16
        for index in range(frames):
            picture = av.VideoFrame.from_image(Image.new("RGB", (32, 16), (40 * index,) * 3))
            file.mux(stream.encode(picture))
        file.mux(stream.encode(None))
    return path


avif = pytest.param("avif", marks=pytest.mark.skipif(not find_spec("PIL.AvifImagePlugin"), reason="of Pillow 11.3"))


@pytest.mark.parametrize("kind", ["gif", "tif", "webp", "png", avif])
def test_every_frame_of_an_animation_or_document(tmp_path, caplog, kind):
    path = save_frames(tmp_path / f"moving.{kind}")
    frames = split_frames([path])
    assert frames == [Frame(path, index, 3) for index in range(3)]
    for frame, colour in zip(frames, COLOURS, strict=True):
        wanted = np.asarray(Image.new("RGB", (16, 12), colour)).astype(int)
        assert np.abs(np.asarray(read_image(frame)).astype(int) - wanted).max() <= 4
    assert not caplog.records
    assert (np.asarray(read_image(path)) == np.asarray(read_image(frames[0]))).all()
    (record,) = caplog.records
    assert "holds 3 frames" in record.getMessage()
    assert str(path) in record.getMessage()


def test_every_frame_of_a_video_in_any_order(tmp_path, caplog):
    path = save_clip(tmp_path / "clip.mp4")
    frames = split_frames([path])
    assert frames == [Frame(path, index, 5) for index in range(5)]
    for index in (0, 1, 2, 4, 1, 3):
        found = read_image(frames[index])
        assert found.size == (32, 16)
        assert abs(np.asarray(found).mean() - 40 * index) < 4
    assert not caplog.records
    assert abs(np.asarray(read_image(path)).mean()) < 4
    assert "holds 5 frames" in caplog.text
    with pytest.raises(ValueError, match="ends before frame 7"):
        read_image(Frame(path, 7, 9))
    (tmp_path / "cut.mp4").write_bytes(path.read_bytes()[:200])
    with pytest.raises(ValueError, match="truncated or damaged"):
        read_image(tmp_path / "cut.mp4")


def test_heic(tmp_path):
    heif = pytest.importorskip("pillow_heif")
    pixels = np.zeros((64, 64, 3), np.uint8)
    pixels[:, 32:] = 200
    heif.from_pillow(Image.fromarray(pixels)).save(tmp_path / "photo.heic", quality=-1)
    found = read_image(tmp_path / "photo.heic")
    assert found.mode == "RGB"
    assert np.abs(np.asarray(found).astype(int) - pixels).max() <= 3
    (tmp_path / "cut.heic").write_bytes((tmp_path / "photo.heic").read_bytes()[:200])
    with pytest.raises(ValueError, match="truncated or damaged"):
        read_image(tmp_path / "cut.heic")


def test_what_holds_one_picture_or_none_stays_as_it_is(tmp_path):
    single, broken, missing = tmp_path / "one.png", tmp_path / "bad.gif", tmp_path / "none.gif"
    Image.new("RGB", (4, 4)).save(single)
    broken.write_bytes(b"junk")
    assert split_frames([single, broken, missing]) == [single, broken, missing]
    with pytest.raises(ValueError, match="standard input"):
        split_frames([Path("-")])


def test_previews_inside_a_phone_photo_are_no_frames(tmp_path, caplog):
    path = tmp_path / "phone.jpg"
    Image.new("RGB", (32, 32)).save(path, format="MPO", save_all=True, append_images=[Image.new("RGB", (8, 8))])
    assert count_frames(path) == 1
    read_image(path)
    assert not caplog.records
