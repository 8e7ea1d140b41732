"""Environments are tested in clones of the last commit, once for each commit, and counted as pytest reports them."""

import json
import subprocess
import sys
import xml.etree.ElementTree as ET

import pytest

from benchmarks import matrix

MAKEFILE = """
test test-lowest:
\tmkdir -p .venv/bin build/lowest/bin
\tprintf '#!/bin/sh\\nexec {python} "$$@"\\n' | tee .venv/bin/python > build/lowest/bin/python
\tchmod +x .venv/bin/python build/lowest/bin/python
\techo $@ $(PYTHON) $(WORKERS) >> ../made
\t-.venv/bin/python -m pytest -p no:cacheprovider test_some.py
"""
TESTS = """
import os
import pytest
def test_good(): assert "PYTHONPATH" not in os.environ
@pytest.mark.parametrize("n", [1, 2])
def test_left_out(n): pytest.skip("not here")
def test_bad(): assert 0
@pytest.fixture
def broken(): raise OSError
def test_broken(broken): pass
@pytest.mark.xfail(reason="a known fault")
def test_known(): assert 0
"""


@pytest.fixture
def repository(tmp_path):
    root = tmp_path / "root"
    root.mkdir()
    (root / "Makefile").write_text(MAKEFILE.format(python=sys.executable))
    (root / "test_some.py").write_text(TESTS)
    commit(root, "init", "--quiet")
    return root


def commit(root, *first: str) -> None:
    ours = ["-c", "user.name=a", "-c", "user.email=a@example.org"]
    for words in (first, ["add", "."], [*ours, "commit", "--quiet", "--message", "A change"]):
        subprocess.run(["git", "-C", root, *words], check=bool(words), capture_output=True)


def test_an_environment_is_tested_once_for_each_commit(tmp_path, repository):
    folder = tmp_path / "place"
    folder.mkdir()
    found = matrix.run("python3", folder, 3, repository)
    counts = {name: found[name] for name in ("passed", "skipped", "failed")}
    assert counts == {"passed": 1, "skipped": 3, "failed": 2}
    assert found["skips"] == {"not here": 2, "a known fault": 1}
    assert found["failures"] == ["test_some::test_bad", "test_some::test_broken"]
    assert found["versions"]["python"] == sys.version.split()[0]
    assert matrix.run("python3", folder, 3, repository) == found
    assert (folder / "made").read_text() == "test python3 3\n"
    (repository / "test_some.py").write_text("def test_good(): pass")
    commit(repository, "status")
    again = matrix.run("python3", folder, 3, repository)
    assert (again["passed"], again["failed"], again["commit"] != found["commit"]) == (1, 0, True)
    assert matrix.run("lowest", folder, 2, repository)["passed"] == 1
    assert (folder / "made").read_text().splitlines()[2] == "test-lowest 2"


def test_an_environment_that_reaches_no_end_is_no_result(tmp_path, repository):
    (repository / "Makefile").write_text("test:\n\tfalse\n")
    commit(repository, "status")
    with pytest.raises(RuntimeError, match="exit code 2; see"):
        matrix.run("python3", tmp_path, 1, repository)
    assert not list(tmp_path.glob("*.json"))


def test_suites_are_added(tmp_path):
    case = '<testcase classname="a" name="b"/>'
    report = (
        f'<testsuites><testsuite time="90">{case}</testsuite><testsuite time="30.0">{case}</testsuite></testsuites>'
    )
    found = matrix.count(ET.fromstring(report))
    assert (found["passed"], found["minutes"]) == (2, 2.0)
    json.dumps(found)
