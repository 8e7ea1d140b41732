"""Folders of jobs that were damaged or edited: named, or made again; and nothing that they name is run."""

import json

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from bulk_folder import make_row, write_job

import moreaugrad as mg
from moreaugrad.bulk_jobs.folder import split_parts
from moreaugrad.bulk_jobs.parts import unpack_map
from moreaugrad.bulk_jobs.report import write_report
from moreaugrad.identity import read_view

ROWS = [make_row(row) for row in range(6)]


def edit(folder, change):
    about = json.loads((folder / "job.json").read_text())
    about = change(about) or about
    (folder / "job.json").write_text(json.dumps(about))
    return folder


JOBS = {
    "more images than memory": lambda job: job["configuration"]["source"].update(images=10**15),
    "no images": lambda job: job["configuration"]["source"].update(images=0),
    "half an image": lambda job: job["configuration"]["source"].update(images=1.5),
    "parts of nothing": lambda job: job["configuration"].update(part_size=0),
    "no options": lambda job: job["configuration"].pop("options"),
    "a model that is no name": lambda job: job["configuration"].update(model=[1]),
    "a view that is no text": lambda job: job["configuration"].update(view=3),
    "runs that are none": lambda job: job.update(runs={"a": 1}),
    "a run without versions": lambda job: job["runs"][0].pop("versions"),
    "an endless version": lambda job: job.update(version=float("inf")),
}


@pytest.mark.parametrize("change", JOBS.values(), ids=JOBS.keys())
def test_what_job_json_must_say(tmp_path, change):
    folder = edit(write_job(tmp_path / "job", ROWS), change)
    with pytest.raises(ValueError, match="damaged"):
        mg.open_maps(folder)
    (folder / "job.json").write_text("[" * 10**5)
    with pytest.raises(ValueError, match="nested too deeply"):
        mg.open_maps(folder)


def test_a_job_has_no_more_parts_than_their_names_have_room_for():
    assert len(split_parts(10**6, 1)) == 10**6
    with pytest.raises(ValueError, match="raise part_size"):
        split_parts(10**6 + 1, 1)


def spoil(path, how):
    table = pq.read_table(path)
    if how == "cut":
        path.write_bytes(path.read_bytes()[:-9])
    elif how == "another type":
        place = table.column_names.index("score")
        pq.write_table(table.set_column(place, "score", pa.array(["x"] * len(table))), path)
    elif how == "too many rows":
        pq.write_table(pa.concat_tables([table, table]), path)
    elif how == "another file":
        path.write_bytes(b"junk")


@pytest.mark.parametrize("how", ["cut", "another type", "too many rows", "another file"])
def test_a_damaged_part_counts_as_not_done(tmp_path, how):
    folder = write_job(tmp_path / "job", ROWS)
    spoil(folder / "part-000000.parquet", how)
    maps = mg.open_maps(folder)
    with pytest.warns(UserWarning, match=r"1 part damaged or changed \(part-000000"):
        assert [row.key for row in maps] == [row.key for row in ROWS[4:]]
    assert (len(maps), maps.finished) == (2, False)


@pytest.mark.parametrize(
    ("column", "value", "words"),
    [
        ("shape", [2**30, 2**30], "entries"),
        ("shape", [-3, 8, 8], "entries"),
        ("shape", None, "entries"),
        ("shape", [3, 8, 9], "a value for each place"),
        ("scale", float("nan"), "finite"),
    ],
)
def test_a_map_that_is_none_is_refused_when_it_is_read(tmp_path, column, value, words):
    folder = write_job(tmp_path / "job", ROWS)
    path = folder / "part-000000.parquet"
    table = pq.read_table(path)
    values = table.column(column).to_pylist()
    values[1] = value
    place = table.column_names.index(column)
    pq.write_table(
        table.set_column(place, table.schema.field(place), pa.array(values, table.schema.types[place])), path
    )
    maps = mg.open_maps(folder)
    assert maps[5].map.shape == (3, 8, 8)
    with pytest.raises(ValueError, match=words):
        maps[1]
    with pytest.raises(ValueError, match=words):
        write_report(maps)


def test_places_of_a_map_lie_in_it():
    right = unpack_map([2, 2], np.array([3]), np.array([1.5]), None)
    assert right.tolist() == [[0, 0], [0, 1.5]]
    for index in ([4], [-1]):
        with pytest.raises(ValueError, match="lie in its shape"):
            unpack_map([2, 2], np.array(index), np.array([1.5]), None)


@pytest.mark.parametrize(
    "change",
    [
        ("(8, 8)", "(80000, 80000)"),
        ("(8, 8)", "8"),
        ("mean", "men"),
        ("0.5", "nan"),
        ("(8, 8)", "("),
        ("std=(1.0", "std=(0.0"),
    ],
)
def test_a_view_that_is_none_is_named(tmp_path, change):
    folder = write_job(tmp_path / "job", ROWS)
    good = json.loads((folder / "job.json").read_text())["configuration"]["view"]
    assert read_view(good) is not None
    assert read_view("0123456789abcdef") is None
    with pytest.raises(ValueError, match="a view must be as jobs describe it"):
        read_view(good.replace(*change))
