"""A user's script: passes a strict type checker, and runs."""

import runpy
import subprocess
import sys
from pathlib import Path

SCRIPT = Path(__file__).parent / "support" / "user_script.py"


def test_a_strict_type_checker_accepts_it_without_casts(tmp_path):
    command = [sys.executable, "-m", "mypy", "--strict", "--config-file", "", "--cache-dir", str(tmp_path), str(SCRIPT)]
    found = subprocess.run(command, capture_output=True, text=True, check=False)
    assert found.returncode == 0, found.stdout + found.stderr


def test_it_runs(capsys):
    runpy.run_path(str(SCRIPT))
    assert "torch.Size([2, 3, 2, 2])" in capsys.readouterr().out
