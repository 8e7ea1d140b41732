"""Some dozen cases of each target that reads files have no fault; the command runs thousands."""

import pytest

from reliability.fuzz import runner

pytest.importorskip("resource", reason="the fuzzers measure memory as Unix does")


@pytest.mark.parametrize("target", ["images", "checkpoints", "saved"])
def test_damaged_and_hostile_files_are_read_or_refused(monkeypatch, request, target):
    root = request.config.rootpath
    monkeypatch.setenv("PYTHONPATH", f"{root / 'src'}:{root}")
    found = dict(runner.run_cases(target, 1, 0, 40))
    assert list(found) == list(range(40))
    assert [failure for failure in found.values() if failure is not None] == []
