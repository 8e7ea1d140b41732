"""The page of a job: complete, safe with any name, in one file, and its pictures show what they say."""

import json
import re
import shutil
import subprocess
import sys
from base64 import b64decode
from hashlib import sha256
from html.parser import HTMLParser
from io import BytesIO

import numpy as np
import pytest
from bulk_folder import Pictures, make_row, spread_map, write_job
from PIL import Image

import moreaugrad as mg
from moreaugrad.bulk_jobs import thumbnails
from moreaugrad.bulk_jobs.report import write_report
from moreaugrad.bulk_jobs.sources import open_source
from moreaugrad.models.classifier import CentreCrop

NASTY = "</script><script>alert('ä\"&')</script><b>"


class Page(HTMLParser):
    """What a browser makes of a report: its elements, the cells of its tables, and its scripts."""

    def __init__(self, path):
        super().__init__()
        self.elements, self.scripts, self.rows, self._open = [], [], [], []
        self.source = path.read_text(encoding="utf-8")
        self.words = ""
        self.feed(self.source)
        self.entries = json.loads(self.scripts[0])
        self.words = " ".join(self.words.split())

    def handle_starttag(self, tag, attrs):
        self.elements.append((tag, dict(attrs)))
        self._open.append(tag)
        if tag == "tr":
            self.rows.append([])
        if tag in ("td", "th"):
            self.rows[-1].append("")
        if tag == "script":
            self.scripts.append("")

    def handle_endtag(self, tag):
        while tag in self._open and self._open.pop() != tag:
            pass

    def handle_data(self, data):
        if "script" in self._open:
            self.scripts[-1] += data
            return
        self.words += "" if "style" in self._open else f" {data}"
        if {"td", "th"} & set(self._open):
            self.rows[-1][-1] += data


def report(folder, rows, source=None, images=1000, **job):
    maps = mg.open_maps(write_job(folder, rows, **job))
    return Page(write_report(maps, images=images, source=source))


def decode(picture):
    kind, _, data = picture.partition(",")
    assert kind == "data:image/webp;base64"
    return np.asarray(Image.open(BytesIO(b64decode(data))).convert("RGB")).astype(int)


def plain_picture(colour, size=(8, 8)):
    return Image.new("RGB", size, colour)


def test_every_image_is_there_with_its_numbers(tmp_path):
    rows = [make_row(0, converged=False), make_row(1, error="it is broken"), make_row(2, relative_error=None)]
    page = report(tmp_path, rows)
    assert [each["key"] for each in page.entries] == [each.key for each in rows]
    first, second, third = page.entries
    wanted = {"label": "cat", "score": 1.5, "kept": 1.0, "relative_error": 0.1, "seconds": 0.5, "converged": False}
    assert {name: first[name] for name in wanted} == wanted
    assert (second["error"], "picture" in second, third["relative_error"]) == ("it is broken", False, None)
    assert "The job is finished" in page.words
    for words in ("gradient with samples = 4", "3 of 3, with 1 error", "moreaugrad 1.2.3", "8 gradients, 1 seconds"):
        assert words in page.words


def test_names_of_images_and_classes_stay_text(tmp_path):
    rows = [make_row(0, key=NASTY, label=NASTY), make_row(1, key=f"{NASTY}2", error=f"{NASTY} is broken")]
    page = report(tmp_path, rows)
    tags = [tag for tag, _ in page.elements]
    assert tags.count("script") == 2
    assert "b" not in tags
    assert page.source.count("</script>") == 2
    assert [each["key"] for each in page.entries] == [NASTY, f"{NASTY}2"]
    cells = [cell for row in page.rows for cell in row]
    assert {NASTY, f"{NASTY}2", f"{NASTY} is broken"} <= set(cells)


def test_the_page_needs_nothing_but_itself_and_runs_no_other_script(tmp_path):
    page = report(tmp_path, [make_row(0, key=NASTY), make_row(1)])
    assert not re.search(r"https?://|@import|url\(", page.source)
    for tag, attributes in page.elements:
        assert tag not in ("link", "iframe", "object", "base")
        assert not [name for name in attributes if name.startswith("on") or name == "style"]
        assert attributes.get("src", "data:").startswith("data:")
        assert attributes.get("href", "#").startswith("#")
    policy = next(known["content"] for _, known in page.elements if "http-equiv" in known)
    digest = re.search(r"script-src 'sha256-(.+?)'", policy)[1]
    assert b64decode(digest) == sha256(page.scripts[1].encode()).digest()


def test_of_a_large_job_an_even_choice_is_shown_beside_the_best_and_worst_known_maps(tmp_path):
    rows = [make_row(row, relative_error=0.5 + 0.01 * ((row * 7) % 40)) for row in range(40)]
    page = report(tmp_path, rows, images=4)
    order = np.argsort([each.relative_error for each in rows]).tolist()
    assert {each["place"] for each in page.entries} == {0, 13, 26, 39, *order[:8], *order[-8:]}
    assert "of 40 images: an even choice" in page.words
    galleries = [known["data-entries"].split() for _, known in page.elements if "data-entries" in known]
    assert [list(map(int, each)) for each in galleries] == [order[:-9:-1], order[:8]]


def test_equally_known_maps_have_no_extremes(tmp_path):
    page = report(tmp_path, [make_row(row) for row in range(6)])
    assert not any("data-entries" in known for _, known in page.elements)


def test_accuracy_and_confusions_are_counted(tmp_path):
    pairs = [(0, 0), (0, 1), (0, 1), (1, 1), (1, 2), (1, None)]
    names = ["cat", "dog"]
    rows = [make_row(row, target=is_, label=names[is_], truth=true) for row, (is_, true) in enumerate(pairs)]
    page = report(tmp_path / "predicted", rows)
    assert "40 % of the 5 explained images" in page.words
    assert ["dog", "cat", "2"] in page.rows
    assert ["class 2", "dog", "1"] in page.rows
    assert next(row for row in page.rows if row[0] == "cat")[:3] == ["cat", "3", "33.3 %"]
    assert next(row for row in page.rows if row[0] == "dog")[:3] == ["dog", "3", "50 %"]
    assert [each["wrong"] for each in page.entries] == [False, True, True, False, True, False]
    other = report(tmp_path / "chosen", rows, target=0)
    assert not any(known.get("id") == "accuracy" for _, known in other.elements)
    asked = write_job(tmp_path / "asked", rows, source={"kind": "manifest", "images": len(rows), "targets": 1})
    other = Page(write_report(mg.open_maps(asked)))
    assert not any(known.get("id") == "accuracy" for _, known in other.elements)
    assert not any("wrong" in (known.get("value") or "") for _, known in other.elements)
    assert not any(each["wrong"] for each in other.entries)


def test_failures_with_one_reason_are_one_row(tmp_path):
    rows = [make_row(row, error=f"'folder/{row}.png' must be an image, isn't one; fetch it") for row in range(7)]
    rows += [make_row(7, error="too small")]
    page = report(tmp_path, rows)
    assert [
        "7",
        "'...' must be an image, isn't one; fetch it",
        ", ".join(f"image {n}.png" for n in range(5)) + ", …",
    ] in (page.rows)
    assert ["1", "too small", "image 7.png"] in page.rows


def test_the_picture_of_a_class_is_bright_where_its_maps_are(tmp_path):
    rows = []
    for row in range(6):
        values = np.zeros((3, 8, 8), np.float32)
        values[row % 3, 2 + row % 2, 5] = -1.0 - row
        rows.append(make_row(row, target=row % 2, label=f"class of {row % 2}", map=values))
    page = report(tmp_path, [*rows, make_row(6, target=2, label="nothing", map=np.zeros((3, 8, 8), np.float32))])
    means = {known["alt"]: decode(known["src"]) for tag, known in page.elements if tag == "img"}
    assert list(means) == ["Mean map of class of 0", "Mean map of class of 1"]
    for row, picture in enumerate(means.values()):
        light = picture.sum(-1).reshape(8, 18, 8, 18).mean((1, 3))
        assert np.unravel_index(light.argmax(), light.shape) == (2 + row, 5)
        assert np.sort(light.ravel())[-2] < light.max() / 2


def test_a_pair_shows_the_photo_and_the_map_over_it():
    values = np.zeros((1, 8, 8), np.float32)  # one channel
    values[0, 0, 0] = 2.0
    pair = decode(thumbnails.draw_pair(plain_picture((0, 200, 0)), values))
    assert pair.shape == (144, 288, 3)
    assert abs(pair[:, :136] - (0, 200, 0)).max() < 25
    grey = 0.587 * 200 / 2  # of a photo under a map: half as bright
    assert abs(pair[40:, 190:] - grey).max() < 25
    assert (pair[4:14, 148:158].mean((0, 1)) - grey).max() > 100


@pytest.mark.parametrize(
    ("shape", "size"), [((3, 32, 32), (128, 128)), ((3, 224, 224), (144, 144)), ((1, 288, 144), (144, 72))]
)
def test_small_maps_grow_by_whole_numbers_and_large_ones_shrink(shape, size):
    assert decode(thumbnails.draw_pair(None, spread_map(shape=shape))).shape[:2] == size


def test_photos_are_shown_as_the_network_saw_them(tmp_path):
    photo = plain_picture("blue", (32, 16))
    photo.paste("red", (8, 0, 24, 16))
    zero = np.zeros((3, 8, 8), np.float32)
    view = CentreCrop((8, 8), (8, 8))
    for name, known in {"view": repr(view), "function": "0123456789abcdef", "crop": "0" * 32}.items():
        page = report(tmp_path / name, [make_row(0, map=zero)], Pictures({"image 0.png": photo}), view=known)
        left = decode(page.entries[0]["picture"])[:, :136]
        assert abs(left - (255, 0, 0)).max() < 25
        assert page.entries[0]["zero"]


def test_photos_are_found_by_key_where_the_job_took_them_from(tmp_path):
    (tmp_path / "photos").mkdir()
    for name in ("a.png", "b.png"):
        plain_picture("red").save(tmp_path / "photos" / name)
    found = open_source(str(tmp_path / "photos"), tmp_path / "job")
    keys = [found.keys[1], "gone.png", found.keys[0]]
    about = {"kind": "folder", "path": str(tmp_path / "photos"), "images": 3}
    page = report(tmp_path / "job", [make_row(row, key=key) for row, key in enumerate(keys)], source=None)
    assert [each["alone"] for each in page.entries] == [True] * 3
    maps = mg.open_maps(write_job(tmp_path / "job", [make_row(row, key=key) for row, key in enumerate(keys)]))
    maps.job["configuration"]["source"] = about
    page = Page(write_report(maps, tmp_path / "other.html"))
    assert [each["alone"] for each in page.entries] == [False, True, False]
    assert "1 of these images could not be found again" in page.words
    assert "gone.png" in page.words


@pytest.mark.parametrize("path", ["traps:make", "traps:make.it", ["traps:make"], "no.traps:make"])
def test_code_that_job_json_names_is_not_run(tmp_path, monkeypatch, path):
    (tmp_path / "traps.py").write_text("raise SystemExit('it ran')")
    monkeypatch.syspath_prepend(str(tmp_path))
    maps = mg.open_maps(write_job(tmp_path / "job", [make_row(0)]))
    maps.job["configuration"]["source"]["path"] = path
    page = Page(write_report(maps))
    assert not isinstance(path, str) or path in page.words
    assert page.entries[0]["alone"]
    assert "traps" not in sys.modules


@pytest.mark.parametrize("rows", [0, 2])
def test_a_job_under_way_has_a_page(tmp_path, rows):
    page = report(tmp_path, [make_row(row) for row in range(rows)], total=5)
    assert f"not finished: {rows} of 5" in page.words
    assert len(page.entries) == rows


def test_a_network_with_one_output_and_a_method_without_errors_have_a_page(tmp_path):
    page = report(tmp_path, [make_row(0, target=None, label=None, relative_error=None, gradients=None)])
    assert next(row for row in page.rows if row[0] == "the only output")[1:] == ["1", "1.5", "-"]


def test_at_least_one_image_is_shown(tmp_path):
    maps = mg.open_maps(write_job(tmp_path, [make_row(0)]))
    with pytest.raises(ValueError, match="images must be at least 1"):
        write_report(maps, images=0)


@pytest.mark.skipif(not shutil.which("chromium"), reason="needs Chromium")
def test_a_browser_shows_one_page_of_tiles(tmp_path):
    rows = [make_row(row, key=f"{row} {NASTY}", label="<i>cat</i>", relative_error=row / 70) for row in range(70)]
    report(tmp_path, rows)
    browser = ["chromium", "--headless", "--no-sandbox", "--disable-gpu", f"--user-data-dir={tmp_path / 'profile'}"]
    found = subprocess.run(
        [*browser, "--dump-dom", (tmp_path / "report.html").as_uri()],
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    ).stdout
    sheet = found.partition('id="maps"')[2].partition("</ul>")[0]
    assert sheet.count("<li") == sheet.count("<img") == 60
    assert found.partition("data-entries")[2].partition("</ul>")[0].count("<li") == 8
    assert "70 of 70 images; shown are 1 to 60" in found
    assert "known to within 1.43 %" in sheet
    assert "<script" not in sheet
    assert "<i>" not in sheet
