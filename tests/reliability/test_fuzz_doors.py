"""Some cases of the fuzzers of the front doors: command lines, and requests to the page."""

import pytest

from reliability.fuzz.runner import run_cases

pytest.importorskip("resource", reason="the fuzzers measure memory as Unix does")
pytest.importorskip("uvicorn", reason="needs moreaugrad[serve]")
COUNT = 40


@pytest.mark.slow  # a process that loads everything before its first case
@pytest.mark.parametrize("target", ["commands", "requests"])
def test_odd_words_and_odd_requests_are_answered_or_refused(target, monkeypatch, request):
    monkeypatch.setenv("PYTHONPATH", str(request.config.rootpath))
    found = dict(run_cases(target, 1, 0, COUNT))
    assert list(found) == list(range(COUNT))
    assert {number: failure for number, failure in found.items() if failure is not None} == {}
