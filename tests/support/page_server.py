"""A real server on a free port, with a small network; and a client that is nothing but the standard library."""

import http.client
import json
import socket
import threading
import time
from contextlib import contextmanager
from dataclasses import dataclass
from io import BytesIO

import pytest

pytest.importorskip("uvicorn", reason="needs moreaugrad[serve]")


@dataclass
class Answer:
    status: int
    headers: dict
    body: bytes

    @property
    def json(self):
        return json.loads(self.body)


@dataclass
class Client:
    port: int

    def __call__(self, method, path, body=None, **headers):
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        given = {"Host": f"127.0.0.1:{self.port}"} | {name.replace("_", "-"): value for name, value in headers.items()}
        if isinstance(body, dict | list):
            body = json.dumps(body).encode()
        try:
            connection.request(method, path, body, given)
            answer = connection.getresponse()
            found = {name.lower(): value for name, value in answer.getheaders()}
            return Answer(answer.status, found, answer.read())
        finally:
            connection.close()

    def send(self, picture, kind="PNG"):
        """A photo; its id."""
        content = picture if isinstance(picture, bytes) else encode(picture, kind)
        answer = self("POST", "/api/photos", content)
        assert answer.status == 201, answer.body
        return answer.json["id"]

    def start(self, **body):
        answer = self("POST", "/api/jobs", body)
        assert answer.status == 201, answer.body
        return answer.json["id"]

    def wait(self, job, seconds=60):
        """The state of a job when it is over."""
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            found = self("GET", f"/api/jobs/{job}").json
            if found["state"] in ("done", "failed", "stopped"):
                return found
            time.sleep(0.02)
        raise AssertionError(f"job {job} is not over")

    def events(self, job):
        """All events of a job, until it is over."""
        lines = self("GET", f"/api/jobs/{job}/events").body.decode().strip().split("\n\n")
        return [(each.split("\n")[0][7:], json.loads(each.split("\n")[1][6:])) for each in lines]


def encode(picture, kind="PNG"):
    picture.save(handle := BytesIO(), kind)
    return handle.getvalue()


@contextmanager
def running(studio, **options):
    """The server in a thread; its client."""
    from moreaugrad.app.connections import make_server
    from moreaugrad.app.server import make_app

    place = socket.socket()
    place.bind(("127.0.0.1", 0))
    server = make_server(make_app(studio, **options), studio.jobs.stop_all, "error")
    thread = threading.Thread(target=server.run, kwargs={"sockets": [place]}, daemon=True)
    thread.start()
    while not server.started:
        time.sleep(0.01)
    try:
        yield Client(place.getsockname()[1])
    finally:
        server.should_exit = True
        thread.join(20)
        place.close()


def make_studio(classifiers, picture, **options):
    from moreaugrad.app.models import Menu
    from moreaugrad.app.server import Studio

    studio = Studio(Menu(classifiers), **options)
    studio.photos.add_example("a slope", encode(picture), "first")
    return studio
