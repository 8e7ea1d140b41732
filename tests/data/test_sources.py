"""Names of files, folders, patterns and URLs as a list of pictures."""

import logging
import sys
from io import BytesIO, TextIOWrapper
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from moreaugrad.data import sources
from moreaugrad.data.images import read_image
from moreaugrad.data.sources import Frame, find_fault, find_images, unique_names


def test_collect_files_folders_patterns(tmp_path):
    for name in ("b.png", "a.JPG", "deep/c.webp", "notes.txt", ".hidden.png", "maps/a.png", "x[1].png"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).touch()
    folder = [path.relative_to(tmp_path).as_posix() for path in find_images([tmp_path], skip=tmp_path / "maps")]
    assert folder == ["a.JPG", "b.png", "deep/c.webp", "x[1].png"]
    assert find_images([tmp_path / "maps"], skip=tmp_path / "maps") == [tmp_path / "maps/a.png"]
    assert find_images([tmp_path / "?.png"]) == [tmp_path / "b.png"]
    assert find_images([tmp_path / "x[1].png"]) == [tmp_path / "x[1].png"]
    assert find_images([tmp_path / "b.png", str(tmp_path / "b.png")]) == [tmp_path / "b.png"]
    missing = [tmp_path / "notes.txt", tmp_path / "none.png"]
    assert find_images(missing) == missing


@given(st.lists(st.sampled_from(["a.png", "A.png", "a.jpg", "x/a.png", "y/a.png", "x_a_png", "b.png", "a_2.png"])))
def test_keys_are_distinct_even_where_case_is_ignored(names):
    found = unique_names([Path("/photos", name) for name in names])
    assert len({key.casefold() for key in found}) == len(names)


def test_a_lone_name_is_its_own_key():
    assert unique_names([Path("x/cat.png"), Path("y/dog.png")]) == ["cat", "dog"]
    assert unique_names([Path("x/cat.png"), Path("y/cat.png")]) == ["x_cat_png", "y_cat_png"]


def test_frames_are_named_by_their_number():
    short, long = Path("x/cat.gif"), Path("x/film.mp4")
    assert unique_names([Frame(short, 3, 12), Frame(long, 3, 12345)]) == ["cat_frame003", "film_frame00003"]
    assert len(set(unique_names([Frame(short, 0, 2), Frame(Path("y/cat.gif"), 0, 2)]))) == 2


@pytest.fixture
def without_readers(monkeypatch):
    """An installation without the packages for HEIC and video."""
    found = sources.find_spec
    monkeypatch.setattr(sources, "find_spec", lambda name: None if name in ("av", "pillow_heif") else found(name))


@pytest.mark.usefixtures("without_readers")
def test_images_of_a_folder_that_need_a_package_are_counted_in_one_warning(tmp_path, caplog):
    for name in ("a.png", "b.heic", "c.HEIC", "d.mp4", "notes.txt"):
        (tmp_path / name).write_bytes(b"x")
    assert find_images([tmp_path]) == [tmp_path / "a.png"]
    (record,) = caplog.records
    assert record.levelno == logging.WARNING
    message = record.getMessage()
    assert all(part in message for part in ("3 files", "2 .heic", "1 .mp4", "pip install av pillow-heif"))
    caplog.clear()
    assert find_images([tmp_path / "b.heic"]) == [tmp_path / "b.heic"]  # named: reading it says why not
    assert not caplog.records
    with pytest.raises(ValueError, match="got heic; pip install pillow-heif"):
        read_image(tmp_path / "b.heic")


@pytest.mark.parametrize("url", ["https://example.org/cat.png", "s3://bucket/cat.png", "file:///cat.png"])
def test_a_url_is_refused_unharmed(url):
    for read in (read_image, lambda given: find_images([given])):
        with pytest.raises(ValueError, match="save the file first") as caught:
            read(url)
        assert repr(url) in str(caught.value)


def test_faults_are_found_without_opening_a_file(tmp_path):
    (tmp_path / "empty.png").touch()
    (tmp_path / "good.png").write_bytes(b"x")
    faults = {name: find_fault(tmp_path / name) for name in ("empty.png", "none.png", "good.png", "")}
    assert faults.pop("good.png") is None
    for name, words in (("empty.png", "empty file"), ("none.png", "nothing there"), ("", "a folder without images")):
        assert words in faults[name]
        assert repr(str(tmp_path / name)) in faults[name]


def test_a_dash_is_standard_input(monkeypatch):
    content = BytesIO()
    Image.new("RGB", (3, 2), (9, 8, 7)).save(content, "png")
    monkeypatch.setattr(sys, "stdin", TextIOWrapper(BytesIO(content.getvalue())))
    (found,) = find_images(["-"])
    assert unique_names([found]) == ["stdin"]
    assert find_fault(found) is None
    assert read_image(found).getpixel((0, 0)) == (9, 8, 7)
    monkeypatch.setattr(sys, "stdin", TextIOWrapper(BytesIO(b"junk")))
    with pytest.raises(ValueError, match="standard input must be an image"):
        read_image("-")


def test_an_empty_name_is_not_the_current_folder():
    with pytest.raises(ValueError, match="empty name"):
        find_images([""])


def test_results_are_not_taken_for_images_but_images_below_them_are(tmp_path):
    for name in ("maps/photos/a.png", "maps/a.gradcam.png", "b.png"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    (tmp_path / "maps" / "results.jsonl").touch()
    assert find_images([tmp_path]) == [tmp_path / "b.png"]
    below = tmp_path / "maps" / "photos"
    assert find_images([below], skip=tmp_path / "maps") == [below / "a.png"]


@pytest.mark.parametrize("name", ["x" * 300 + ".png", "a/" * 3000, "no\0thing.png"])
def test_names_that_no_file_can_have_are_not_there(name):
    (found,) = find_images([name])
    assert "nothing there" in find_fault(found)
    assert find_images(["?" * 300]) == [Path("?" * 300)]


def test_patterns_of_any_depth_follow_no_link_to_a_folder(tmp_path):
    """Two links that lead back to where they lie would be followed along every path of forty of them."""
    for name in ("a.png", "sub/b.png", "sub/deep/c.png", "sub/.hidden/d.png"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    for name in ("again", "up"):
        (tmp_path / "sub" / name).symlink_to(tmp_path)

    def find(pattern):
        return [path.relative_to(tmp_path).as_posix() for path in find_images([f"{tmp_path}/{pattern}"])]

    assert find("**/*.png") == ["a.png", "sub/b.png", "sub/deep/c.png"]
    assert find("**/**/c.png") == find("**/sub/**/c.png") == find("sub/**/c.png") == ["sub/deep/c.png"]
    assert find("s*/**/[bc].png") == ["sub/b.png", "sub/deep/c.png"]
