"""The JSON API: maps equal to those of the library, jobs that stop, models of all kinds, and its description."""

import base64
import json
import re
import socket
import threading
import time
from io import BytesIO
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from page_server import encode, make_studio, running
from PIL import Image
from torch import nn

import moreaugrad as mg
from moreaugrad.app import tasks
from moreaugrad.app.openapi import describe_api
from moreaugrad.methods import QUALITY
from moreaugrad.models.classifier import CentreCrop, Classifier
from moreaugrad.plotting import pictures

FAST = {"quality": "fast", "seed": 3}


def read_map(content):
    """The binary form, read as its description says."""
    assert content[:4] == b"MGM1"
    length = int.from_bytes(content[4:8], "little")
    header, at = json.loads(content[8 : 8 + length]), 8 + length
    assert at % 4 == 0
    values = np.zeros(header["channels"] * header["height"] * header["width"], np.float32)
    count = header["entries"]
    if header["sparse"]:
        index = np.frombuffer(content, "<i4", count, at)
        values[index] = np.frombuffer(content, "<f4", count, at + 4 * count)
        at += 8 * count
    else:
        values[:] = np.frombuffer(content, "<f4", count, at)
        at += 4 * count
    dense = None
    if header["dense_scale"] is not None:
        dense = np.frombuffer(content, "<i2", len(values), at) * (header["dense_scale"] / 32767)
        at += 2 * len(values)
    assert at == len(content)
    return values.reshape(header["channels"], header["height"], header["width"]), dense


@pytest.mark.parametrize("method", ["sparse_moreau", "smoothgrad", "gradient"])
def test_a_map_is_that_of_the_library(client, network, picture, method, tmp_path):
    options = {} if method == "gradient" else FAST
    job = client.start(photo="first", method=method, options=options)
    found = client.wait(job)
    assert found["state"] == "done"
    result = found["result"]
    given = {"seed": 3, ("budget" if "moreau" in method else "samples"): QUALITY["fast"]} if options else {}
    given |= {"preset": "published"} if "moreau" in method else {}
    wanted = mg.explain(network, picture, method, **given)
    values, _ = read_map(client("GET", result["files"]["map"]).body)
    np.testing.assert_array_equal(values, wanted.map[0].numpy())
    (tmp_path / "map.npz").write_bytes(client("GET", result["files"]["npz"]).body)
    loaded = mg.Explanation.load(tmp_path / "map.npz")
    assert torch.equal(loaded.map, wanted.map)
    assert (result["target"], result["label"]) == (int(wanted.target[0]), wanted.labels[0])
    assert client("GET", result["files"]["picture"]).body[:4] == b"\x89PNG"
    stored = client("GET", result["files"]["json"]).json
    assert stored["settings"] == options
    assert result["known"].endswith(".")


def test_an_empty_map_is_drawn_without_a_word_in_the_terminal(picture):
    """The page has told of it; here every warning is an error."""
    drawn = tasks._draw_picture(picture, torch.zeros(3, 48, 64))
    with pytest.warns(UserWarning, match="all zero"):
        scaled = pictures.scale_map(torch.zeros(3, 48, 64))
    wanted = pictures.overlay(pictures.read_photo(picture), scaled)
    with Image.open(BytesIO(drawn)) as found:
        np.testing.assert_array_equal(np.asarray(found)[::7, ::7], wanted)


def test_the_commands_of_a_result_give_its_map(client, picture, tmp_path, monkeypatch):
    """The Python lines run as they are; the command line is parsed by the program itself."""
    result = client.wait(client.start(photo="first", target=3, options={**FAST, "sparsity": 0.2}))["result"]
    monkeypatch.chdir(tmp_path)
    (tmp_path / "photo.jpg").write_bytes(encode(picture))
    exec(result["python"], {"print": lambda *words: None})
    values, _ = read_map(client("GET", result["files"]["map"]).body)
    np.testing.assert_array_equal(mg.Explanation.load("map.npz").map[0].numpy(), values)
    from moreaugrad.cli.app import main

    with pytest.raises(SystemExit) as end:
        main([*result["command"].split()[1:], "--out", "maps", "--quiet"])
    assert end.value.code == 0
    (stored,) = (tmp_path / "maps").glob("*.npz")
    np.testing.assert_array_equal(mg.Explanation.load(stored).map[0].numpy(), values)


def test_the_dense_map_thresholds_to_about_the_sparse_one(client):
    result = client.wait(client.start(photo="first", options={**FAST, "sparsity": 0.1}))["result"]
    sparse, dense = read_map(client("GET", result["files"]["map"]).body)
    level = np.sort(np.abs(dense))[-(sparse != 0).sum() - 1]
    again = (np.sign(dense) * np.maximum(np.abs(dense) - level, 0)).reshape(sparse.shape)
    assert result["solved_share"] == 0.1
    cosine = (again * sparse).sum() / np.sqrt((again**2).sum() * (sparse**2).sum())
    assert cosine > 0.97


def test_events_tell_the_classes_the_way_and_the_end(client):
    events = client.events(client.start(photo="first", options={**FAST, "seed": 11}))
    names, told = [name for name, _ in events], dict(events)
    assert names[-1] == "done"
    assert {"classes", "progress"} <= set(names)
    assert [each["target"] for each in told["classes"]["top"]].index(told["done"]["target"]) == 0
    assert sum(each["probability"] for each in told["classes"]["top"]) <= 1 + 1e-4
    for name, data in events:
        if name == "preview":
            assert len(base64.b64decode(data["values"])) == data["height"] * data["width"]


def test_equal_questions_are_answered_once(client):
    asked = {"photo": "first", "options": {"quality": "balanced", "seed": 5}}
    one = client.wait(client.start(**asked))["result"]
    two = client.wait(client.start(**asked))["result"]
    assert one["seconds"] == two["seconds"]  # to the hundredth of a second: it was not computed again
    assert client("GET", one["files"]["map"]).body == client("GET", two["files"]["map"]).body
    assert one["files"] != two["files"]


def test_a_job_stops_in_the_middle_and_leaves_nothing_behind(client, network, picture):
    before = torch.get_rng_state()
    job = client.start(photo="first", method="smoothgrad", options={"quality": "best", "seed": 1})
    assert client("DELETE", f"/api/jobs/{job}").status == 204
    assert client.wait(job)["state"] == "stopped"
    after = client.wait(client.start(photo="first", method="smoothgrad", options={"quality": "fast", "seed": 1}))
    values, _ = read_map(client("GET", after["result"]["files"]["map"]).body)
    wanted = mg.explain(network, picture, "smoothgrad", samples=QUALITY["fast"], seed=1)
    np.testing.assert_array_equal(values, wanted.map[0].numpy())
    assert torch.equal(torch.get_rng_state(), before)


def test_a_stream_that_is_lost_stops_its_job(client):
    job = client.start(photo="first", options={"quality": "best", "seed": 77, "sparsity": 0.3})
    with socket.create_connection(("127.0.0.1", client.port)) as line:
        line.sendall(f"GET /api/jobs/{job}/events HTTP/1.1\r\nHost: 127.0.0.1:{client.port}\r\n\r\n".encode())
        assert line.recv(100)
    assert client.wait(job)["state"] == "stopped"


def test_visitors_at_once_get_their_own_maps(client, network):
    pictures = [Image.new("RGB", (40, 40), (17 * n, 255 - 20 * n, 90)) for n in range(6)]
    for place, each in enumerate(pictures):
        each.paste((255, 255, 255), (place * 5, 5, place * 5 + 9, 30))
    found = {}

    def visit(place):
        job = client.start(photo=client.send(pictures[place]), options=FAST)
        found[place] = read_map(client("GET", client.wait(job)["result"]["files"]["map"]).body)[0]

    threads = [threading.Thread(target=visit, args=(place,)) for place in range(6)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    for place, each in enumerate(pictures):
        wanted = mg.explain(network, each, seed=3, budget="fast", preset="published").map[0].numpy()
        np.testing.assert_array_equal(found[place], wanted)


def test_an_attack_is_compared_with_another_seed(client):
    asked = {"kind": "attack", "photo": "first", "options": FAST, "attack": {"epsilon": 1.0, "steps": 2}}
    result = client.wait(client.start(**asked))["result"]
    moved = next(each for each in result["metrics"] if each["name"] == "normalised_distance")
    before, after = (read_map(client("GET", result["files"][name]).body)[0] for name in ("before", "after"))
    difference = before / np.linalg.norm(before) - after / np.linalg.norm(after)
    assert moved["attacked"] == pytest.approx(np.linalg.norm(difference), rel=1e-4)
    assert moved["attacked"] > moved["two_seeds"]
    assert f"{moved['attacked']:.2f}" in result["sentence"]
    assert client("GET", result["files"]["photo"]).body[:4] == b"\x89PNG"


def test_a_certificate_draws_what_surely_stays(client):
    asked = {"kind": "certify", "photo": "first", "certify": {"sigma": 0.25, "samples": 1000, "sparsity": 0.1}}
    result = client.wait(client.start(**asked))["result"]
    map_, radius = (read_map(client("GET", result["files"][name]).body)[0] for name in ("map", "radius"))
    assert (map_ != 0).sum() == result["active"]
    assert result["stays"] == sorted(result["stays"], reverse=True)
    assert result["stays"][0] > 0
    for epsilon, count in zip(result["epsilons"], result["stays"], strict=True):
        assert (radius >= epsilon * (1 - 1e-6)).sum() == count
    assert not radius[map_ == 0].any()  # nothing outside of the map is said to stay in it


class Broken(nn.Module):
    """Fails on dark pictures."""

    def __init__(self):
        super().__init__()
        self.scale = nn.Parameter(torch.ones(()))

    def forward(self, x):
        if float(x.detach().mean()) < 0.2:
            raise RuntimeError("this network cannot see in the dark")
        return (x.flatten(1)[:, :6] * self.scale).cumsum(1)


class Linear(nn.Module):
    def __init__(self, classes):
        super().__init__()
        self.layer = nn.Linear(3 * 8 * 8, classes)

    def forward(self, x):
        return self.layer(x.flatten(1))


def make_classifier(network, labels=None):
    view = CentreCrop((8, 8), (8, 8), (0.0,) * 3, (1.0,) * 3)
    return Classifier(network.eval().requires_grad_(False), view, "small", labels)


def test_models_of_all_kinds(picture):
    classifiers = {
        "nameless": make_classifier(Linear(4)),
        "single": make_classifier(Linear(1)),
        "many": make_classifier(Linear(21_000), [f"thing {n}" for n in range(21_000)]),
        "broken": make_classifier(Broken()),
    }
    with running(make_studio(classifiers, picture)) as client:
        about = client("GET", "/api/about").json
        assert [each["classes"] for each in about["models"]] == [4, 1, 21_000, 6]
        assert client("GET", "/api/models/nameless/classes").json == {"classes": None}
        assert len(client("GET", "/api/models/many/classes").json["classes"]) == 21_000
        for name in ("nameless", "single", "many"):
            result = client.wait(client.start(photo="first", model=name, options=FAST))["result"]
            assert result["label"] == (f"thing {result['target']}" if name == "many" else None)
        assert client.wait(client.start(photo="first", model="single", options=FAST))["result"]["target"] is None
        dark = client.send(Image.new("RGB", (20, 20), "black"))
        failed = client.wait(client.start(photo=dark, model="broken", method="gradient"))
        assert failed["state"] == "failed"
        assert "cannot see in the dark" in failed["error"]
        assert "Traceback" not in failed["error"]
        assert client.wait(client.start(photo="first", model="broken", method="gradient"))["state"] == "done"


def test_a_read_only_server_shows_its_examples_alone(network, picture):
    with running(make_studio({"n": network}, picture, read_only=True)) as client:
        assert client("POST", "/api/photos", encode(picture)).status == 403
        assert client.wait(client.start(photo="first", method="gradient"))["state"] == "done"
        assert client("GET", "/api/about").json["read_only"]


def test_a_token_lets_in(network, picture):
    with running(make_studio({"n": network}, picture), token="s3cret") as client:
        assert client("GET", "/").status == 401
        assert client("GET", "/?token=wrong").status == 401
        assert client("GET", "/api/about", Authorization="Bearer s3cret").status == 200
        assert client("GET", "/api/about", Authorization="Bearer s3cre").status == 401
        door = client("GET", "/?token=s3cret")
        assert (door.status, door.headers["location"]) == (303, "/")
        cookie = door.headers["set-cookie"]
        assert "HttpOnly" in cookie
        assert "SameSite=Lax" in cookie  # a link in a chat leads in
        pair = cookie.split(";")[0]
        assert f"_{client.port}=" in pair  # another server of this host has another one
        assert client("GET", "/", Cookie=pair).status == 200
        assert client("GET", "/", Cookie=f'a={{"x": 1}}; b; {pair}; c="').status == 200
        assert client("GET", "/", Cookie=pair + "x").status == 401
        assert client("GET", "/?token=s3cret", Cookie=pair).status == 303  # the token does not stay in the address
        assert client("POST", "/api/jobs", {"photo": "first"}).status == 401


def test_the_description_has_every_address_and_no_other(network, picture):
    from moreaugrad.app.server import Api

    studio = make_studio({"n": network}, picture)
    try:
        routes = Api(studio, {}).routes()
    finally:
        studio.jobs.close()
    there = {
        (re.sub(r":\w+}", "}", each.path), method.lower())
        for each in routes
        for method in each.methods - {"HEAD"}
        if each.path.startswith("/api/")
    }
    told = {(path, method) for path, each in describe_api("1")["paths"].items() for method in each}
    assert there == told


class Ending(nn.Module):
    """Ends the program, or names a file."""

    def __init__(self, error):
        super().__init__()
        self.error = error

    def forward(self, x):
        if x.requires_grad:
            raise self.error
        return x.flatten(1)[:, :6]


def test_whatever_a_network_raises_the_next_job_is_done_and_no_folder_is_told(picture):
    errors = {"exit": SystemExit(3), "file": RuntimeError("cannot load '/srv/secret/models/net.pt': 1/2 of it is gone")}
    classifiers = {name: make_classifier(Ending(error)) for name, error in errors.items()}
    with running(make_studio({**classifiers, "linear": make_classifier(Linear(4))}, picture)) as client:
        for name in errors:
            assert client.wait(client.start(photo="first", model=name, method="gradient"))["state"] == "failed"
        failed = client.wait(client.start(photo="first", model="file", method="gradient"))
        assert "cannot load 'net.pt': 1/2 of it is gone" in failed["error"]
        assert "secret" not in failed["error"]
        assert client.wait(client.start(photo="first", model="linear", method="gradient"))["state"] == "done"


def test_the_network_is_asked_by_the_solver_alone(picture):
    """Hooks of a layer, as Grad-CAM has, hear every pass; one of a request would spoil a map."""
    threads, network = set(), Linear(4)
    network.register_forward_hook(lambda *_: threads.add(threading.current_thread().name))
    with running(make_studio({"linear": make_classifier(network)}, picture)) as client:
        threads.clear()  # the classes are counted before anybody asks
        client.wait(client.start(photo="first", target=1, method="gradient"))
        client("GET", "/api/about")
    assert threads == {"solver"}


def test_a_map_is_repeated_with_what_its_network_was_loaded_with(picture):
    from moreaugrad.app.models import Menu
    from moreaugrad.app.recipe import Recipe

    loaded = {"weights": "net.safetensors", "size": (8, 8), "mean": [0.5, 0.5, 0.5]}
    menu = Menu({"linear": make_classifier(Linear(4))}, {"linear": loaded})
    recipe = Recipe("linear", menu.loaded["linear"], "cpu", "smoothgrad", 3, {"quality": "fast", "noise_level": 0.2}, 9)
    assert recipe.command == (
        "moreaugrad explain photo.jpg --model linear --weights net.safetensors --size 8,8 --mean 0.5,0.5,0.5 "
        "--method smoothgrad --target 3 --quality fast --noise-level 0.2 --device cpu"
    )
    assert "('linear', weights='net.safetensors', size=(8, 8), mean=[0.5, 0.5, 0.5], device='cpu')" in recipe.python
    assert "'smoothgrad', target=3, noise_level=0.2, samples=9)" in recipe.python


def test_results_and_photos_are_forgotten_in_time_and_by_size(monkeypatch, picture):
    from moreaugrad.app import jobs, photos
    from moreaugrad.app.jobs import Job, JobQueue, JobResult

    line, store = JobQueue(), photos.PhotoStore()
    try:
        _, second = (line.add(Job(lambda job: JobResult({}, {}, 300_000_000))) for _ in range(2))
        while second.state != "done":
            time.sleep(0.01)
        line.forget()
        assert list(line._jobs) == [second.key]  # both together are too large
        key, _ = store.add(encode(picture))
        monkeypatch.setattr(photos, "KEPT_SECONDS", -1)
        monkeypatch.setattr(jobs, "KEPT_SECONDS", -1)
        for kept, name in ((line, second.key), (store, key)):
            with pytest.raises(Exception, match="unknown one"):
                kept[name]
    finally:
        line.close()


def test_a_job_that_never_ran_is_known_for_a_while_too(monkeypatch):
    """However long the machine has been up: how long a job is kept counts from its end."""
    from moreaugrad.app import jobs
    from moreaugrad.app.jobs import Job, JobQueue, JobResult

    now = time.monotonic
    monkeypatch.setattr(jobs, "time", SimpleNamespace(monotonic=lambda: now() + 1e6))
    hold, line = threading.Event(), JobQueue()
    try:
        line.add(Job(lambda job: hold.wait(20) and JobResult({}, {})))
        second = line.add(Job(lambda job: JobResult({}, {})))
        line.stop(second)
        assert line[second.key].state == "stopped"
    finally:
        hold.set()
        line.close()


def test_a_line_that_is_full_refuses_and_old_results_go(monkeypatch):
    from moreaugrad.app import jobs as module
    from moreaugrad.app.jobs import Job, JobQueue, JobResult
    from moreaugrad.app.refusal import Refusal

    monkeypatch.setattr(module, "MOST_WAITING", 3)
    monkeypatch.setattr(module, "KEPT", 2)
    hold, line = threading.Event(), JobQueue()
    try:
        first = line.add(Job(lambda job: hold.wait(20) and JobResult({}, {})))
        while first.state == "waiting":
            time.sleep(0.01)
        rest = [line.add(Job(lambda job: JobResult({}, {}))) for _ in range(3)]
        assert [line.ahead(each) for each in rest] == [1, 2, 3]
        with pytest.raises(Refusal) as full:
            line.add(Job(lambda job: JobResult({}, {})))
        assert (full.value.status, full.value.headers["Retry-After"]) == (503, "10")
        line.stop(rest[0])  # whoever waits no more leaves at once, and makes room
        assert rest[0].state == "stopped"
        rest.append(line.add(Job(lambda job: JobResult({}, {}))))
        hold.set()
        while rest[-1].state != "done":
            time.sleep(0.01)
        last = line.add(Job(lambda job: JobResult({}, {})))
        with pytest.raises(Refusal, match="unknown"):
            line[first.key]
        assert line[last.key] is last
    finally:
        hold.set()
        line.close()
