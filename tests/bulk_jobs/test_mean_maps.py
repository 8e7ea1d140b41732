"""Reading many rows, and the mean map of a class: the same rows as one by one, and the mean as it is defined."""

import numpy as np
import pyarrow.parquet as pq
import pytest
import torch
from bulk_folder import make_row, spread_map, write_job

import moreaugrad as mg
from moreaugrad.bulk_jobs import parts


@pytest.fixture
def maps(tmp_path):
    """Two classes, an error and a map of zeros, in parts of several groups."""
    rows = [make_row(row, target=row % 2, map=spread_map(row, (2, 3, 4))) for row in range(150)]
    rows[3] = make_row(3, error="it is broken")
    rows[5] = make_row(5, target=1, map=np.zeros((2, 3, 4), np.float32))
    return mg.open_maps(write_job(tmp_path, rows, part_size=120))


@pytest.mark.parametrize("target", [0, 1])
def test_the_mean_map_is_the_mean_of_absolute_maps_of_norm_one(maps, target):
    found = [torch.from_numpy(row.map).double() for row in maps if row.target == target and row.map.any()]
    stack = torch.stack(found).abs()
    expected = (stack / torch.linalg.vector_norm(stack, dim=(1, 2, 3), keepdim=True)).mean(0)
    torch.testing.assert_close(maps.mean_map(target).double(), expected, rtol=1e-5, atol=1e-7)


def test_a_class_that_was_not_explained_has_no_mean_map(maps):
    with pytest.raises(ValueError, match="class that was explained, got 7"):
        maps.mean_map(7)


def test_maps_of_several_shapes_have_no_mean(tmp_path):
    rows = [make_row(0), make_row(1, map=spread_map(1, (3, 4, 4)))]
    with pytest.raises(ValueError, match="must have one shape"):
        mg.open_maps(write_job(tmp_path, rows)).mean_map(0)


def test_rows_read_together_are_those_read_alone_and_no_group_is_read_twice(maps, monkeypatch):
    places = [0, 3, 49, 50, 119, 120, 149]
    alone = [maps[place] for place in places]
    read = []
    original = pq.ParquetFile.read_row_group
    monkeypatch.setattr(
        pq.ParquetFile,
        "read_row_group",
        lambda self, group, *rest: read.append((self.metadata.num_rows, group)) or original(self, group, *rest),
    )
    together = list(maps.read(places))
    assert [row.key for row in together] == [row.key for row in alone] == [f"image {place}.png" for place in places]
    for one, other in zip(together, alone, strict=True):
        assert (one.map is None) == (other.map is None)
        assert one.map is None or (one.map == other.map).all()
    groups = {(120 if place < 120 else 30, place % 120 // parts.GROUP) for place in places}
    assert sorted(read) == sorted(groups)


def test_iteration_gives_every_row_once(maps):
    assert [row.row for row in maps] == list(range(150))
