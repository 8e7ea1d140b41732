"""Whether the quick tests pass on every Python, and with the oldest versions of what the package needs.

Each environment is a clone of the last commit, set up and tested by `make` as a user would. What ran at that commit
already is not run again, so environments can be tested one by one and stored together in the end.

python -m benchmarks.matrix --folder DIR [--environments python3.11,python3.12,python3.13,python3.14,lowest]
    [--workers 2]
"""

from __future__ import annotations

import json
import os
import subprocess
import xml.etree.ElementTree as ET
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from benchmarks import record

ROOT = Path(__file__).resolve().parents[1]
LOWEST = "lowest"  # the environment of `make test-lowest`; any other name is an interpreter
HIDDEN = ("PYTHONPATH", "VIRTUAL_ENV", "OMP_NUM_THREADS", "MAKEFLAGS")  # what a fresh terminal does not set
ASK_VERSIONS = """
import json, platform
from importlib.metadata import version
names = ("torch", "torchvision", "timm", "numpy", "captum", "pyarrow", "ray")
print(json.dumps({"python": platform.python_version(), **{name: version(name) for name in names}}))
"""


def main() -> None:
    args = record.arguments(
        __doc__, data=False, folder="build/matrix", environments="python3.11,python3.12,python3.13,python3.14,lowest",
        workers=2,
    )  # fmt: skip
    folder = Path(args.folder).absolute()
    folder.mkdir(parents=True, exist_ok=True)
    table = [run(name, folder, args.workers) for name in args.environments.split(",")]
    record.store("matrix", "cpu", {"commit": table[0]["commit"], "table": table}, args.out)


def run(name: str, folder: Path, workers: int, root: Path = ROOT) -> dict[str, Any]:
    """One environment: what of the last run is there, or a new run."""
    commit = _ask("git", "-C", str(root), "rev-parse", "HEAD")
    clone, stored = folder / name, folder / f"{name}.json"
    if stored.is_file() and (found := json.loads(stored.read_text()))["commit"] == commit:
        return dict(found)
    if not clone.is_dir():
        _ask("git", "clone", "--quiet", "--no-checkout", str(root), str(clone))
    _ask("git", "-C", str(clone), "fetch", "--quiet", str(root), commit)
    _ask("git", "-C", str(clone), "checkout", "--quiet", "--force", "--detach", commit)
    report = folder / f"{name}.xml"
    report.unlink(missing_ok=True)
    words = ["test-lowest"] if name == LOWEST else ["test", f"PYTHON={name}"]
    environment = {key: value for key, value in os.environ.items() if key not in HIDDEN}
    environment |= {"PYTEST_ADDOPTS": f"--junit-xml={report}"}
    with (folder / f"{name}.log").open("w") as log:
        command = ["make", *words, f"WORKERS={workers}"]
        code = subprocess.run(command, cwd=clone, env=environment, stdout=log, stderr=log, check=False).returncode
    if not report.is_file():
        raise RuntimeError(f"make must reach the end of the tests in {name}, got exit code {code}; see {log.name}")
    python = clone / ("build/lowest" if name == LOWEST else ".venv") / "bin" / "python"
    facts = {"environment": name, "commit": commit, "versions": json.loads(_ask(str(python), "-c", ASK_VERSIONS))}
    facts |= count(ET.parse(report).getroot())
    stored.write_text(json.dumps(facts, indent=1))
    print(name, {key: facts[key] for key in ("passed", "skipped", "failed", "minutes")}, flush=True)
    return facts


def count(report: ET.Element) -> Mapping[str, Any]:
    """What a report of pytest in JUnit's format says: how many tests ended how, and why some were left out."""
    cases = list(report.iter("testcase"))
    failed = [f"{each.get('classname')}::{each.get('name')}" for each in cases if _has(each, "failure", "error")]
    skips = [_reason(each) for each in cases if _has(each, "skipped") and not _has(each, "failure", "error")]
    seconds = sum(float(suite.get("time", 0)) for suite in report.iter("testsuite"))
    return {
        "passed": len(cases) - len(failed) - len(skips),
        "skipped": len(skips),
        "failed": len(failed),
        "minutes": round(seconds / 60, 1),
        "failures": failed,
        "skips": dict(Counter(skips).most_common()),
    }


def _has(case: ET.Element, *kinds: str) -> bool:
    return any(case.find(kind) is not None for kind in kinds)


def _reason(case: ET.Element) -> str:
    found = case.find("skipped")
    assert found is not None
    return found.get("message", "").splitlines()[0]


def _ask(*command: str) -> str:
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()


if __name__ == "__main__":
    main()
