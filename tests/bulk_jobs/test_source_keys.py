"""What sources are compared by: digests and keys; and what a sample of a shard is."""

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from image_sources import (
    Pairs,
    encoded,
    file_names,
    folder,
    picture,
    saved,
    write_csv,
    write_folder,
    write_npz,
    write_parquet,
    write_shards,
    write_table_of_files,
    write_tar,
)

from moreaugrad.bulk_jobs.sources import open_source
from moreaugrad.bulk_jobs.sources.shards import expand_braces
from moreaugrad.data.images import read_image


@pytest.mark.parametrize("opened", ["folder", "manifest"])
def test_a_digest_follows_names_and_sizes_but_not_time_stamps(tmp_path, opened):
    place = write_folder(tmp_path / "photos")
    given = place if opened == "folder" else write_table_of_files(place)
    file = place / "class2" / "4.png"
    found = [open_source(given).describe()["digest"]]
    os.utime(file, (1, 1))
    assert open_source(given).describe()["digest"] == found[0]
    file.write_bytes(file.read_bytes() + b"longer")
    found.append(open_source(given).describe()["digest"])
    (place / "class2" / "5.png").write_bytes(encoded(5))
    if opened == "manifest":
        write_csv(given, {"path": [*file_names(), "class2/5.png"]})
    found.append(open_source(given).describe()["digest"])
    (place / "class2" / "5.png").rename(place / "class2" / "6.png")
    if opened == "manifest":
        write_csv(given, {"path": [*file_names(), "class2/6.png"]})
    found.append(open_source(given).describe()["digest"])
    if opened == "manifest":
        write_csv(given, {"path": [*file_names(), "class2/6.png"], "target": range(6)})
        found.append(open_source(given).describe()["digest"])
    assert len(set(found)) == len(found)


def test_a_moved_folder_has_the_same_digest(tmp_path):
    for make in (folder, write_shards, saved, csv_of_relative_paths):
        (tmp_path / "a").mkdir()
        given = make(tmp_path / "a")
        before = open_source(given).describe()["digest"]
        (tmp_path / "a").rename(tmp_path / make.__name__)
        after = open_source(tmp_path / make.__name__ / given.relative_to(tmp_path / "a")).describe()
        assert after["digest"] == before


def csv_of_relative_paths(place):
    return write_table_of_files(write_folder(place))


def shard_of(place, last):
    return write_tar(place / "s.tar", [("a.png", encoded(0)), ("b.png", last)])


CHANGES = {
    "shard": lambda place, last: shard_of(place, encoded(last)[: -last or None]),
    "bytes": lambda place, last: write_parquet(place / "m.parquet", {"bytes": [encoded(0), encoded(last)]}),
    "npz": lambda place, last: save_changed(place / "c.npz", last),
    "dataset": lambda place, last: one_picture(last),
    "object": lambda place, last: [picture(0)] * last,
}


def save_changed(path, last):
    write_npz(path)
    arrays = dict(np.load(path))
    arrays["x_test"][-1, 5, 5] = last  # one pixel in the middle
    np.savez(path, **arrays)
    return path


def one_picture(number):
    import datasets

    return datasets.Dataset.from_dict({"image": [picture(number)]}, features=datasets.Features(image=datasets.Image()))


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES.keys())
def test_a_digest_follows_other_sources(tmp_path, change):
    first, second, again = (open_source(change(tmp_path, last)).describe()["digest"] for last in (1, 2, 1))
    assert first == again != second


def test_the_address_of_an_object_is_not_in_its_digest():
    first, second = Pairs(), Pairs()
    assert repr(first) != repr(second)
    assert open_source(first).describe() == open_source(second).describe()


def test_keys_of_several_sources_are_relative_to_their_common_parent(tmp_path, monkeypatch):
    for name in ("a/x.png", "b/c/x.png", "b/x.png", "b/maps/x.png"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_bytes(encoded(0))
    monkeypatch.chdir(tmp_path / "a")
    given = [tmp_path / "a", "../b", "x.png", tmp_path / "a" / "x.png"]
    source = open_source(given, skip=tmp_path / "b" / "maps")
    assert list(source.keys) == ["a/x.png", "b/c/x.png", "b/x.png"]
    monkeypatch.chdir(tmp_path)  # as a worker may do
    assert read_image(source.read(1).image).size == (32, 32)
    assert list(open_source("../" + tmp_path.name + "/b").keys) == ["c/x.png", "maps/x.png", "x.png"]
    assert list(open_source("a/x.png").keys) == ["x.png"]
    assert list(open_source(["b/c/../x.png", "b/x.png"]).keys) == ["x.png"]


@pytest.mark.skipif(sys.platform != "linux", reason="other systems refuse such names")
def test_a_name_that_is_no_text_has_a_key_that_is(tmp_path):
    path = os.fsencode(tmp_path) + b"/caf\xe9.png"
    Path(os.fsdecode(path)).write_bytes(encoded(0))
    source = open_source(tmp_path)
    assert source.keys[0].encode() == b"caf\\udce9.png"
    check = read_image(source.read(0).image)
    assert check.size == (32, 32)


def test_shards_of_one_name_are_told_apart_by_their_folders(tmp_path):
    for split in ("train", "val"):
        write_tar(tmp_path / split / "000.tar", [("x/a.png", encoded(0))])
    given = [tmp_path / split / "000.tar" for split in ("train", "val")]
    assert list(open_source(given).keys) == ["train/000/x/a", "val/000/x/a"]


def test_keys_that_are_not_unique_are_refused_with_their_rows(tmp_path):
    write_folder(tmp_path)
    table = write_csv(tmp_path / "m.csv", {"path": file_names(), "key": list("abcbc")})
    with pytest.raises(ValueError, match="'b' for images 2 and 4"):
        open_source(table)
    double = write_tar(tmp_path / "s.tar", [("a.png", encoded(0)), ("a.png", encoded(1))])
    with pytest.raises(ValueError, match=r"'a.png' twice"):
        open_source(double)


def test_the_image_of_a_sample_is_the_one_without_a_second_name(tmp_path, caplog):
    members = [("d/a.mask.png", encoded(1)), ("d/a.jpg", encoded(0)), ("d/a.png", encoded(3))]
    members += [("d/a.cls", b"tabby\n"), ("d/b.json", b"{}")]
    members += [("d/c.v2.PNG", encoded(2)), ("d/.hidden.png", b""), ("e/a.txt", b"x"), ("README", b"")]
    source = open_source(write_tar(tmp_path / "s.tar", members))
    assert list(source.keys) == ["s/d/a", "s/d/c"]
    assert source.read(0).truth == "tabby"
    for row, number in enumerate((0, 2)):
        np.testing.assert_array_equal(np.asarray(read_image(source.read(row).image)), np.asarray(picture(number)))
    (record,) = caplog.records
    assert "2 samples" in record.getMessage()


@pytest.mark.parametrize(
    ("pattern", "names"),
    [
        ("a.tar", ["a.tar"]),
        ("{8..11}", ["8", "9", "10", "11"]),
        ("{008..010}.tar", ["008.tar", "009.tar", "010.tar"]),
        ("{a,b}-{0..1}", ["a-0", "a-1", "b-0", "b-1"]),
        ("{a}", ["{a}"]),
    ],
)
def test_braces_mean_what_they_mean_in_a_shell(pattern, names):
    assert expand_braces(pattern) == names
    shell = subprocess.run(["bash", "-c", f"echo {pattern}"], capture_output=True, text=True, check=True)
    assert shell.stdout.split() == names
