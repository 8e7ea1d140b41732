"""Calls with odd tensors and odd options answer soundly, or refuse in words of the package."""

import pytest

from reliability.fuzz import runner
from reliability.fuzz.targets import TARGETS

pytest.importorskip("resource", reason="the fuzzers measure memory as Unix does")


@pytest.mark.parametrize("target", ["options", "tensors"])
def test_no_case_fails(target, monkeypatch, request):
    assert target in TARGETS
    monkeypatch.setenv("PYTHONPATH", str(request.config.rootpath))
    found = dict(runner.run_cases(target, 1, 0, 40))
    assert list(found) == list(range(40))
    assert [failure for failure in found.values() if failure is not None] == []
