"""`serve`: the web page. Heavy imports are made inside, after the port is taken."""

from __future__ import annotations

import gc
import logging
import secrets
import socket
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, ClassVar

import typer

from moreaugrad.cli.command import complete, option
from moreaugrad.cli.options import ModelOptions, Quiet, model_names
from moreaugrad.cli.terminal import Terminal
from moreaugrad.models import find_entry

if TYPE_CHECKING:
    from moreaugrad.app.models import Menu
    from moreaugrad.app.photos import PhotoStore

log = logging.getLogger("moreaugrad")

PORT, TRIED = 7860, 100  # ports above the asked one that are tried, to offer one that is free
MOST_EXAMPLES = 50
NEEDED = ("starlette", "uvicorn", "python_multipart")

Examples = Annotated[
    Path | None, typer.Option(help="A folder of photos to offer, the first one shown at once.", show_default="a cat")
]
ReadOnly = Annotated[bool, typer.Option("--read-only", help="Offer the examples only; take no photos.")]


@dataclass(frozen=True)
class NetworkOptions:
    """Where the page is served, and to whom."""

    panel: ClassVar[str] = "Network"

    host: str = option("The address to listen on; any but this machine's own has a token.", default="127.0.0.1")
    port: int = option("The port to listen on.", default=PORT)
    token: str | None = option(
        "What visitors must know to get in; it is part of the printed address.", shown="drawn where one is needed"
    )
    allow_host: list[str] | None = option(  # noqa: RUF009
        "Another name by which visitors call this server, as behind a proxy, with a token; may be repeated.",
        metavar="NAME",
    )

    def __post_init__(self) -> None:
        if not 0 <= self.port <= 65535:
            raise ValueError(f"--port must be from 0 to 65535, got {self.port}")
        if self.token is not None and not (
            self.token.isascii() and self.token.replace("-", "").replace("_", "").isalnum()
        ):
            raise ValueError("--token must be letters, digits, - and _, got something else")

    def with_token(self) -> NetworkOptions:
        """With a token, where the address needs one."""
        from moreaugrad.app.guard import is_local

        needed = self.token is None and (self.allow_host is not None or not is_local(self.host))
        return replace(self, token=secrets.token_urlsafe(16)) if needed else self

    @property
    def names(self) -> tuple[str, ...]:
        """By which the server may be called."""
        from moreaugrad.app.guard import LOOPBACK

        return (*LOOPBACK, self.host.lower(), *(each.lower() for each in self.allow_host or ()))

    @contextmanager
    def listen(self) -> Iterator[socket.socket]:
        """A socket on the port; where it is taken, the next free one is named."""
        made = _bind(self.host, self.port)
        if made is None:
            free = next((port for port in range(self.port + 1, self.port + TRIED) if _is_free(self.host, port)), None)
            offer = "choose another" if free is None else f"--port {free} is free"
            raise ValueError(f"--port must be free, got {self.port}, which another program uses; {offer}")
        with made:
            yield made


def serve(
    *,
    model: ModelOptions,
    more: Annotated[
        list[str] | None,
        typer.Option(
            "--also",
            metavar="MODEL",
            help="A further model for the menu, by its name or package.module:factory; may be repeated.",
            autocompletion=complete(model_names),
        ),
    ] = None,
    network: NetworkOptions,
    examples: Examples = None,
    read_only: ReadOnly = False,
    quiet: Quiet = False,
) -> int:
    """Serve a page on which people drop a photo and see why: maps, comparisons, attacks and certificates.

    The page asks nothing of any other machine. Press Ctrl-C to stop it.
    """
    if missing := [name for name in NEEDED if find_spec(name) is None]:
        raise ImportError(f"serve needs {', '.join(missing)}, not installed here; pip install 'moreaugrad[serve]'")
    for name in more or ():
        find_entry(name)
    terminal = Terminal(quiet)
    terminal.hear_warnings()
    with network.listen() as place, without_collector() as resume:
        network = network.with_token()
        photos = make_photos(examples)
        menu = make_menu(model, more or [], terminal)
        resume()
        run(menu, photos, read_only, network, place)
    return 0


def make_menu(model: ModelOptions, more: list[str], terminal: Terminal) -> Menu:
    """The networks of the menu, checked."""
    from moreaugrad.app.models import Menu

    asked = [model, *(ModelOptions(model=name, device=model.device) for name in more)]
    found, loaded = {}, {}
    for each in asked:
        classifier = each.load(terminal)
        classifier.check()
        files = {"weights": each.weights, "labels": each.labels}  # visitors learn their names, not where they are
        given = {name: Path(path).name for name, path in files.items() if path is not None} | each.view
        found[each.model] = classifier
        loaded[each.model] = {name: value for name, value in given.items() if value is not None}
    return Menu(found, loaded)


def make_photos(folder: Path | None) -> PhotoStore:
    """The examples: those of a folder, or the one that is built in."""
    from moreaugrad.app.photos import PhotoStore
    from moreaugrad.app.refusal import Refusal

    found = PhotoStore()
    if folder is None:
        found.add_example("Chelsea the cat", read_chelsea(), "chelsea")
        return found
    if not folder.is_dir():
        raise ValueError(f"--examples must be a folder, got {str(folder)!r}")
    for path in sorted(each for each in folder.iterdir() if each.is_file())[:MOST_EXAMPLES]:
        try:
            found.add_example(path.stem, path.read_bytes())
        except Refusal as error:
            log.warning("%s is left out: %s", path.name, error)
    if not found.examples:
        raise ValueError(f"--examples must hold photos, got {str(folder)!r} without any")
    return found


def read_chelsea() -> bytes:
    """The file of `skimage.data.chelsea()`; the import of scikit-image would take most of a second."""
    spec = find_spec("skimage")
    assert spec is not None
    assert spec.origin is not None
    return (Path(spec.origin).parent / "data" / "chelsea.png").read_bytes()


@contextmanager
def without_collector() -> Iterator[Callable[[], None]]:
    """Looks for no garbage among what imports make, as nearly all of it stays: that is a sixth of their time.

    What it gives, when called, lets the collector look after all that is made from then on.
    """

    def resume() -> None:
        gc.freeze()
        gc.enable()

    gc.disable()
    try:
        yield resume
    finally:
        gc.unfreeze()  # what is never freed makes libraries complain at the exit
        gc.enable()


def run(menu: Menu, photos: PhotoStore, read_only: bool, network: NetworkOptions, place: socket.socket) -> None:
    """Serve until somebody stops it."""
    from moreaugrad.app.connections import make_server
    from moreaugrad.app.server import Studio, make_app

    studio = Studio(menu, photos, read_only=read_only)
    app = make_app(studio, network.names, network.token, network.host in ("0.0.0.0", "::"))
    port, query = place.getsockname()[1], "" if network.token is None else f"?token={network.token}"
    shown = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(network.host, network.host)
    shown = f"[{shown}]" if ":" in shown else shown
    sys.stdout.write(f"http://{shown}:{port}/{query}\n")
    sys.stdout.flush()
    studio.warm_up()
    make_server(app, studio.jobs.stop_all).run(sockets=[place])


def _bind(host: str, port: int) -> socket.socket | None:
    """A listening socket; None where the port is taken."""
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
    except socket.gaierror:
        raise ValueError(f"--host must be an address of this machine, got {host!r}") from None
    made = socket.socket(family, kind, protocol)
    try:
        made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        made.bind(address)
        made.listen(128)
    except PermissionError:
        made.close()
        raise ValueError(f"--port must be one that you may use, got {port}; take one above 1023") from None
    except OSError as error:
        made.close()
        if "cannot assign" in str(error).lower():
            raise ValueError(f"--host must be an address of this machine, got {host!r}") from None
        return None
    return made


def _is_free(host: str, port: int) -> bool:
    made = _bind(host, port)
    if made is not None:
        made.close()
    return made is not None
