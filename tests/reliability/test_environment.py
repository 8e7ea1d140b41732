"""What the system refuses: space, writing, file handles, memory. One line says so, and what is written is whole."""

import os
import resource
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest

from reliability import commands, tiny
from reliability.commands import COMMANDS
from reliability.failing_writes import judge_folder

pytestmark = pytest.mark.slow  # every test works in several processes
WRITING = ["explain", "compare", "robustness", "train", "paper", "bulk", "certify"]


@pytest.fixture
def disk(place):
    """A small disk of its own in the place of a folder."""
    mounted = []

    def go(name, size):
        folder = place / name
        folder.mkdir()
        if subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", folder], check=False).returncode:
            pytest.skip("a disk of one's own needs the right to mount one")
        mounted.append(folder)
        return folder

    if os.geteuid() or not shutil.which("mount"):
        pytest.skip("a disk of one's own needs the right to mount one")
    yield go
    for folder in mounted:
        subprocess.run(["umount", folder], check=True)


def remount(folder, options):
    subprocess.run(["mount", "-o", f"remount,{options}", folder], check=True)


def judge(code, said, folder, whole):
    assert code in (1, 2), said
    assert "Traceback" not in said
    errors = [line for line in said.splitlines() if line.startswith("error: ")]
    assert len(errors) == 1, said
    assert judge_folder(folder, whole) == []
    return errors[0]


@pytest.mark.parametrize("name", WRITING)
def test_a_full_disk_is_one_line_and_the_same_command_goes_on(name, place, whole, finish, disk):
    wanted = whole(name)
    out = place / COMMANDS[name].out
    sizes = sorted(each.stat().st_size for each in place.glob(f"whole*/{'*'}"))
    folder = disk(out.name, 4096 * max(1, sum(-(-size // 4096) for size in sizes) // 2))
    code, said = finish(name)
    assert "No space left on device" in judge(code, said, folder, wanted)
    remount(folder, "size=64m")
    assert finish(name)[0] == 0
    assert commands.read_contents(folder) == wanted
    assert commands.find_left(folder) == []


@pytest.mark.parametrize("name", WRITING)
def test_a_folder_that_takes_no_files_is_one_line(name, whole, finish, disk):
    wanted = whole(name)
    folder = disk(COMMANDS[name].out, "1m")
    remount(folder, "ro")
    code, said = finish(name)
    assert "Read-only file system" in judge(code, said, folder, wanted)
    assert list(folder.iterdir()) == []


@pytest.mark.parametrize("name", ["explain", "bulk", "robustness"])
def test_forty_open_files_are_enough(name, place, start):
    tiny.make_photos(place / "many", 50, np.random.default_rng(1))
    words = [word.replace("photos", "many") for word in COMMANDS[name].arguments()]

    def limit():
        resource.setrlimit(resource.RLIMIT_NOFILE, (40, 40))

    run = start(name, limit, words)
    assert run.wait(600) == 0, run.said()
    assert "error" not in run.said()


@pytest.mark.parametrize("name", ["explain", "compare", "certify", "bulk"])
@pytest.mark.parametrize("megabytes", [1, 8, 40])
def test_little_memory_is_a_message_and_leaves_whole_files(name, megabytes, place, whole, finish):
    wanted = whole(name)
    pages = int(Path("/proc/self/statm").read_text().split()[0])

    def limit():
        most = pages * resource.getpagesize() + megabytes * 2**20
        resource.setrlimit(resource.RLIMIT_AS, (most, most))

    code, said = finish(name, prepare=limit)
    assert code in (0, 1, 2), said
    assert "Traceback" not in said
    if code:
        assert [line for line in said.splitlines() if line.startswith("error: ")]
    faults = judge_folder(place / COMMANDS[name].out, wanted)
    if "results.jsonl" in wanted:  # it has a line for each image that failed, which stays there
        faults = [fault for fault in faults if not fault.startswith("results.jsonl")]
    assert faults == []
    assert finish(name)[0] == 0
    found = commands.read_contents(place / COMMANDS[name].out)
    if "results.jsonl" in wanted:
        found["results.jsonl"] = [line for line in found["results.jsonl"] if '"error": ' not in line]
    for each in (found, wanted):
        each.pop("index.html", None)  # in the order of the lines
    if name == "bulk":  # as does a row of a part; --retry-errors explains it again
        found, wanted = list(found), list(wanted)
    assert found == wanted
