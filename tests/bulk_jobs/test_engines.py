"""Processes and Ray actors make the rows that this process makes, and survive what becomes of workers and drivers."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

import moreaugrad as mg
from moreaugrad.bulk_jobs.engines.base import Died, Finished, Progress
from moreaugrad.bulk_jobs.folder import LOCK
from moreaugrad.bulk_jobs.run import STRIKES, WorkerError

TOGETHER = pytest.mark.xdist_group("engines")  # they start many processes: not two tests at once
pytestmark = TOGETHER


@pytest.fixture(params=["local", "ray"])
def engine(request):
    if request.param == "ray":
        pytest.importorskip("ray", reason="Ray is not installed: pip install 'moreaugrad[ray]'")
    return request.param


class Killer:
    """Kills workers of a local run after so many events of progress."""

    def __init__(self, *when):
        self.when, self.seen, self.deaths = set(when), 0, 0

    def __call__(self, state, event):
        self.deaths += isinstance(event, Died)
        if isinstance(event, Progress | Finished):
            self.seen += 1
            if self.seen in self.when:
                victims = find_workers(os.getpid())
                os.kill(victims[0], signal.SIGKILL)


def find_workers(parent):
    """Processes that `parent` started as local workers."""
    listed = ["ps", "-wwo", "pid=,args=", "--ppid", str(parent)]
    lines = subprocess.run(listed, capture_output=True, text=True, check=False).stdout.splitlines()
    return [int(line.split()[0]) for line in lines if "bulk_jobs.engines.process" in line]


def test_workers_make_the_same_rows_as_this_process(serial, engine):
    events = []
    maps = serial("workers", engine=engine, workers=2, part_size=2, watch=lambda state, event: events.append(event))
    assert maps.digest() == serial("here").digest()
    assert {event.worker for event in events if isinstance(event, Finished)} <= {0, 1}
    assert maps.job["runs"][0]["engine"] == engine


def test_a_model_from_python_is_sent_to_workers(serial):
    from small_network import Curved

    assert serial("sent", Curved().eval(), engine="local", workers=1).digest() == serial("named").digest()


def test_killed_workers_are_replaced(serial):
    killer = Killer(1, 3)
    maps = serial("workers", engine="local", workers=2, part_size=2, watch=killer)
    assert killer.deaths >= 1
    assert maps.digest() == serial("here").digest()


@pytest.mark.slow
def test_an_image_that_kills_its_worker_costs_itself_alone(serial, photos, engine, monkeypatch):
    monkeypatch.setenv("MAY_DIE", "1")
    Image.new("RGB", (10, 10), "white").save(photos / "cats" / "1.png")
    wanted = serial("here")
    maps = serial("workers", model="deadly_network:Deadly", engine=engine, workers=1, part_size=3)
    assert list(maps.errors) == ["cats/1.png", "dogs/bad.png"]
    assert f"died {STRIKES} times" in maps.errors["cats/1.png"]
    for key in set(maps.keys) - set(maps.errors):
        assert np.array_equal(maps[key].map, wanted[key].map)


def test_what_every_worker_would_meet_ends_the_run_with_one_sentence(serial, engine, tmp_path, monkeypatch):
    here = f"import os\nassert os.getpid() == {os.getpid()}\nfrom small_network import Linear\n"
    (tmp_path / "mine.py").write_text(here)
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(WorkerError, match="mine:Linear"):
        serial(model="mine:Linear", engine=engine, workers=1)
    sys.modules.pop("mine")


DRIVER = """
import sys
import moreaugrad as mg
out, photos, engine = sys.argv[1:]
run = mg.RunOptions(engine=engine, workers=2, part_size=1)
mg.bulk("small_network:Slow", photos, out, budget=16, sparsity=0.2, run=run)
"""


def start_driver(out, photos, engine):
    path = os.pathsep.join([str(Path(__file__).parents[1] / "support"), *filter(None, sys.path)])
    command = [sys.executable, "-c", DRIVER, str(out), str(photos), engine]
    return subprocess.Popen(command, env=os.environ | {"PYTHONPATH": path}, stderr=subprocess.PIPE)


def wait_for(what, seconds=90.0):
    end = time.monotonic() + seconds
    while not (found := what()):
        assert time.monotonic() < end
        time.sleep(0.02)
    return found


def parts_in(folder):
    return sorted(folder.glob("part-*.parquet"))


@pytest.mark.slow
def test_a_killed_driver_takes_its_workers_along_and_frees_the_folder(serial, photos, tmp_path):
    out = tmp_path / "job"
    driver = start_driver(out, photos, "local")
    wait_for(lambda: len(parts_in(out)) >= 2)
    workers = find_workers(driver.pid)
    assert is_held(out / LOCK)
    driver.kill()
    driver.communicate()
    wait_for(lambda: not any(Path(f"/proc/{worker}").exists() for worker in workers), 10)
    assert not is_held(out / LOCK)
    there = len(parts_in(out))
    assert there < 9
    maps = serial("job", model="small_network:Slow")
    assert maps.finished
    assert maps.digest() == serial("here", model="small_network:Slow").digest()


@pytest.mark.slow
def test_ctrl_c_finishes_what_is_under_way_and_a_second_one_does_not_wait(photos, tmp_path):
    out = tmp_path / "job"
    driver = start_driver(out, photos, "local")
    wait_for(lambda: parts_in(out))
    driver.send_signal(signal.SIGINT)
    _, err = driver.communicate(timeout=60)
    assert b"KeyboardInterrupt" in err
    maps = mg.open_maps(out)
    assert 0 < len(maps) < 9
    assert not list(out.glob(".*.tmp"))
    driver = start_driver(out, photos, "local")
    wait_for(lambda: len(parts_in(out)) > len(maps))
    began = time.monotonic()
    driver.send_signal(signal.SIGINT)
    time.sleep(0.05)
    driver.send_signal(signal.SIGINT)
    driver.communicate(timeout=60)
    assert time.monotonic() - began < 30
    assert not is_held(out / LOCK)


@pytest.mark.parametrize("address", ["127.0.0.1:1", "ray://127.0.0.1:1", "nonsense"])
def test_a_cluster_that_does_not_answer_is_told_of(serial, address):
    pytest.importorskip("ray")
    began = time.monotonic()
    with pytest.raises((ConnectionError, ValueError), match="--address must be"):
        serial(engine="ray", address=address)
    assert time.monotonic() - began < 15
