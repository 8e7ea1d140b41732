"""`serve` before it serves: ports, addresses, tokens, examples, models, and what is not installed."""

import gc
import socket

import numpy as np
import pytest
from PIL import Image

from moreaugrad.cli import serve

pytest.importorskip("uvicorn", reason="needs moreaugrad[serve]")
NET = ["--model", "lipschitz_cifar10", "--device", "cpu"]


@pytest.fixture
def served(monkeypatch):
    """Notes what would be served, and returns at once."""
    seen = []
    monkeypatch.setattr(serve, "run", lambda *given: seen.append(given))
    return seen


def test_a_port_in_use_offers_a_free_one(refuses):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        refuses(f"got {port}, which another program uses; --port ", "serve", *NET, "--port", port)


def test_the_extra_is_named_where_it_is_missing(refuses, monkeypatch):
    monkeypatch.setattr(serve, "find_spec", lambda name: None if name == "starlette" else True)
    refuses("serve needs starlette, not installed here; pip install 'moreaugrad[serve]'", "serve", *NET)


@pytest.mark.parametrize(
    ("words", "typed"),
    [
        ("--port must be from 0 to 65535, got 70000", ["--port", "70000"]),
        ("--host must be an address of this machine, got '203.0.113.7'", ["--host", "203.0.113.7", "--port", "0"]),
        ("--host must be an address of this machine, got 'no.such.host.invalid'", ["--host", "no.such.host.invalid"]),
        ("--token must be letters, digits, - and _", ["--token", "a b"]),
        ("--examples must be a folder", ["--examples", "nowhere", "--port", "0"]),
        ("--examples must hold photos", ["--examples", ".", "--port", "0"]),
        ("model must be one of", ["--also", "no_such_model", "--port", "0"]),
    ],
)
def test_what_cannot_be_served_is_refused(refuses, words, typed, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    refuses(words, "serve", *NET, *typed)


def test_own_machine_needs_no_token_and_others_do(run, served):
    assert run("serve", *NET, "--port", "0")[0] == 0
    assert run("serve", *NET, "--port", "0", "--host", "0.0.0.0")[0] == 0
    assert run("serve", *NET, "--port", "0", "--host", "0.0.0.0", "--token", "mine")[0] == 0
    assert run("serve", *NET, "--port", "0", "--allow-host", "Maps.Example")[0] == 0  # behind a proxy all may come
    *networks, proxied = [network for _, _, _, network, _ in served]
    assert len(proxied.token) >= 16
    assert "maps.example" in proxied.names
    tokens = [network.token for network in networks]
    assert tokens[0] is None
    assert len(tokens[1]) >= 16
    assert tokens[2] == "mine"


def test_models_and_examples_of_the_own_are_offered(run, served, tmp_path):
    Image.new("RGB", (40, 30), "red").save(tmp_path / "b.png")
    Image.new("RGB", (30, 40), "blue").save(tmp_path / "a.jpg")
    (tmp_path / "notes.txt").write_text("no photo")
    typed = ["--also", "resnet18_softplus_cifar10", "--examples", tmp_path, "--read-only"]
    code, _, err = run("serve", *NET, "--port", "0", *typed)
    assert code == 0
    assert "warning: notes.txt is left out: a photo must be" in err
    ((menu, photos, read_only, _, _),) = served
    assert list(menu.classifiers) == ["lipschitz_cifar10", "resnet18_softplus_cifar10"]
    assert [each.name for each in photos.examples.values()] == ["a", "b"]
    assert read_only


def test_the_photo_that_is_built_in_is_scikit_images(run, served):
    from skimage.data import chelsea

    assert run("serve", *NET, "--port", "0")[0] == 0
    ((_, photos, *_),) = served
    (photo,) = photos.examples.values()
    assert photo.use(lambda picture: np.array_equal(np.asarray(picture), chelsea()))
    assert gc.isenabled()
    assert gc.get_freeze_count() == 0
