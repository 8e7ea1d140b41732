"""The page with a small network: asked in this process as a server asks it, and through a real socket."""

from __future__ import annotations

import asyncio
import logging
import socket
import sys
import threading
import time
from collections.abc import Iterator, MutableMapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any
from urllib.parse import unquote

from reliability.fuzz.command_inputs import photo

ROOT = Path(__file__).parents[2]
TOKEN = "open-sesame_1"
HOST = b"127.0.0.1:7860"
LONGEST = 8.0  # seconds until an answer, or a job, must have come to an end

Header = tuple[bytes, bytes]


@dataclass(frozen=True)
class Request:
    """What a client sends: the target as it stands in the first line, and the body in pieces.

    Attributes:
        whole: False where the client leaves before the end of the body.
    """

    method: str = "GET"
    target: bytes = b"/api/about"
    headers: Sequence[Header] = ((b"host", HOST),)
    pieces: Sequence[bytes] = (b"",)
    whole: bool = True


@dataclass(frozen=True)
class Answer:
    """What came back."""

    status: int
    headers: Sequence[Header]
    body: bytes

    def header(self, name: bytes) -> bytes:
        return next((value for key, value in self.headers if key.lower() == name), b"")


@dataclass
class Counted:
    """An application that knows how many requests it is at, also of clients who have left."""

    app: Any
    working: int = 0

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        self.working += scope["type"] == "http"
        try:
            await self.app(scope, receive, send)
        finally:
            self.working -= scope["type"] == "http"


@dataclass
class Page:
    """The application, and the port of the thread that serves it."""

    app: Counted
    studio: Any
    port: int
    said: list[str] = field(default_factory=list)  # to its log, of errors

    def ask(self, request: Request) -> Answer | None:
        """The answer of the application alone; None where it gave none."""
        return asyncio.run(asyncio.wait_for(_ask(self.app, request), LONGEST))

    def send(self, content: bytes, close: bool = True) -> bytes:
        """What a server answers to bytes on a connection, until it hangs up; `close`: no more of them will come."""
        with socket.create_connection(("127.0.0.1", self.port), timeout=LONGEST) as line:
            found = bytearray()
            try:
                line.sendall(content)
                if close:
                    line.shutdown(socket.SHUT_WR)
                while piece := line.recv(1 << 16):
                    found += piece
            except (ConnectionResetError, BrokenPipeError):
                pass  # it need not read what it refuses
            return bytes(found)

    def rest(self) -> bool:
        """Waits until no request is under way any more; whether that came true."""
        until = time.monotonic() + LONGEST
        while self.app.working and time.monotonic() < until:
            time.sleep(0.002)
        return not self.app.working


async def _ask(app: Any, request: Request) -> Answer | None:
    path, _, query = request.target.partition(b"?")
    pieces = list(request.pieces)
    found: list[MutableMapping[str, Any]] = []
    over = asyncio.Event()

    async def receive() -> dict[str, Any]:
        if pieces:
            piece = pieces.pop(0)
            return {"type": "http.request", "body": piece, "more_body": bool(pieces) or not request.whole}
        if request.whole:
            await over.wait()
        return {"type": "http.disconnect"}

    async def send(message: MutableMapping[str, Any]) -> None:
        found.append(message)

    scope: dict[str, Any] = {
        "type": "http",
        "asgi": {"version": "3.0", "spec_version": "2.3"},
        "http_version": "1.1",
        "scheme": "http",
        "server": ("127.0.0.1", 7860),
        "client": ("127.0.0.1", 1),
        "root_path": "",
        "state": {},
        "method": request.method,
        "path": unquote(path.decode("ascii")),
        "raw_path": path,
        "query_string": query,
        "headers": [(name.lower(), value) for name, value in request.headers],
    }
    await app(scope, receive, send)
    over.set()
    if not found:
        return None
    body = b"".join(each.get("body", b"") for each in found[1:])
    return Answer(found[0]["status"], list(found[0]["headers"]), body)


@contextmanager
def served(token: str | None = None) -> Iterator[Page]:
    """A server in a thread, until the end of the block."""
    from moreaugrad.app.connections import make_server
    from moreaugrad.app.models import Menu
    from moreaugrad.app.server import Studio, make_app

    studio = Studio(Menu({"small": load_network()}))
    studio.photos.add_example("noise", photo(), "first")
    app = Counted(make_app(studio, token=token))
    with socket.socket() as place:
        place.bind(("127.0.0.1", 0))
        server = make_server(app, studio.jobs.stop_all, "error")
        page = Page(app, studio, place.getsockname()[1])
        thread = threading.Thread(target=server.run, kwargs={"sockets": [place]}, daemon=True)
        with hearing(page.said):
            thread.start()
            while not server.started:
                time.sleep(0.005)
            try:
                yield page
            finally:
                server.should_exit = True
                thread.join(20)


@contextmanager
def hearing(said: list[str]) -> Iterator[None]:
    """Notes what servers say of errors."""

    class Ear(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            said.append(f"{record.getMessage()} {record.exc_info[1]!r}" if record.exc_info else record.getMessage())

    ear = Ear(logging.WARNING)
    loggers = [logging.getLogger(name) for name in ("uvicorn.error", "asyncio")]
    for each in loggers:
        each.addHandler(ear)
    try:
        yield
    finally:
        for each in loggers:
            each.removeHandler(ear)


@cache
def load_network() -> Any:
    """A classifier of three classes that answers at once."""
    import moreaugrad as mg

    sys.path.append(str(ROOT / "tests" / "support"))
    # the first two set a variable of the environment, and a filter of warnings, when they are loaded
    for name in ("torch._dynamo", "skimage.segmentation.slic_superpixels", "moreaugrad.app.server"):
        import_module(name)
    return mg.load_model("small_network:Curved")


@cache
def shared_page(token: str | None = None) -> Page:
    """A page for all cases of a process, which ends with it."""
    running = served(token)
    page = running.__enter__()
    _alive.append(running)
    return page


_alive: list[Any] = []


def count_handles() -> tuple[int, int]:
    """Threads, and files and sockets, of this process."""
    place = Path("/proc/self/fd")
    return threading.active_count(), len(list(place.iterdir())) if place.exists() else 0
