"""The first map is kept between two starts: as if computed, for the same network only, whatever the disk does."""

import copy
import json
import time
from dataclasses import replace

import pytest
import torch
from page_server import make_studio

import moreaugrad as mg
from moreaugrad.app import first_map
from moreaugrad.app.jobs import Job
from moreaugrad.app.tasks import Task, read_task

NAME = "lipschitz_cifar10"


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """The cache folder, as yet missing."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache" / "moreaugrad"


@pytest.fixture
def runs(monkeypatch):
    """Notes which tasks are computed."""
    seen, run = [], Task.run
    monkeypatch.setattr(Task, "run", lambda task, job: seen.append(task) or run(task, job))
    return seen


@pytest.fixture
def ask(picture, request):
    """Does the first job of a server with a network; all that a browser could get of it."""

    def ask(network, name=NAME, **change):
        studio = make_studio({name: network}, picture)
        studio.jobs.close()
        task = read_task({"photo": "first", "options": {"quality": "fast"}}, studio.photos["first"], studio.menu)
        job = Job(lambda job: None)
        result = first_map.run_once(replace(task, **change), job)
        files = {key: (file.name, file.kind, file.make()) for key, file in result.files.items()}
        news = [(kind, data) for _, kind, data in job.news_after(0) if kind == "classes"]
        return json.dumps(dict(result.facts)), files, result.size, news

    return ask


def test_what_is_kept_is_what_was_computed(folder, runs, ask, network):
    computed, kept = ask(network), ask(network)
    assert len(runs) == 1
    assert kept == computed
    assert set(kept[1]) == {"map", "npz", "picture", "json"}
    assert kept[3]
    (entry,) = folder.iterdir()
    entry.unlink()
    again = ask(network)
    assert len(runs) == 2
    assert again[1].keys() == kept[1].keys()
    assert all(again[1][key] == kept[1][key] for key in ("map", "npz", "picture"))  # the facts say how long it took
    assert again[3] == kept[3]


def test_a_warm_server_asks_nothing_of_its_network(folder, ask, network, picture, runs):
    ask(network)
    studio = make_studio({NAME: network}, picture)
    studio.warm_up()
    job = studio.start({"photo": "first", "options": {"quality": "fast"}})
    while job.state not in ("done", "failed"):
        time.sleep(0.01)
    studio.jobs.close()
    assert (job.state, len(runs)) == ("done", 1)
    assert [name for _, name, _ in job.news_after(0)] == ["classes", "done"]
    assert all(f"/{job.key}/" in address for address in job.facts["files"].values())


def test_other_networks_requests_and_programs_are_computed(folder, runs, ask, network, monkeypatch):
    ask(network)
    other = copy.deepcopy(network)
    with torch.no_grad():
        next(other.parameters()).view(-1)[0] += 1e-3
    relabelled = copy.copy(network)
    relabelled.labels = [f"{label}s" for label in network.labels]
    for asked in ({"network": other}, {"network": relabelled}, {"target": 3}, {"loaded": {"size": 32}}):
        ask(**{"network": network} | asked)
        assert runs[-1].classifier is asked.get("network", network)
    assert len(runs) == 5
    monkeypatch.setattr(first_map, "version", lambda name: "99")
    ask(network)
    assert len(runs) == 6
    assert len(list(folder.iterdir())) == first_map.MOST


def test_networks_of_the_own_code_are_not_kept(folder, runs, ask):
    own = mg.load_model("lipschitz", weights="random")
    ask(own, "package.module:factory")
    ask(own, "package.module:factory")
    assert len(runs) == 2
    assert not folder.exists()


def _cut(path):
    path.write_bytes(path.read_bytes()[:-100])


def _flip(path):
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)


def _swap(path):
    """An entry of another request under this name."""
    path.write_bytes(path.read_bytes().replace(path.name.encode(), f"first-{'0' * 32}.zip".encode()))


@pytest.mark.parametrize("damage", [_cut, _flip, _swap, lambda path: path.write_bytes(b"junk")])
def test_damage_is_made_good(folder, runs, ask, network, damage):
    ask(network)
    (entry,) = folder.iterdir()
    damage(entry)
    ask(network)
    assert len(runs) == 2
    ask(network)
    assert len(runs) == 2


def test_no_folder_is_no_matter(tmp_path, runs, ask, network, monkeypatch):
    (tmp_path / "file").write_text("no folder")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    ask(network)
    monkeypatch.setenv("XDG_CACHE_HOME", "")
    monkeypatch.setattr(first_map.Path, "home", lambda: (_ for _ in ()).throw(RuntimeError("no home")))
    ask(network)
    assert len(runs) == 2
    assert (tmp_path / "file").read_text() == "no folder"


def test_the_folder_is_that_of_the_system(tmp_path, monkeypatch):
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert first_map.find_folder() == tmp_path / ".cache" / "moreaugrad"
