"""The page of a results folder: complete, in one file, safe with any name, and cheap to write again."""

import json
import re
import shutil
import subprocess
from base64 import b64decode
from io import BytesIO
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from moreaugrad.cli import index_page
from moreaugrad.cli.index_page import INDEX, write_index
from moreaugrad.cli.results_folder import ResultsFolder, identify
from moreaugrad.plotting import display, pictures

NASTY = "</script><script>alert('\u00e4\"&')</script>"


def picture(colour: tuple[int, int, int] = (255, 0, 0)) -> bytes:
    shown = np.full((8, 10, 3), colour, dtype=np.uint8)
    return display.to_png(pictures.panel(shown, torch.randn(3, 8, 10), "a title"))


def store(folder: ResultsFolder, key: str, png: bytes | None = None, **facts: object) -> str:
    identity = identify({"key": key, **facts})
    known = {"key": key, "file": f"{key}.jpg", "method": "gradcam", "model": "small", "score": 1.5} | facts
    folder.store(identity, f"{len(folder.records)}.gradcam", known, {} if png is None else {"png": png})
    return identity


def entries(path: Path) -> list[dict]:
    start, end = index_page._START, index_page._END
    return json.loads((path / INDEX).read_text(encoding="utf-8").partition(start)[2].partition(end)[0])


def test_the_page_lists_every_record_and_shows_input_and_overlay(tmp_path):
    with ResultsFolder(tmp_path) as folder:
        store(folder, "a", picture(), label="cat", converged=False, relative_error=0.25)
        store(folder, NASTY, picture())
        store(folder, "c")
        store(folder, "d", error="it is broken")
        write_index(folder)
    first, second, third, fourth = entries(tmp_path)
    wanted = {"key": "a", "label": "cat", "converged": False, "relative_error": 0.25, "files": {"png": "0.gradcam.png"}}
    assert {name: first[name] for name in wanted} == wanted
    assert [each["key"] for each in (second, third, fourth)] == [NASTY, "c", "d"]
    assert fourth["error"] == "it is broken"
    assert ["thumbnail" in each for each in (first, second, third, fourth)] == [True, True, False, False]
    kind, _, data = first["thumbnail"].partition(",")
    assert kind == "data:image/jpeg;base64"
    with Image.open(BytesIO(b64decode(data))) as shown:
        assert shown.size == (2 * index_page.SIDE, round(0.8 * index_page.SIDE))
        left = np.asarray(shown)[5:-5, 5 : index_page.SIDE - 16].astype(int)
    assert abs(left - (254, 0, 0)).max() < 16


def test_the_page_needs_nothing_but_itself(tmp_path):
    with ResultsFolder(tmp_path) as folder:
        store(folder, NASTY, picture())
        write_index(folder)
    page = (tmp_path / INDEX).read_text(encoding="utf-8")
    assert not re.search(r"https?://|@import|<link|<iframe|src=\"(?!data:)", page)
    assert NASTY not in page
    assert page.count("</script>") == 2
    assert (tmp_path / INDEX).stat().st_size < 20e6 / 300


def test_thumbnails_of_earlier_runs_are_taken_from_the_page(tmp_path, monkeypatch):
    made = []
    original = index_page._make_thumbnail
    monkeypatch.setattr(index_page, "_make_thumbnail", lambda path: made.append(path.name) or original(path))
    with ResultsFolder(tmp_path) as folder:
        for number in range(3):
            store(folder, str(number), picture())
            write_index(folder)
    assert made == [f"{number}.gradcam.png" for number in range(3)]
    assert all("thumbnail" in each for each in entries(tmp_path))


@pytest.mark.parametrize("damage", ["cut", "data", "picture"])
def test_a_damaged_page_or_picture_is_no_failure(tmp_path, damage):
    with ResultsFolder(tmp_path) as folder:
        store(folder, "a", picture())
        write_index(folder)
        page = (tmp_path / INDEX).read_text(encoding="utf-8")
        if damage == "picture":
            (tmp_path / "0.gradcam.png").write_bytes(b"junk")
            (tmp_path / INDEX).unlink()
        else:
            (tmp_path / INDEX).write_text(page[:6000] if damage == "cut" else page.replace('[{"id"', "[{id"))
        write_index(folder)
    assert [each["key"] for each in entries(tmp_path)] == ["a"]
    assert ("thumbnail" in entries(tmp_path)[0]) == (damage != "picture")


def test_a_failure_is_not_shown_once_its_file_is_explained(tmp_path):
    with ResultsFolder(tmp_path) as folder:
        store(folder, "a", error="broken")
        store(folder, "b", error="broken")
        store(folder, "a", picture())
        write_index(folder)
    assert [(each["key"], "error" in each) for each in entries(tmp_path)] == [("b", True), ("a", False)]


def test_a_large_folder_has_no_endless_page(tmp_path, monkeypatch):
    monkeypatch.setattr(index_page, "MOST", 2)
    with ResultsFolder(tmp_path) as folder:
        for number in range(3):
            store(folder, str(number), picture())
        write_index(folder)
    assert ["thumbnail" in each for each in entries(tmp_path)] == [True, True, False]


@pytest.mark.skipif(not shutil.which("chromium"), reason="needs Chromium")
def test_a_browser_shows_a_card_for_each_record(tmp_path):
    with ResultsFolder(tmp_path) as folder:
        store(folder, "a", picture(), label="cat", target=3, pixels_kept=0.05, relative_error=0.25)
        store(folder, NASTY, picture(), label="<b>dog</b>")
        write_index(folder)
    browser = ["chromium", "--headless", "--no-sandbox", "--disable-gpu", f"--user-data-dir={tmp_path / 'profile'}"]
    found = subprocess.run(
        [*browser, "--dump-dom", (tmp_path / INDEX).as_uri()], capture_output=True, text=True, timeout=60, check=True
    ).stdout
    sheet = found.partition('<ul id="sheet">')[2].partition("</ul>")[0]
    assert sheet.count("<li") == sheet.count("<img") == 2
    assert "keeps 5 % of pixels, known to within 25 %" in sheet
    assert "cat (class 3), score 1.5" in sheet
    assert "<script" not in sheet
    assert "<b>" not in sheet
    assert "2 of 2 images" in found
