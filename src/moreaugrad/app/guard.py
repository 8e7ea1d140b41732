"""Who may ask: by the right host, from the own page, with the token where one is set. Frameworks leave that open."""

from __future__ import annotations

import ipaddress
import json
import secrets
from collections.abc import Awaitable, Callable, Collection, Iterable, MutableMapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import parse_qs, urlsplit

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
Application = Callable[[Scope, Receive, Send], Awaitable[None]]

LOOPBACK = ("127.0.0.1", "localhost", "::1")
COOKIE = "moreaugrad_token"
HEADERS = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' blob:; "
    "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "camera=(), microphone=(), geolocation=()",
}


def is_local(host: str) -> bool:
    """Whether only this machine can reach an address."""
    if host in LOOPBACK:
        return True
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False


@dataclass(frozen=True)
class Guard:
    """Lets requests through that may be served, and puts the headers on every answer.

    Args:
        app: what serves them.
        hosts: names by which the server may be called; a literal address is well where `any_address`.
        token: what a visitor must know; None: everybody who reaches the server may ask.
        any_address: whether the server listens on all addresses of the machine.
    """

    app: Application
    hosts: Collection[str] = LOOPBACK
    token: str | None = None
    any_address: bool = False

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        headers = {name.decode("latin-1").lower(): value.decode("latin-1") for name, value in scope["headers"]}

        async def send_guarded(message: Message) -> None:
            if message["type"] == "http.response.start":
                own = [(name.encode(), value.encode()) for name, value in HEADERS.items()]
                message = {**message, "headers": [*message.get("headers", []), *own]}
            await send(message)

        if not self._knows_host(headers.get("host", "")):
            await refuse(send_guarded, 400, "the Host header must name this server; see --allow-host")
        elif self._is_foreign(scope, headers):
            await refuse(send_guarded, 403, "the request must come from the server's own page, got another origin")
        elif self._is_at_the_door(scope):  # also with the cookie: the token must not stay in the address
            # lax: a link in a chat or on another page leads in; what such a page asks by itself is refused above
            cookie = f"{name_cookie(scope)}={self.token}; HttpOnly; SameSite=Lax; Path=/"
            await answer(send_guarded, 303, b"", [("Location", "/"), ("Set-Cookie", cookie)])
        elif self.token is None or self._has_token(scope, headers):
            await self.app(scope, receive, send_guarded)
        else:
            await refuse(
                send_guarded, 401, "the token is missing or wrong; open the address that `moreaugrad serve` printed"
            )

    def _knows_host(self, host: str) -> bool:
        try:
            name = urlsplit(f"//{host}").hostname or ""
        except ValueError:
            return False
        if name in self.hosts:
            return True
        try:
            ipaddress.ip_address(name)
        except ValueError:
            return False
        return self.any_address

    def _is_foreign(self, scope: Scope, headers: dict[str, str]) -> bool:
        """Whether another site's page asks. Its reading is stopped by the browser, its writing must be by us."""
        site = headers.get("sec-fetch-site")
        page = scope["method"] in ("GET", "HEAD") and not scope["path"].startswith("/api/")
        if site is not None and site not in ("same-origin", "none") and not page:
            return True
        origin = headers.get("origin")
        return origin is not None and find_place(origin) != headers.get("host") and not page

    def _has_token(self, scope: Scope, headers: dict[str, str]) -> bool:
        kind, _, given = headers.get("authorization", "").partition(" ")
        if kind.lower() == "bearer" and self._is_token(given.strip()):
            return True
        # by hand: other servers of this host share the header, and their cookies may be anything
        cookies = (each.strip().partition("=") for each in headers.get("cookie", "").split(";"))
        return any(name == name_cookie(scope) and self._is_token(value) for name, _, value in cookies)

    def _is_at_the_door(self, scope: Scope) -> bool:
        if self.token is None or scope["method"] != "GET" or scope["path"] != "/":
            return False
        asked = parse_qs(scope.get("query_string", b"").decode("latin-1"))
        return any(self._is_token(each) for each in asked.get("token", []))

    def _is_token(self, given: str) -> bool:
        return self.token is not None and secrets.compare_digest(given.encode(), self.token.encode())


def find_place(address: str) -> str | None:
    """The host and port in an address; None where it is none."""
    try:
        return urlsplit(address).netloc
    except ValueError:
        return None


def name_cookie(scope: Scope) -> str:
    """Cookies of one host are shared by all its ports, so that each server has a name of its own."""
    server = scope.get("server")
    return COOKIE if server is None else f"{COOKIE}_{server[1]}"


async def refuse(send: Send, status: int, sentence: str) -> None:
    await answer(send, status, json.dumps({"error": sentence}).encode(), [("Content-Type", "application/json")])


async def answer(send: Send, status: int, body: bytes, headers: Iterable[tuple[str, str]]) -> None:
    listed = [(name.lower().encode(), value.encode()) for name, value in headers]
    listed += [(b"content-length", str(len(body)).encode()), (b"cache-control", b"no-store")]
    await send({"type": "http.response.start", "status": status, "headers": listed})
    await send({"type": "http.response.body", "body": body})
