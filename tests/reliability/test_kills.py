"""The kills run from end to end on little work, find what they should, and store their results."""

import json
import sys
from importlib import import_module
from pathlib import Path

import pytest

from benchmarks import record

ROOT = Path(__file__).parents[2]
SMALL = {
    "kills.explain": ("kill_resume", "--files 8 --kills 1 --broken 4"),
    "kills.bulk": ("bulk_kills", "--files 8 --local 1 --ray 0"),
    "kills.__main__": ("kills", "--kills 14"),
}


@pytest.mark.slow
@pytest.mark.parametrize("module", SMALL)
def test_a_small_run_finds_nothing_and_stores_its_results(module, tmp_path, monkeypatch):
    name, words = SMALL[module]
    file = ROOT / "reliability" / f"{module.replace('.', '/')}.py"
    monkeypatch.setattr(sys, "argv", [str(file), "--device", "cpu", "--out", str(tmp_path), *words.split()])
    try:
        import_module(f"reliability.{module}").main()
    except SystemExit as stop:
        assert not stop.code  # noqa: PT017 - other exceptions fail by themselves
    stored = json.loads((tmp_path / f"{name}_cpu.json").read_text())
    assert stored["command"].startswith(f"python -m reliability.{module.removesuffix('.__main__')} ")
    assert {"date", "hardware", "versions"} <= set(stored)
    assert str(tmp_path) not in json.dumps(stored)


@pytest.mark.parametrize(
    ("file", "module"),
    [
        ("benchmarks/cost.py", "benchmarks.cost"),
        ("reliability/fuzz/__main__.py", "reliability.fuzz"),
        ("reliability/failures.py", "reliability.failures"),
    ],
)
def test_a_stored_command_names_the_module_that_ran(file, module):
    assert record.name_module(ROOT / file) == record.name_module(Path(file)) == module
