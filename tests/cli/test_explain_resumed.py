"""Runs over folders that end early, by the user, a full disk or a kill, and are resumed."""

import errno
import json
import os
import shutil
import signal
import time
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from moreaugrad import Explanation
from moreaugrad.api import Explainer
from moreaugrad.cli import explain
from moreaugrad.cli.app import main
from moreaugrad.cli.results_folder import ResultsFolder

LINEAR = ["--model", "own_small:Linear"]
SMALL = [*LINEAR, "--budget", "64"]


def records(out: str = "maps") -> list[dict]:
    return [json.loads(line) for line in Path(out, "results.jsonl").read_text().splitlines()]


def test_the_same_command_again_does_nothing_again_and_says_so(folder, run):
    first = run("explain", "a.png", "b[1].png", *SMALL)
    before = {path.name: path.stat().st_mtime_ns for path in Path("maps").glob("*.??[gz]")}
    code, out, err = run("explain", "a.png", "b[1].png", *SMALL)
    assert (code, err) == (0, "")
    assert "2 of 2 are done already" in out
    assert {path.name: path.stat().st_mtime_ns for path in Path("maps").glob("*.??[gz]")} == before
    assert first[1].splitlines()[-1].startswith("2 done, ")
    assert len(records()) == len({line["id"] for line in records()}) == 2


def test_a_run_goes_on_where_another_stopped(folder, run):
    run("explain", "a.png", "bad.png", *SMALL)
    Image.new("RGB", (9, 9)).save("bad.png")  # fetched again
    code, out, _ = run("explain", "a.png", "bad.png", "b[1].png", *SMALL, "--json")
    assert code == 0
    assert [json.loads(line)["key"] for line in out.splitlines()] == ["a", "bad", "b[1]"]  # one each, done or not
    assert [line["key"] for line in records()] == ["a", "bad", "bad", "b[1]"]


def test_batches_leave_out_what_is_done_and_survive_a_bad_image(folder, run, monkeypatch):
    for number in range(5):
        pixels = np.random.default_rng(number).integers(0, 256, (9, 9, 3), dtype=np.uint8)
        Image.fromarray(pixels).save(f"p{number}.png")
    names = ["p0.png", "bad.png", *(f"p{number}.png" for number in range(1, 5))]
    run("explain", *names, *SMALL, "--out", "single")
    monkeypatch.setattr(explain, "BATCH", {"cpu": 3})
    assert run("explain", "p2.png", *SMALL)[0] == 0
    assert run("explain", *names, *SMALL)[0] == 1
    assert [line["key"] for line in records()] == ["p2", "p0", "bad", "p1", "p3", "p4"]
    for number in range(5):
        one, other = (Explanation.load(f"{out}/p{number}.sparse_moreau").map for out in ("single", "maps"))
        assert torch.allclose(one, other, atol=1e-5)


def test_no_resume_explains_again_into_the_same_files(folder, run):
    run("explain", "a.png", *SMALL)
    Path("maps/a.sparse_moreau.npz").write_bytes(b"old")
    code, out, _ = run("explain", "a.png", *SMALL, "--no-resume")
    assert code == 0
    assert "1 done" in out
    assert float(Explanation.load("maps/a.sparse_moreau.npz").kept) > 0
    assert len({line["id"] for line in records()}) == 1


def test_a_full_disk_stops_the_run_with_one_line_and_it_can_be_resumed(folder, run, monkeypatch):
    for number in range(6):
        shutil.copy("a.png", f"copy{number}.png")
    write, files = Path.write_bytes, []

    def write_bytes(path, content):
        files.append(path)
        if len(files) > 5:
            raise OSError(errno.ENOSPC, "No space left on device")
        return write(path, content)

    monkeypatch.setattr(Path, "write_bytes", write_bytes)
    code, _, err = run("explain", *sorted(map(str, folder.glob("copy*"))), *SMALL)
    assert code == 1
    assert len(err.splitlines()) == 1
    assert all(word in err for word in ("copy2.png", "maps", "No space left", "2 done", "4 of 6 left", "same command"))
    assert len(files) == 6
    monkeypatch.undo()
    monkeypatch.chdir(folder)
    assert run("explain", *sorted(map(str, folder.glob("copy*"))), *SMALL)[0] == 0
    assert len(records()) == 6


def test_a_page_that_cannot_be_written_is_told(folder, run, monkeypatch):
    def write_index(folder):
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr("moreaugrad.cli.explain.write_index", write_index)
    code, _, err = run("explain", "a.png", *SMALL)
    assert (code, len(err.splitlines()), len(records())) == (0, 1, 1)
    assert "maps could not be written (Input/output error)" in err


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize("moment", ["map", "line"])
def test_an_interruption_is_one_line_and_leaves_whole_results(folder, run, monkeypatch, number, moment):
    """While a map is computed, or in the middle of writing, which is finished first."""
    owner, name = (Explainer, "__call__") if moment == "map" else (ResultsFolder, "_write")
    original, calls = getattr(owner, name), []

    def interrupt(*args, **options):
        calls.append(args)
        if len(calls) == 2:
            os.kill(os.getpid(), number)
        return original(*args, **options)

    monkeypatch.setattr(owner, name, interrupt)
    before = signal.getsignal(number)
    code, _, err = run("explain", "a.png", "b[1].png", "missing.png", *SMALL)
    assert signal.getsignal(number) is before
    assert code == 130
    assert len(err.splitlines()) == 1
    done = 1 if moment == "map" else 2
    assert all(word in err for word in ("interrupted", f"{done} done", f"{3 - done} of 3 left", "maps", "same command"))
    assert len(records()) == len(list(Path("maps").glob("*.npz"))) == done
    assert "a" in Path("maps/index.html").read_text()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@pytest.mark.parametrize(
    ("files", "kills"), [(12, 2), pytest.param(60, 8, marks=pytest.mark.slow)], ids=["few", "many"]
)
def test_killed_runs_lose_and_double_nothing(folder, files, kills):
    """Killed at random moments, the last time two at once; then two finish. Maps have the bytes of a whole run."""
    numbers = np.random.default_rng(0)
    Path("photos").mkdir()
    for number in range(files):
        Image.fromarray(numbers.integers(0, 256, (9, 9, 3), dtype=np.uint8)).save(f"photos/p{number}.png")

    def start(out: str) -> int:
        child = os.fork()
        if not child:
            torch.set_num_threads(1)  # the threads of the parent are not here
            os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
            try:
                main(["explain", "photos", *LINEAR, "--method", "gradient", "--out", out, "--quiet"])
            except SystemExit as stop:
                os._exit(int(stop.code or 0))
            os._exit(99)
        return child

    assert os.waitstatus_to_exitcode(os.waitpid(start("whole"), 0)[1]) == 0
    for attempt in range(kills):
        children = [start("maps") for _ in range(1 + (attempt == kills - 1))]
        before = len(list(Path("maps").glob("*.npz")))
        wanted = min(files - 2, before + files // (kills + 1))
        while len(list(Path("maps").glob("*.npz"))) < wanted:
            time.sleep(0.001)
        time.sleep(numbers.uniform(0, 0.1))
        for child in children:
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
    children = [start("maps") for _ in range(2)]
    assert [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children] == [0, 0]
    assert sorted(line["key"] for line in records()) == sorted(f"p{number}" for number in range(files))
    maps = {path.name: path.read_bytes() for path in Path("maps").glob("p*")}
    assert maps == {path.name: path.read_bytes() for path in Path("whole").glob("p*")}
    assert len(maps) == 2 * files
