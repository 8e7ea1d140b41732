"""Labelled images: tables of photos, and images that do not fit together."""

import csv
from pathlib import Path

import numpy as np
import pytest
from training_data import make_tiny_imagenet, noisy

import moreaugrad as mg


@pytest.fixture
def whole(tmp_path) -> Path:
    return make_tiny_imagenet(tmp_path / "tiny-imagenet-200", train=1)


ROWS = [
    ("b.jpg", "n02124075", 285, "Egyptian cat"),
    ("a.jpg", "n01443537", 1, "goldfish"),
    ("c.jpg", "n1", 285, "Egyptian cat"),
]


def photos(folder: Path, rows: list[tuple[object, ...]], header: str = "file,wnid,class_index,name") -> Path:
    for name in "abc":
        noisy(0, 0).save(folder / f"{name}.jpg")
    with (folder / "labels.csv").open("w", newline="", encoding="utf-8-sig") as file:
        file.write(header + "\n")
        csv.writer(file).writerows(rows)
    return folder


def test_photos(tmp_path):
    found = mg.read_photos(photos(tmp_path, ROWS))
    assert ([path.name for path in found.pictures], list(found.keys)) == (["b.jpg", "a.jpg", "c.jpg"], ["b", "a", "c"])
    assert found.labels.tolist() == [285, 1, 285]
    assert (len(found.classes), found.classes[285], found.classes[1], found.classes[7]) == (
        *(1000, "Egyptian cat", "goldfish", "7"),
    )
    assert found.boxes is None
    (tmp_path / "labels.csv").rename(tmp_path / "other.csv")
    assert mg.read_photos(str(tmp_path), tmp_path / "other.csv").labels.tolist() == [285, 1, 285]
    with pytest.raises(ValueError, match=r"labels.csv': nothing there"):
        mg.read_photos(tmp_path)
    with pytest.raises(ValueError, match="must lie in a folder"):
        mg.read_photos(tmp_path / "labels.csv")


@pytest.mark.parametrize(
    ("rows", "header", "words"),
    [
        ([], "file,wnid,class_index,name", "a row for each photo, got none"),
        (ROWS, "file,wnid,label,name", r"without \['class_index'\]: it has \['file', 'wnid', 'label', 'name'\]"),
        ([("z.jpg", "n1", 3, "x")], "file,wnid,class_index,name", r"1 missing \(z.jpg\)"),
        ([("a.jpg", "n1", 1000, "x")], "file,wnid,class_index,name", r"in 0..999, got '1000' in line 2"),
        ([("a.jpg", "n1", -1, "x")], "file,wnid,class_index,name", "got '-1'"),
        ([("a.jpg", "n1", 1.5, "x")], "file,wnid,class_index,name", "got '1.5'"),
        ([("a.jpg", "n1", "", "x")], "file,wnid,class_index,name", "must have a file and a class_index.* in line 2"),
        ([("a.jpg", "n1", "9" * 5000, "x")], "file,wnid,class_index,name", "got '999"),
        ([("a.jpg", "n1", 3, "x" * 200_000)], "file,wnid,class_index,name", "must be in CSV"),
        ([("a.jpg", "n1", 3, "x"), ("b.jpg", "n2", 3, "y")], "file,wnid,class_index,name", "one name, got 'x' and 'y'"),
    ],
    ids=["empty", "columns", "missing", "too large", "negative", "fraction", "hole", "endless", "long", "two names"],
)
def test_bad_tables(tmp_path, rows, header, words):
    with pytest.raises(ValueError, match=words):
        mg.read_photos(photos(tmp_path, rows, header))


def test_pictures_that_do_not_fit_together(whole):
    path = whole / "val/images/val_4.JPEG"
    path.write_bytes(path.read_bytes()[:300])
    found = mg.read_tiny_imagenet(whole, "val")
    with pytest.raises(ValueError, match=r"val_4.JPEG' must be an image file, got one that is truncated"):
        found.pixels()
    noisy(0, 0).resize((32, 48)).save(path)
    with pytest.raises(ValueError, match=r"size of the first, 64 x 64, got 32 x 48 in 'val_4'"):
        found.pixels()
    arrays = mg.LabelledImages([np.zeros((5, 4, 3), np.uint8)] * 2, np.zeros(2, np.int64), ["a", "b"], ["c"])
    assert arrays.pixels().shape == (2, 5, 4, 3)
    with pytest.raises(ValueError, match="got none"):
        mg.LabelledImages([], np.zeros(0, np.int64), [], ["c"]).pixels()
