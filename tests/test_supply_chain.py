"""Data are not code, nothing leaves the machine, and an import does nothing: over the whole source, and by watching.

What the wheel holds is checked where it is built: `tools/check_distribution.py`, by `make wheel-smoke`.
"""

import ast
import pickle
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

import moreaugrad as mg
from moreaugrad.data.arrays import read_cifar10
from moreaugrad.files import read_npz
from moreaugrad.models.checkpoint import read_state
from moreaugrad.training.trainer import _read_checkpoint

ROOT = Path(__file__).parents[1]
FOLDERS = ("src", "paper", "benchmarks", "tools", "reliability")
WATCHED = ROOT / "tests" / "support" / "watched.py"
SMALL = ["--model", "lipschitz_cifar10"]

# Calls that a file must make with these options, or not at all.
SAFE = {"torch.load": {"weights_only": True}, "np.load": {"allow_pickle": False}, "numpy.load": {"allow_pickle": False}}
UNPICKLERS = ("pickle.load", "pickle.loads", "pickle.Unpickler")
NEVER = (
    "eval", "exec", "compile", "os.popen", "os.system", "__import__", "torch.jit.load", "torch.hub.load",
    "pd.read_pickle", "pandas.read_pickle", "yaml.load", "yaml.unsafe_load", "yaml.full_load",
)  # fmt: skip
NEVER_FROM = ("cloudpickle", "dill", "joblib", "jsonpickle", "marshal", "shelve", "telnetlib", "torch.package", "yaml")
PIPES = {  # what processes of one job say to each other, through pipes that nobody else has
    f"src/moreaugrad/bulk_jobs/engines/{name}.py" for name in ("local", "process", "ray_actors")
}


def find_unsafe(code: str, pipe: bool = False) -> Iterator[str]:
    """The calls and imports of a file that could run what data say."""
    for node in ast.walk(ast.parse(code)):
        if isinstance(node, ast.Import | ast.ImportFrom):
            names = [node.module or ""] if isinstance(node, ast.ImportFrom) else [each.name for each in node.names]
            yield from (name for name in names if name in NEVER_FROM or name.split(".")[0] in NEVER_FROM)
            if isinstance(node, ast.ImportFrom) and node.module in ("pickle", "torch", "numpy", "os"):
                hidden = [f"{node.module}.{each.name}" for each in node.names]
                yield from (name for name in hidden if name in (*SAFE, *UNPICKLERS, *NEVER))
        if isinstance(node, ast.Call):
            name, given = ast.unparse(node.func), {each.arg: ast.unparse(each.value) for each in node.keywords}
            wanted = {key: str(value) for key, value in SAFE.get(name, {}).items()}
            unsafe = name in NEVER or (name in UNPICKLERS and not pipe) or not wanted.items() <= given.items()
            if unsafe or given.get("shell", "False") != "False" or given.get("trust_remote_code", "False") != "False":
                yield ast.unparse(node)


@pytest.mark.parametrize("folder", FOLDERS)
def test_no_code_runs_what_data_say(folder):
    files = sorted((ROOT / folder).rglob("*.py"))
    names = {file: file.relative_to(ROOT).as_posix() for file in files}
    found = {names[file]: list(find_unsafe(file.read_text(), names[file] in PIPES)) for file in files}
    assert {name: calls for name, calls in found.items() if calls} == {}
    assert files


@pytest.mark.parametrize(
    "code",
    [
        "torch.load(f)", "torch.load(f, weights_only=False)", "np.load(f)", "np.load(f, allow_pickle=True)",
        "pickle.loads(b)", "from pickle import loads", "from torch import load", "import yaml", "import shelve",
        "eval(text)", "exec(text)", "subprocess.run(text, shell=True)", "os.system(text)", "torch.hub.load('a/b', 'c')",
        "Auto.from_pretrained(n, trust_remote_code=True)", "import marshal", "torch.jit.load(f)",
    ],
)  # fmt: skip
def test_the_search_finds_what_it_looks_for(code):
    assert list(find_unsafe(code))


READERS = {
    "weights.pt": read_state,
    "weights.safetensors": read_state,
    "explanation.npz": mg.Explanation.load,
    "values.npz": read_npz,
    "cifar10.npz": read_cifar10,
    "training.pt": lambda path: _read_checkpoint(path, {}, torch.device("cpu")),
}
WRITERS = {
    "pickle": lambda file, trap: pickle.dump(trap, file),
    "torch": lambda file, trap: torch.save({"state_dict": trap, "options": trap}, file),
    "old torch": lambda file, trap: torch.save(trap, file, _use_new_zipfile_serialization=False),
    "numpy": lambda file, trap: np.savez(file, **dict.fromkeys(ARRAYS, np.array([trap], dtype=object))),
    "one array": lambda file, trap: np.save(file, np.array([trap], dtype=object)),
}
ARRAYS = ("meta", "map", "x_train", "y_train", "x_test", "y_test")


@pytest.mark.parametrize("write", WRITERS.values(), ids=WRITERS)
@pytest.mark.parametrize("name", READERS)
def test_a_file_that_would_run_code_is_refused(tmp_path, trap, name, write):
    path = tmp_path / name
    with path.open("wb") as file:
        write(file, trap)
    with pytest.raises(ValueError, match=r"must (be|hold)"):
        READERS[name](path)


def run(*words: str, environment: dict[str, str] | None = None) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-B", *map(str, words)]
    place = {"PYTHONPATH": f"{ROOT / 'src'}:{ROOT}", **(environment or {})}
    return subprocess.run(command, capture_output=True, text=True, check=False, env=place, cwd=ROOT)


def test_an_import_does_nothing():
    """No file written or removed, no socket, process, thread or variable; and neither torch nor numpy."""
    code = """
import sys, threading
seen = []
quiet = ("os.listdir", "os.scandir")
loud = ("ctypes", "os", "shutil", "signal", "socket", "subprocess", "tempfile", "_thread", "urllib")
def see(event, given):
    writes = event == "open" and isinstance(given[2], int) and given[2] & 3
    if writes or (event.split(".")[0] in loud and event not in quiet):
        seen.append((event, given))
sys.addaudithook(see)
import moreaugrad
assert not seen, seen
assert threading.active_count() == 1
assert not {"torch", "numpy", "PIL", "matplotlib"} & set(sys.modules)
"""
    done = run("-c", code)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_public_names_leave_the_state_of_the_process_alone():
    code = """
import threading
import torch, torchvision, timm, captum.attr, skimage.segmentation, matplotlib.pyplot, PIL.Image, pyarrow.parquet
from reliability.state import changed, global_state
before, threads = global_state(), threading.active_count()
import moreaugrad as mg
for name in mg.__all__:
    getattr(mg, name)
assert not changed(before, global_state()), changed(before, global_state())
assert threading.active_count() == threads
assert mg.__all__
"""
    done = run("-c", code)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_the_watch_ends_what_it_must(tmp_path):
    for act in (
        "import socket; socket.create_connection(('127.0.0.1', 9))",
        "import urllib.request; urllib.request.urlopen('http://localhost:9')",
        f"open({str(tmp_path / 'other')!r}, 'w')",
        f"import os; os.mkdir({str(tmp_path / 'other')!r})",
        f"import os; open({str(tmp_path / 'home' / 'a')!r}, 'w'); os.rename({str(tmp_path / 'home' / 'a')!r}, 'b')",
    ):
        (tmp_path / "home").mkdir(exist_ok=True)
        done = run(WATCHED, tmp_path / "home", "-c", f"try:\n    {act}\nexcept BaseException:\n    pass")
        assert (done.returncode, done.stderr.startswith("watched: ")) == (97, True)
    assert run(WATCHED, tmp_path / "home", "-c", f"open({str(tmp_path / 'home' / 'a')!r}, 'w')").returncode == 0


COMMANDS = {
    "methods": ["methods", "--json"],
    "models": ["models"],
    "explain": ["explain", "PHOTO", *SMALL, "--budget", "32", "--out", "OUT", "--formats", "png,npz,json"],
    "compare": ["compare", "PHOTO", *SMALL, "--methods", "gradient,gradcam", "--out", "OUT"],
    "bulk": ["bulk", "PHOTO", *SMALL, "--method", "gradient", "--engine", "serial", "--out", "OUT"],
    "report": ["report", "OUT"],
}


@pytest.fixture(scope="module")
def place(tmp_path_factory) -> Path:
    found = tmp_path_factory.mktemp("offline")
    pixels = np.random.default_rng(0).integers(0, 256, (40, 50, 3), dtype=np.uint8)
    Image.fromarray(pixels).save(found / "photo.png")
    return found


@pytest.mark.slow
@pytest.mark.parametrize("name", COMMANDS)
def test_a_command_reaches_nobody_and_writes_nowhere_else(place, name):
    """In the order of the table: `report` tells of what `bulk` made."""
    out = place / ("bulk" if name == "report" else name)
    words = [{"PHOTO": place / "photo.png", "OUT": out}.get(each, each) for each in COMMANDS[name]]
    done = run(WATCHED, place, "-m", "moreaugrad", *words)
    assert done.returncode == 0, done.stderr


@pytest.mark.slow
def test_the_default_model_needs_nobody(place):
    words = ["explain", place / "photo.png", "--method", "gradient", "--out", place / "default"]
    done = run(WATCHED, place, "-m", "moreaugrad", *words)
    assert done.returncode == 0, done.stderr


EXPLAIN = """
import hashlib
import torch
import moreaugrad as mg
for name in mg.__all__:
    getattr(mg, name)
model = mg.load_model("resnet18_softplus_cifar10")
x = torch.linspace(-1, 1, 3 * 32 * 32).reshape(1, 3, 32, 32).sin()
for method in (mg.SparseMoreauGrad(model, budget=32), mg.GroupSparseMoreauGrad(model, groups="superpixels", budget=32)):
    print(hashlib.sha256(method.explain(x).map.numpy().tobytes()).hexdigest())
"""


@pytest.mark.slow
def test_flags_of_python_and_seeds_of_hashes_change_no_map():
    """Without assertions, with every warning an error, and with sets in another order."""
    flags = {"0": [], "1": ["-W", "error", "-O"], "2": ["-X", "dev", "-W", "error"], "3": ["-bb", "-W", "error", "-OO"]}
    environment = {"OMP_NUM_THREADS": "1"}
    done = [run(*each, "-c", EXPLAIN, environment=environment | {"PYTHONHASHSEED": n}) for n, each in flags.items()]
    assert [(each.returncode, each.stderr) for each in done] == [(0, "")] * len(flags)
    assert len({each.stdout for each in done}) == 1
    assert len(set(done[0].stdout.split())) == 2
