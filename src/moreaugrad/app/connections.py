"""How connections are served: in time, and to an end."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from types import FrameType
from typing import Any

import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

from moreaugrad.app.guard import Application

HEADER_PATIENCE = 10.0  # seconds that the head of a request may take; its body has `server.PATIENCE`
MOST_CONNECTIONS = 500


class Connection(H11Protocol):
    """Closes a connection on which no whole head of a request arrives in time: silent ones would fill the server."""

    _late: asyncio.TimerHandle | None = None

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        self._hurry()

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        self._hurry()

    def connection_lost(self, exc: Exception | None) -> None:
        self._calm()
        super().connection_lost(exc)

    def _hurry(self) -> None:
        if not self._is_between_requests():
            self._calm()
        elif self._late is None:
            self._late = self.loop.call_later(HEADER_PATIENCE, self._close)

    def _calm(self) -> None:
        if self._late is not None:
            self._late.cancel()
            self._late = None

    def _close(self) -> None:
        self._late = None
        if self._is_between_requests():
            self.transport.close()

    def _is_between_requests(self) -> bool:
        return self.cycle is None or self.cycle.response_complete


class Server(uvicorn.Server):
    """Stops the jobs before it waits for the connections that listen to them."""

    def __init__(self, config: uvicorn.Config, stop: Callable[[], None]) -> None:
        super().__init__(config)
        self._stop = stop

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        self._stop()
        super().handle_exit(sig, frame)


def make_server(app: Application, stop: Callable[[], None], log_level: str = "warning") -> Server:
    """A server for an application; `stop` is called when somebody ends it."""
    return Server(
        uvicorn.Config(
            app,
            http=Connection,
            log_level=log_level,
            server_header=False,
            timeout_graceful_shutdown=1,
            limit_concurrency=MOST_CONNECTIONS,
        ),
        stop,
    )
