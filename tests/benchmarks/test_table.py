"""The table of what was measured now beside what is stored."""

import json
import sys

import pytest

import benchmarks.__main__ as table
from benchmarks import record


def test_measures_are_found_by_their_place():
    rows = [{"method": "cam", "images": 2, "seconds": [3.0, 2.0], "peak_bytes": 2**31, "gradients": 5}]
    found = {"date": "today", "table": rows, "all_seconds": {"cam": [3.0]}, "rate": {"a": {"gradients_per_second": 4}}}
    assert dict(table.find_measures(found)) == {
        "cam 2 seconds": 2.0,
        "cam 2 peak_bytes": 2.0,
        "rate a gradients_per_second": 4,
    }


def test_figures_stand_beside_the_stored_ones(tmp_path, monkeypatch, capsys):
    facts = {"hardware": "an abacus", "table": [{"rows": 0, "peak_bytes": 2**32}, {"rows": 1, "peak_bytes": 1}]}
    (tmp_path / "memory_cpu.json").write_text(json.dumps(facts))
    monkeypatch.setattr(record, "RESULTS", tmp_path)
    monkeypatch.setitem(table.PARTS, "memory", "--rows 0 --budget 16")
    monkeypatch.setattr(sys, "argv", ["", "--data", "none", "--parts", "memory", "--out", str(tmp_path / "now")])
    table.main()
    head, machine, row, *more = capsys.readouterr().out.splitlines()
    now = json.loads((tmp_path / "now" / "memory_cpu.json").read_text())["table"][0]["peak_bytes"] / 2**30
    assert ("stored" in head, "an abacus" in machine, more) == (True, True, [])
    assert [float(word) for word in row.split()[-3:]] == pytest.approx([4, now, now / 4], abs=0.006)
