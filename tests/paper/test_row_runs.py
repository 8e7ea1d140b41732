"""Rows that are measured block by block: cut anywhere, resumed, restarted, refused; data sets in runs of their own."""

import json
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest

from paper.data import records
from paper.figures import row_runs
from paper.settings import Settings

COLUMNS = ("dataset", "block", "method", "image", "key", "value")
COUNTS = {"cifar10": 5, "tiny_imagenet": 3, "imagenet": 1}
METHODS = ("a", "b")
ROWS, SETTINGS = "made_up_rows.csv", "made_up.json"


@pytest.fixture(autouse=True)
def _no_networks(monkeypatch):
    class Images(SimpleNamespace):
        def __len__(self):
            return len(self.keys)

    def sample(name, settings, count):
        return Images(name=name, keys=[f"{name}, {place}" for place in range(count)])

    monkeypatch.setattr(row_runs, "sample", sample)


def asked(out, **options):
    given = {"quick": True, "device": "cpu", "datasets": ("cifar10", "tiny_imagenet")} | options
    return Settings(Path("data"), out, **given)


def run(settings, budget=16, measured=None, fail_at=None):
    """Rows of a made-up figure in blocks of two; `measured` collects the cells that are."""
    calls = [] if measured is None else measured

    def measure(of, block, method):
        calls.append((of.name, block.start, method))
        if len(calls) == fail_at:
            raise KeyboardInterrupt
        columns = {"image": range(block.start, block.stop), "key": of.keys[block]}
        columns["value"] = [place / 3 for place in columns["image"]]
        return row_runs.make_lines({"dataset": of.name, "block": block.start, "method": method}, columns)

    def describe(of):
        return {"images": len(of.keys), "budget": budget, "seeds": (0, 1)}

    file = row_runs.RowFile(settings.out, "made_up", COLUMNS)
    return row_runs.measure_rows(file, settings, COUNTS, 2, METHODS, describe, measure)


def read(folder, name=ROWS):
    return (folder / name).read_bytes()


@pytest.fixture
def whole(tmp_path):
    assert run(asked(tmp_path / "whole"))
    return tmp_path / "whole"


def test_a_run_leaves_a_row_per_image_and_method_and_a_description(whole):
    rows = records.read(whole / ROWS)
    assert len(rows) == 2 * (5 + 3)
    assert [row["key"] for row in rows if (row["dataset"], row["method"]) == ("cifar10", "b")] == [
        f"cifar10, {place}" for place in range(5)
    ]
    assert rows[1]["value"] == "0.333333"
    found = json.loads(read(whole, SETTINGS))
    assert {
        name: (each["images"], each["budget"], each["seeds"], len(each["runs"])) for name, each in found.items()
    } == {
        "cifar10": (5, 16, [0, 1], 1),
        "tiny_imagenet": (3, 16, [0, 1], 1),
    }
    command = found["cifar10"]["runs"][0]["command"]
    assert command.startswith("python -m paper --figure made_up --data data --quick")
    assert str(whole) not in read(whole, SETTINGS).decode()  # nothing of this machine
    assert {path.name for path in whole.iterdir()} == {ROWS, SETTINGS}


@pytest.mark.parametrize(
    ("kept", "torn"),
    [(0, b""), (1, b"cifar10,0"), (4, b'cifar10,0,b,1,"cif'), (12, b"cifar10,0,mor"), (6, b'tiny"'), (16, b"x")],
)
def test_a_run_that_is_killed_anywhere_ends_with_the_same_rows(whole, tmp_path, kept, torn):
    lines = read(whole).splitlines(keepends=True)
    (tmp_path / ROWS).write_bytes(b"".join(lines[:kept]) + torn)  # in a block, a line, a word
    assert run(asked(tmp_path))
    assert read(tmp_path) == read(whole)


def test_a_run_that_is_out_of_time_measures_one_block(whole, tmp_path):
    late = asked(tmp_path, minutes=1e-9)
    for done in range(1, 2 * (3 + 2)):
        assert run(late) is False
        rows = records.read(tmp_path / ROWS)
        assert len({(row["dataset"], row["block"], row["method"]) for row in rows}) == done
    assert run(late)
    assert read(tmp_path) == read(whole)
    assert run(late)  # nothing is left to do


def test_a_restart_measures_again_and_leaves_other_data_sets_alone(whole):
    before, measured = read(whole), []
    assert run(asked(whole), measured=measured)
    assert not measured
    assert run(asked(whole, restart=True, datasets=("tiny_imagenet",)), budget=24, measured=measured)
    assert {cell[0] for cell in measured} == {"tiny_imagenet"}
    assert len(measured) == 2 * 2
    assert read(whole) == before
    found = json.loads(read(whole, SETTINGS))
    assert {name: (each["budget"], len(each["runs"])) for name, each in found.items()} == {
        "cifar10": (16, 2),
        "tiny_imagenet": (24, 1),  # the runs of the old rows went with them
    }


def test_other_settings_are_refused_and_nothing_is_changed(whole):
    before = read(whole), read(whole, SETTINGS)
    with pytest.raises(ValueError, match=r"budget = 24 where .* has 16; .*--out.*--restart"):
        run(asked(whole, datasets=("imagenet", "cifar10")), budget=24)
    assert (read(whole), read(whole, SETTINGS)) == before


def test_rows_of_something_else_are_refused_but_may_be_restarted(whole):
    (whole / ROWS).write_text("dataset,rho\ncifar10,0.1\n")
    with pytest.raises(ValueError, match=r"must have the columns .*--restart"):
        run(asked(whole))
    assert run(asked(whole, restart=True))  # no table of ours is left to be kept
    assert len(records.read(whole / ROWS)) == 2 * (5 + 3)


def test_data_sets_may_come_in_runs_of_their_own(whole, tmp_path):
    for name in ("tiny_imagenet", "cifar10"):
        assert run(replace(asked(tmp_path), datasets=(name,)))
    one, other = (records.read(folder / ROWS) for folder in (whole, tmp_path))
    assert sorted(map(str, one)) == sorted(map(str, other))
    assert set(json.loads(read(tmp_path, SETTINGS))) == {"tiny_imagenet", "cifar10"}
