"""Sources of bulk runs: every kind gives the pictures that were written, in this process and in others."""

import json
import pickle
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from image_sources import (
    FACTORY,
    LABELS,
    ROWS,
    Pairs,
    braces,
    csv_manifest,
    dicts,
    encoded,
    file_names,
    folder,
    hugging_face,
    parquet_bytes,
    parquet_manifest,
    picture,
    saved,
    write_csv,
    write_folder,
    write_npz,
    write_parquet,
    write_shards,
    write_tar,
)
from PIL import Image

from moreaugrad.bulk_jobs.sources import BulkSource, Item, open_source
from moreaugrad.bulk_jobs.sources.listing import as_class
from moreaugrad.data.images import read_image

NUMBERS = list(map(str, range(ROWS)))
SHARD_KEYS = [f"train-00{number // 3}/000{number}" for number in range(ROWS)]


SOURCES = {  # how it is made; its keys; whether it knows the true classes
    "folder": (folder, sorted(file_names()), False),
    "pattern": (lambda place: f"{write_folder(place)}/class[01]/*.png", sorted(file_names())[:4], False),
    "files": (lambda place: [write_folder(place) / name for name in file_names()], file_names(), False),
    "csv": (csv_manifest, list("abcde"), True),
    "parquet": (parquet_manifest, file_names(), True),
    "parquet bytes": (parquet_bytes, NUMBERS, True),
    "saved dataset": (saved, list("vwxyz"), True),
    "dataset": (lambda _: hugging_face(filename=list("aabcd")), NUMBERS, True),  # names that are not unique
    "formatted dataset": (
        lambda _: hugging_face(image_id=[3, 1, 4, 15, 9]).with_format("torch"),
        ["3", "1", "4", "15", "9"],
        True,
    ),
    "folder of shards": (write_shards, SHARD_KEYS, True),
    "braces": (braces, SHARD_KEYS, True),
    "pattern of shards": (lambda place: str(write_shards(place) / "*.tar"), SHARD_KEYS, True),
    "shard": (lambda place: write_shards(place) / "train-000.tar", SHARD_KEYS[:3], True),
    "npz": (lambda place: write_npz(place / "c.npz"), NUMBERS, True),
    "pairs": (lambda _: Pairs(), NUMBERS, True),
    "dicts": (dicts, NUMBERS, True),
    "images": (lambda _: list(map(picture, range(ROWS))), NUMBERS, False),
    "factory": (lambda _: FACTORY, NUMBERS, True),
}


@pytest.fixture(params=SOURCES)
def made(request, tmp_path):
    """A source, its keys, and whether it knows classes."""
    make, keys, labelled = SOURCES[request.param]
    return make(tmp_path), keys, labelled


def numbers_of(keys):
    """Which picture each key of the examples is."""
    if "/" in keys[0]:
        return [int(Path(key).stem) for key in keys]
    return list(range(len(keys)))


def check_pixels(source, labelled=False):
    for row, number in enumerate(numbers_of(source.keys)):
        item = source.read(row)
        assert isinstance(item, Item)
        np.testing.assert_array_equal(np.asarray(read_image(item.image)), np.asarray(picture(number)))
        assert item.truth == (LABELS[number] if labelled else None)


def test_a_source_gives_what_was_written_also_in_other_processes_and_another_order(made):
    given, keys, labelled = made
    source = open_source(given)
    assert isinstance(source, BulkSource)
    assert list(source.keys) == keys
    packed = pickle.dumps(source)
    check_pixels(source, labelled)
    for other in (pickle.loads(packed), pickle.loads(pickle.dumps(source))):  # before and after reading
        assert list(other.keys) == keys
        check_pixels(other, labelled)
        first, last = (np.asarray(read_image(other.read(row).image)) for row in (0, len(keys) - 1))
        assert (first != last).any()
        np.testing.assert_array_equal(np.asarray(read_image(other.read(0).image)), first)


def test_a_source_describes_itself_in_json_and_the_same_each_time(made):
    given, keys, _ = made
    first, second = open_source(given).describe(), open_source(given).describe()
    assert first == second == json.loads(json.dumps(first))
    assert {"kind", "path", "images", "digest"} <= set(first)
    assert first["images"] == len(keys)
    assert first["path"] is None or first["kind"] == "factory" or Path(first["path"]).exists()
    assert open_source(open_source(given)).describe() == first


def test_what_was_opened_stays_in_its_process(tmp_path):
    source = open_source(parquet_bytes(tmp_path))
    before = len(pickle.dumps(source))
    source.read(0)
    assert len(pickle.dumps(source)) == before


def test_opening_reads_no_library_that_is_not_needed(tmp_path):
    write_folder(tmp_path)
    code = (
        "import sys; from moreaugrad.bulk_jobs.sources import open_source; open_source(sys.argv[1]); "
        "print([name for name in ('torch', 'numpy', 'PIL', 'pyarrow', 'datasets') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code, tmp_path], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_targets_of_a_manifest_are_numbers_or_names(tmp_path):
    source = open_source(csv_manifest(tmp_path))
    assert [source.read(row).target for row in range(ROWS)] == [7, None, "tabby", 7, 9]
    columns = {"bytes": [encoded(0)] * 3, "target": [1.0, None, float("nan")], "truth": ["cat", "", None]}
    source = open_source(write_parquet(tmp_path / "n.parquet", columns))
    assert [(source.read(row).target, source.read(row).truth) for row in range(3)] == [
        (1, "cat"),
        (None, None),
        (None, None),
    ]
    assert open_source(dicts(tmp_path)).read(3).target == 3


@given(st.one_of(st.integers(), st.integers(0, 2**40).map(np.int64), st.integers(0, 1000).map(torch.tensor)))
def test_a_class_is_the_same_number_however_it_is_written(value):
    number = int(value)
    assert as_class(value) == as_class(str(number)) == as_class(f"{number}.0") == number
    assert type(as_class(value)) is int


@pytest.mark.parametrize("value", [0.5, [1], float("inf"), b"1"])
def test_what_is_no_class_is_refused(value):
    with pytest.raises(ValueError, match="class must be"):
        as_class(value)


def test_an_image_that_cannot_be_read_fails_alone(tmp_path):
    good, cut = encoded(0), encoded(1)[:99]
    (tmp_path / "good.png").write_bytes(good)
    given = [
        write_csv(tmp_path / "m.csv", {"path": ["gone.png", "good.png"]}),
        write_parquet(tmp_path / "m.parquet", {"bytes": [None, good]}),
        write_parquet(tmp_path / "n.parquet", {"bytes": [b"junk", good]}),
        write_tar(tmp_path / "s.tar", [("a.png", cut), ("b.png", good)]),
        [{"img": torch.zeros(3, 4, 4)}, {"img": picture(0)}],
    ]
    for each in given:
        source = open_source(each)
        with pytest.raises((ValueError, TypeError)):
            read_image(source.read(0).image)
        np.testing.assert_array_equal(np.asarray(read_image(source.read(1).image)), np.asarray(picture(0)))


def test_an_encoded_image_must_not_be_huge(tmp_path):
    Image.new("1", (10_001, 10_000)).save(tmp_path / "huge.png")
    content = (tmp_path / "huge.png").read_bytes()
    source = open_source(write_parquet(tmp_path / "m.parquet", {"bytes": [content]}))
    with pytest.raises(ValueError, match="megapixels"):
        source.read(0)


@pytest.mark.parametrize(
    ("item", "words"),
    [
        (torch.zeros(3, 8, 8), "ToTensor"),
        ((torch.zeros(3, 8, 8), 1), "ToTensor"),
        ({"pixel_values": torch.zeros(3, 8, 8)}, "before the processor"),
        ({"photo": picture(0)}, r"'image' or 'img', got \['photo'\]"),
    ],
)
def test_items_that_are_no_pictures_are_refused_with_a_way_out(item, words):
    source = open_source([item])
    with pytest.raises((TypeError, ValueError), match=words):
        source.read(0)


def test_datasets_of_torchvision(tmp_path):
    from torchvision.datasets import FakeData, ImageFolder
    from torchvision.transforms import ToTensor

    place = write_folder(tmp_path / "photos")
    source = open_source(ImageFolder(place))
    numbers = [int(Path(name).stem) for name in sorted(file_names())]
    assert [source.read(row).truth for row in range(ROWS)] == [LABELS[number] for number in numbers]
    np.testing.assert_array_equal(np.asarray(source.read(1).image), np.asarray(picture(numbers[1])))
    fake = FakeData(3, (3, 8, 8), 4)
    source = pickle.loads(pickle.dumps(open_source(fake)))
    assert (source.read(2).image, source.read(2).truth) == (fake[2][0], int(fake[2][1]))
    with pytest.raises(TypeError, match="ToTensor"):
        open_source(FakeData(3, (3, 8, 8), 4, transform=ToTensor())).read(0)


def test_labels_that_are_no_classes_are_left_out():
    assert open_source([(picture(0), {"boxes": []}), (picture(0), [1, 2])]).read(1).truth is None


def test_a_class_that_hugging_face_does_not_know_is_none():
    import datasets

    hidden = hugging_face().map(lambda row: {"label": -1}, keep_in_memory=True)
    assert open_source(hidden).read(0).truth is None
    renamed = hugging_face().rename_columns({"image": "scan", "label": "kind"})
    assert open_source(renamed).read(4).truth == 2
    with pytest.raises(ValueError, match="cast_column"):
        open_source(datasets.Dataset.from_dict({"x": [1]}))
