"""Requests to the page, right and wrong: addresses, headers, bodies, jobs and connections."""

from __future__ import annotations

import json
import random
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from reliability.fuzz.case import Case
from reliability.fuzz.page import (
    HOST,
    LONGEST,
    TOKEN,
    Header,
    Page,
    Request,
    count_handles,
    served,
    shared_page,
)
from reliability.fuzz.request_bytes import make_form, make_junk, make_upload
from reliability.fuzz.request_checks import (
    OWN,
    Faults,
    check_alive,
    check_answer,
    find_secret,
    first_fault,
    is_sentence,
)
from reliability.fuzz.request_words import (
    FIELDS,
    HOSTS,
    METHODS,
    ODD_TARGETS,
    TARGETS,
    make_job,
    spoil_json,
    write_json,
)

OVER = ("done", "failed", "stopped")


def prepare() -> None:
    """Both servers, before the first case."""
    shared_page()
    shared_page(TOKEN)


def make_case(chance: random.Random) -> Case:
    """One way to ask."""
    kind = chance.choices(list(KINDS), [share for _, share in KINDS.values()])[0]
    return KINDS[kind][0](chance)


def ask_address(chance: random.Random) -> Case:
    return tell_request("address", choose_request(chance))


def ask_locked(chance: random.Random) -> Case:
    """Without the token, or with it: then in one of three ways."""
    request = choose_request(chance)
    right = chance.random() < 0.3
    ways: list[Header] = [
        (b"authorization", b"Bearer " + TOKEN.encode()),
        (b"cookie", b"a=b; moreaugrad_token_7860=" + TOKEN.encode()),
    ]
    if right:
        extra = chance.choice(ways)
        headers = [each for each in request.headers if each[0] != extra[0]]
        request = Request(request.method, request.target, [*headers, extra], request.pieces)
    return Case(f"locked, token {right}: {describe(request)}", partial(_ask_locked, request, right), first_fault)


def ask_job(chance: random.Random) -> Case:
    """A job, odd or not, followed to its end."""
    job = make_job(chance)
    body = write_json(chance, spoil_json(chance, job) if chance.random() < 0.65 else job)
    after = chance.choice(["wait", "wait", "stop", "events"])
    return Case(f"job, {after}: {body[:150]!r}", partial(_ask_job, body, after), first_fault)


def ask_upload(chance: random.Random) -> Case:
    headers: list[Header] = [OWN]
    if chance.random() < 0.6:
        kind, body = make_form(chance)
        headers.append((b"content-type", kind))
    else:
        body = make_upload(chance)
    if chance.random() < 0.2:
        headers.append(chance.choice(FIELDS))
    pieces = [body] if chance.random() < 0.7 else [body[:10], body[10:200], b"", body[200:]]
    return tell_request("upload", Request("POST", b"/api/photos", headers, pieces, chance.random() < 0.9))


def ask_by_socket(chance: random.Random) -> Case:
    """Bytes on a connection: a request as text, or junk."""
    if chance.random() < 0.6:
        content = make_junk(chance)
    else:
        request = choose_request(chance)
        lines = [b"%s %s HTTP/1.1" % (request.method.encode(), request.target)]
        lines += [name + b": " + value for name, value in request.headers]
        body = b"".join(request.pieces)
        lengths = [] if chance.random() < 0.1 else [b"content-length: %d" % len(body)]
        content = b"\r\n".join([*lines, *lengths, b"connection: close", b"", body])
    return Case(f"socket: {content[:150]!r}", partial(_ask_by_socket, content), first_fault)


def start_and_stop(chance: random.Random) -> Case:
    """A server of its own, asked a few things and ended while a job runs; afterwards nothing of it is left."""
    requests = [choose_request(chance) for _ in range(3)]
    body = json.dumps(make_job(chance)).encode()
    return Case(f"start, ask, stop: {requests[0].target[:60]!r}", partial(_start_and_stop, requests, body), first_fault)


def choose_request(chance: random.Random) -> Request:
    target = chance.choice(chance.choice([TARGETS, ODD_TARGETS]))
    host = OWN if chance.random() < 0.85 else (b"host", chance.choice(HOSTS))
    headers = [host, *chance.sample(FIELDS, chance.choice([0, 1, 1, 2, 4]))]
    method = chance.choice(["GET", "GET", "GET", "POST", *METHODS])
    body = chance.choice([b"", b"", b"{}", b"x" * 1000, make_upload(chance)])
    return Request(method, target, headers, [body], chance.random() < 0.95)


def tell_request(what: str, request: Request) -> Case:
    return Case(f"{what}: {describe(request)}", partial(_ask_open, request), first_fault)


def describe(request: Request) -> str:
    """A request in a line."""
    headers = ", ".join(f"{name.decode()}: {value[:60]!r}" for name, value in request.headers[1:])
    return f"{request.method} {request.target[:80]!r} ({headers}) {b''.join(request.pieces)[:60]!r}"


def _ask_open(request: Request, folder: Path) -> list[str | None]:
    page = shared_page()
    return [*check_answer(request, page.ask(request)), *check_alive(page)]


def _ask_locked(request: Request, right: bool, folder: Path) -> list[str | None]:
    page = shared_page(TOKEN)
    answer = page.ask(request)
    found = [*check_answer(request, answer)]
    if answer is not None and not right and answer.status not in (400, 401, 403):
        found.append(f"got in without the token: {answer.status} {answer.body[:200]!r}")
    if answer is not None and right and answer.status == 401:
        found.append("the right token was refused")
    return [*found, *check_alive(page, (b"authorization", b"Bearer " + TOKEN.encode()))]


def _ask_job(body: bytes, after: str, folder: Path) -> list[str | None]:
    page = shared_page()
    request = Request("POST", b"/api/jobs", [OWN, (b"content-type", b"application/json")], [body])
    answer = page.ask(request)
    found = [*check_answer(request, answer)]
    if answer is not None and answer.status == 201:
        found += follow(page, json.loads(answer.body)["id"], after)
    return [*found, *check_alive(page)]


def follow(page: Page, key: str, after: str) -> Faults:
    """A job to its end, and what it left."""
    place = f"/api/jobs/{key}".encode()
    if after == "stop":
        yield from check_answer(request := Request("DELETE", place), page.ask(request))
    if after == "events":
        yield from check_answer(request := Request("GET", place + b"/events"), page.ask(request))
    state = wait_for(page, place)
    yield f"a job that never ends: {state}" if state["state"] not in OVER else None
    yield (
        f"a job failed with no sentence: {state}"
        if state["state"] == "failed" and not is_sentence(state["error"])
        else None
    )
    for address in ((state["result"] or {}).get("files") or {}).values():
        yield from check_answer(request := Request("GET", address.encode()), answer := page.ask(request))
        yield f"no file at {address}" if answer is None or answer.status != 200 or not answer.body else None


def wait_for(page: Page, place: bytes) -> Any:
    until = time.monotonic() + LONGEST
    while True:
        answer = page.ask(Request("GET", place))
        assert answer is not None
        state = json.loads(answer.body)
        if state["state"] in OVER or time.monotonic() > until:
            return state
        time.sleep(0.002)


def _ask_by_socket(content: bytes, folder: Path) -> list[str | None]:
    page = shared_page()
    said = page.send(content)
    found: list[str | None] = [None if page.rest() else "still works for a client who has left"]
    if said:
        head = said.partition(b"\r\n\r\n")[0]
        status = int(head.split()[1]) if head.startswith(b"HTTP/1.1 ") else 0
        found.append(None if 200 <= status < 500 else f"answered {said[:300]!r}")
        found.append(find_secret(said.decode("latin-1")))
        found.append(f"a header was injected: {head!r}" if b"x-injected" in head.lower() else None)
    alive = page.send(b"GET /api/about HTTP/1.1\r\nhost: " + HOST + b"\r\nconnection: close\r\n\r\n")
    found.append(None if alive.startswith(b"HTTP/1.1 200 ") else f"no longer answers: {alive[:200]!r}")
    return [*found, *check_alive(page)]


def _start_and_stop(requests: list[Request], body: bytes, folder: Path) -> list[str | None]:
    shared_page()  # what is loaded once counts for nothing
    found: list[str | None] = []
    before = count_handles()
    with served() as page:
        page.send(b"GET / HTTP/1.1\r\nhost: " + HOST + b"\r\nconnection: close\r\n\r\n")
        page.ask(Request("POST", b"/api/jobs", [OWN], [body]))
        for each in requests:
            found += check_answer(each, page.ask(each))
    until = time.monotonic() + 3  # a network in the middle of a pass is not waited for
    while (after := count_handles()) > before and time.monotonic() < until:
        time.sleep(0.01)
    found.append(f"threads and handles: {before} before, {after} after" if after > before else None)
    return [*found, *page.said]


KINDS: dict[str, tuple[Callable[[random.Random], Case], float]] = {
    "address": (ask_address, 25),
    "locked": (ask_locked, 15),
    "job": (ask_job, 33),
    "upload": (ask_upload, 15),
    "socket": (ask_by_socket, 11),
    "start and stop": (start_and_stop, 1),
}
