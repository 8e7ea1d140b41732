"""What is right about an answer of the page."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

from reliability.fuzz.case import PACKAGE
from reliability.fuzz.page import HOST, Answer, Header, Page, Request

SECRETS = (
    "Traceback",
    "site-packages",
    PACKAGE,
    str(Path(__file__).parents[2]),
    str(Path.home()),
    ".py",
    "<PIL",
    " at 0x",
)
OWN: Header = (b"host", HOST)
Faults = Iterator[str | None]


def first_fault(found: object) -> str | None:
    assert isinstance(found, list)
    return next((fault for fault in found if fault), None)


def check_answer(request: Request, answer: Answer | None) -> Faults:
    """What is wrong with an answer of the application."""
    from moreaugrad.app.guard import HEADERS

    if answer is None:
        yield None if not request.whole else "no answer at all"
        return
    told = f"{answer.status} {answer.body[:300]!r}"
    text = answer.body.decode("utf-8", "replace")
    yield (
        f"answered {told}"
        if answer.status >= 500 and not (answer.status == 503 and answer.header(b"retry-after"))
        else None
    )
    yield "a header was injected" if any(name.lower() == b"x-injected" for name, _ in answer.headers) else None
    yield (
        f"a header is no line: {answer.headers}"
        if any({10, 13, 0} & {*name, *value} for name, value in answer.headers)
        else None
    )
    missing = [name for name, value in HEADERS.items() if answer.header(name.lower().encode()) != value.encode()]
    yield f"headers that protect are missing: {missing}" if missing else None
    if answer.status >= 400 and request.method != "HEAD":
        yield None if is_refusal(answer) else f"a refusal without a sentence: {told}"
        yield find_secret(text)
    if answer.status < 300 and answer.header(b"content-type") == b"application/json":
        yield None if is_json(text) or request.method == "HEAD" else f"no JSON: {told}"


def check_alive(page: Page, *headers: Header) -> Faults:
    """Whether the page still answers a plain request, and said nothing of errors in between."""
    answer = page.ask(Request(headers=[OWN, *headers]))
    yield None if answer is not None and answer.status == 200 else f"no longer answers: {answer}"
    said, page.said[:] = list(page.said), []
    yield f"an error in the log: {said}" if said else None


def is_refusal(answer: Answer) -> bool:
    try:
        found = json.loads(answer.body)
    except ValueError:
        return False
    return isinstance(found, dict) and set(found) == {"error"} and is_sentence(found["error"])


def is_sentence(text: object) -> bool:
    return isinstance(text, str) and 10 < len(text) < 700 and "\n" not in text and find_secret(text) is None


def find_secret(text: str) -> str | None:
    """A word that is none of a visitor's business."""
    return next((f"tells of {word!r}: {text[:300]!r}" for word in SECRETS if word in text), None)


def is_json(text: str) -> bool:
    def refuse(word: str) -> None:
        raise ValueError(word)

    try:
        json.loads(text, parse_constant=refuse)
    except ValueError:
        return False
    return True
