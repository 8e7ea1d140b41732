"""What is no source is refused in one sentence that says what to do."""

import doctest
import sys
from importlib import import_module

import pytest
import torch
from image_sources import (
    csv_manifest,
    encoded,
    folder,
    hugging_face,
    picture,
    saved,
    write_csv,
    write_parquet,
    write_shards,
)

from moreaugrad.bulk_jobs.sources import open_source


def splits(place):
    import datasets

    datasets.DatasetDict(train=hugging_face(), val=hugging_face()).save_to_disk(place / "two")
    return place / "two"


def stream(_place):
    return hugging_face().to_iterable_dataset()


class Endless(torch.utils.data.IterableDataset):
    def __iter__(self):
        yield picture(0)

    def __len__(self):
        return 3


def junk(place, name, content=b"junk"):
    (place / name).write_bytes(content)
    return place / name


def without_images(place):
    hugging_face().remove_columns("image").save_to_disk(place / "plain")
    return place / "plain"


def damaged(place):
    path = saved(place)
    (path / "state.json").write_text("{}")
    return path


REFUSED = {
    "a URL": (lambda _: "https://example.org/a.tar", "nothing is downloaded"),
    "an empty name": (lambda _: "", "empty name"),
    "an empty list": (lambda _: [], "empty list"),
    "standard input": (lambda _: "-", "standard input"),
    "no object with items": (lambda _: 3, "__getitem__"),
    "a mapping": (lambda _: {"a": picture(0)}, "__getitem__"),
    "a stream": (stream, "save a stream"),
    "a stream with a length": (lambda _: Endless(), "save a stream"),
    "an object without items": (lambda _: torch.utils.data.TensorDataset(torch.zeros(0, 3)), "at least one"),
    "an empty folder": (lambda place: place, "without any"),
    "a file that is not there": (lambda place: place / "none.png", "nothing there"),
    "one of the files is not there": (lambda place: [folder(place), place / "none.png"], "nothing there"),
    "a pattern without matches": (lambda place: place / "*.png", "nothing there"),
    "splits": (splits, r"\['train', 'val'\]"),
    "splits as an object": (lambda _: __import__("datasets").DatasetDict(a=hugging_face()), r"\['a'\]"),
    "a dataset without images": (without_images, r"column of images.*\['label'\]"),
    "a damaged dataset": (damaged, "save it again"),
    "no manifest": (lambda place: place / "m.csv", "nothing there"),
    "several manifests": (lambda place: place / "*.parquet", "one file"),
    "a manifest among files": (lambda place: [csv_manifest(place), folder(place)], "name it alone"),
    "a manifest without rows": (lambda place: junk(place, "m.csv", b"path,key\n"), "at least one"),
    "an empty manifest": (lambda place: junk(place, "m.csv", b""), "column path"),
    "a manifest that is no text": (lambda place: junk(place, "m.csv", b"path\n\xff\xfe"), "UTF-8"),
    "bytes in CSV": (lambda place: write_csv(place / "m.csv", {"bytes": [1], "x": [2]}), r"path.*\['bytes', 'x'\]"),
    "no columns": (lambda place: write_parquet(place / "m.parquet", {"file": ["a"]}), r"path and bytes.*\['file'\]"),
    "both": (lambda place: write_parquet(place / "m.parquet", {"path": ["a"], "bytes": [b"a"]}), "exactly one"),
    "no Parquet": (lambda place: junk(place, "m.parquet"), "Parquet"),
    "a row without a path": (lambda place: write_csv(place / "m.csv", {"key": "ab", "path": ["x", ""]}), "row 2"),
    "only missing files": (lambda place: write_csv(place / "m.csv", {"path": ["a.png", "b.png"]}), "relative"),
    "a URL in a manifest": (lambda place: write_csv(place / "m.csv", {"path": ["s3://a/b.png"]}), "downloaded"),
    "odd classes": (
        lambda place: write_parquet(place / "m.parquet", {"bytes": [b"a"], "target": [0.5]}),
        "column target",
    ),
    "a packed shard": (lambda place: place / "a.tar.gz", "uncompressed"),
    "no tar file": (lambda place: junk(place, "a.tar"), "uncompressed tar"),
    "a truncated shard": (
        lambda place: junk(place, "a.tar", (write_shards(place) / "train-000.tar").read_bytes()[:2500]),
        "fetch it again",
    ),
    "a missing shard": (lambda place: str(write_shards(place) / "train-{000..002}.tar"), "1 missing"),
    "no shard": (lambda place: place / "*.tar", "missing|without any"),
    "shards and files": (lambda place: [write_shards(place) / "train-000.tar", folder(place)], "name it alone"),
    "an npz of something else": (lambda place: junk(place, "a.npz"), "npz"),
    "a module that is not there": (lambda _: "no_module:make", "No module named"),
    "a factory that is not there": (lambda _: "image_sources:nothing", "AttributeError"),
    "a factory that fails": (lambda _: "image_sources:picture", "TypeError"),
    "a factory of something else": (lambda _: "image_sources:file_names", "nothing there"),
}


@pytest.mark.parametrize(("make", "words"), REFUSED.values(), ids=REFUSED.keys())
def test_what_is_no_source_is_refused_in_one_sentence(tmp_path, make, words):
    given = make(tmp_path)
    with pytest.raises((ValueError, TypeError), match=words) as caught:
        open_source(given)
    assert len(str(caught.value).splitlines()) == 1


def test_without_datasets_a_sentence_says_what_to_install(tmp_path, monkeypatch):
    given = saved(tmp_path)
    monkeypatch.setitem(sys.modules, "datasets", None)
    with pytest.raises(ValueError, match="pip install datasets"):
        open_source(given)


def test_examples_of_docstrings_run(tmp_path):
    (tmp_path / "photo.jpg").write_bytes(encoded(0))
    for name in ("", ".listing", ".shards"):
        module = import_module(f"moreaugrad.bulk_jobs.sources{name}")
        result = doctest.testmod(module, extraglobs={"photo": tmp_path / "photo.jpg"})
        assert result.attempted
        assert not result.failed
