"""What a part holds is what was put into it, for us and for other readers of Parquet."""

from itertools import pairwise

import duckdb
import numpy as np
import polars
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from moreaugrad.bulk_jobs import parts
from moreaugrad.bulk_jobs.parts import (
    BulkRow,
    count_errors,
    count_rows,
    make_table,
    pack_map,
    read_rows,
    unpack_map,
    write_part,
    write_tables,
)

numbers = st.floats(width=32, allow_nan=False, allow_infinity=False) | st.just(0.0)
maps = arrays.arrays(np.float32, st.tuples(*[st.integers(1, 4)] * 3), elements=numbers)


def make_rows(count: int, density: float = 0.1) -> list[BulkRow]:
    chance = np.random.default_rng(0)
    found = []
    for row in range(count):
        values = chance.standard_normal((3, 8, 8)).astype(np.float32)
        values[chance.random(values.shape) > density] = 0
        facts = {
            "score": float(row),
            "seed": 2**61 + row,
            "kept": float(np.float32((values != 0).mean())),
            "converged": row % 2 == 0,
        }
        found.append(BulkRow(key=f"photo {row}", row=row, target=row % 3, label="cat", map=values, **facts))
    return found


@given(maps)
def test_a_map_comes_back_bit_for_bit(values):
    assert np.array_equal(unpack_map(**pack_map(values)), values)


@given(maps)
def test_half_keeps_the_support_and_eleven_bits_of_what_is_not_tiny(values):
    found = unpack_map(**pack_map(values, half=True))
    most = np.abs(values).max()
    normal = np.abs(values) > 2.0**-13 * most
    assert np.array_equal(found != 0, values != 0)
    assert (np.abs(found - values)[normal] <= 2.0**-10.9 * np.abs(values)[normal]).all()
    assert (np.abs(found - values) <= 2.0**-10.9 * most).all()


def test_maps_with_few_entries_are_stored_as_those_and_dense_ones_whole():
    dense, sparse = np.ones((1, 2, 2), np.float32), np.zeros((1, 2, 2), np.float32)
    sparse[0, 1, 0] = -3
    assert pack_map(dense)["index"] is None
    assert (pack_map(sparse)["index"].tolist(), pack_map(sparse)["value"].tolist()) == ([2], [-3.0])
    assert pack_map(np.zeros((1, 2, 2), np.float32))["index"].tolist() == []


@pytest.mark.parametrize("half", [False, True])
def test_equal_rows_make_equal_files(tmp_path, half):
    for name in ("one", "two"):
        write_part(tmp_path / name, make_rows(7), half)
    assert (tmp_path / "one").read_bytes() == (tmp_path / "two").read_bytes()


@pytest.mark.parametrize("cuts", [(16, 32, 48, 64), (1, 2), (50,), (113,)])
def test_the_same_rows_in_several_tables_make_the_same_file(tmp_path, cuts):
    rows = [*make_rows(120), BulkRow(key="broken", row=120, error="cannot be read")]
    write_part(tmp_path / "a", rows)
    ends = [*pairwise([0, *cuts, len(rows)])]
    write_tables(tmp_path / "b", [make_table(rows[start:stop]) for start, stop in ends])
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()


def test_rows_come_back_whole_by_group_and_with_their_errors(tmp_path, monkeypatch):
    monkeypatch.setattr(parts, "GROUP", 3)
    rows = [*make_rows(7), BulkRow(key="bad", row=7, error="it is broken")]
    write_part(tmp_path / "part", rows)
    found = read_rows(tmp_path / "part")
    assert [vars(each) | {"map": None} for each in found] == [vars(each) | {"map": None} for each in rows]
    assert all(np.array_equal(a.map, b.map) for a, b in zip(found[:7], rows[:7], strict=True))
    assert [each.row for each in read_rows(tmp_path / "part", 1)] == [3, 4, 5]
    assert found[7].map is None
    assert read_rows(tmp_path / "part", maps=False)[0].map is None
    assert (count_rows(tmp_path / "part"), count_errors(tmp_path / "part")) == (8, 1)
    with pytest.raises(ValueError, match="it is broken"):
        found[7].explanation()


@pytest.mark.parametrize("half", [False, True])
def test_other_readers_read_the_same_numbers(tmp_path, half):
    rows, path = make_rows(60), tmp_path / "part-000000.parquet"
    write_part(path, rows, half)
    wanted = [pack_map(row.map, half) for row in rows]
    table = polars.read_parquet(path)
    assert table["index"].to_list() == [each["index"].tolist() for each in wanted]
    assert table["value"].to_list() == [each["value"].tolist() for each in wanted]
    found = duckdb.sql(
        f"select key, score, len(index), value, scale from '{path}' where target = 1 order by row"
    ).fetchall()
    those = [each for row, each in zip(rows, wanted, strict=True) if row.target == 1]
    assert [each[3] for each in found] == [each["value"].tolist() for each in those]
    assert [each[2] for each in found] == [len(each["index"]) for each in those]
    assert [each[1] for each in found] == [row.score for row in rows if row.target == 1]


def test_what_is_no_whole_part_does_not_count(tmp_path):
    write_part(tmp_path / "part", make_rows(5))
    whole = (tmp_path / "part").read_bytes()
    for name, content in {"cut": whole[:-9], "empty": b"", "other": b"PAR1 junk PAR1"}.items():
        (tmp_path / name).write_bytes(content)
        assert count_rows(tmp_path / name) is None
    assert count_rows(tmp_path / "missing") is None
    polars.DataFrame({"key": ["a"]}).write_parquet(tmp_path / "foreign")
    assert count_rows(tmp_path / "foreign") is None


def test_a_part_that_cannot_be_written_leaves_nothing(tmp_path, monkeypatch):
    def fail(*given, **options):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(parts.Path, "replace", fail)
    with pytest.raises(OSError, match="No space"):
        write_part(tmp_path / "part", make_rows(2))
    assert list(tmp_path.iterdir()) == []
