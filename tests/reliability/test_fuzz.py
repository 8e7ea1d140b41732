"""The fuzzers find a planted fault of each kind, and only those."""

import pytest

from reliability.fuzz import runner

pytest.importorskip("resource", reason="the fuzzers measure memory as Unix does")


def test_a_planted_fault_of_each_kind_is_found(monkeypatch, request):
    monkeypatch.setattr(runner, "LONGEST", 4.0)
    root = request.config.rootpath
    monkeypatch.setenv("PYTHONPATH", f"{root}:{root / 'tests' / 'support'}")
    from planted_faults import CASES

    found = dict(runner.run_cases("planted_faults", 0, 0, len(CASES)))
    assert list(found) == list(range(len(CASES)))  # also after a process that ended
    faults = {CASES[number].name: failure.fault for number, failure in found.items() if failure is not None}
    assert [name for name in faults if name.startswith("right")] == []
    words = {
        "a raw error of torch": "RuntimeError",
        "a raw error inside the package": "TypeError",
        "an exception of another kind": "KeyError",
        "a silent NaN": "not finite",
        "a warning from outside": "overflow",
        "global state": "random numbers of torch",
        "a file outside the output folder": "outside the output folder",
        "a process that ends": "exit code 7",
        "a hang": "hangs",
    }
    assert {name: word for name, word in words.items() if word not in faults.get(name, "")} == {}
    assert len(faults) == len(words)
