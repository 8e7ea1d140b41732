"""What a request brings along: a photo or JSON, within limits of size and time."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from python_multipart.exceptions import FormParserError
from python_multipart.multipart import MultipartParser, parse_options_header
from starlette.requests import ClientDisconnect, Request

from moreaugrad.app.photos import MOST_BYTES
from moreaugrad.app.refusal import Refusal

MOST_JSON, PATIENCE = 65_536, 30.0  # bytes of a request's JSON; seconds that sending a request may take
MOST_PARTS = 5  # of a form
DRAIN = 5.0  # seconds for the rest of a request that is refused


async def read_photo(request: Request) -> bytes:
    """The bytes of a photo: the body itself, or the one file of a form."""
    kind = request.headers.get("content-type", "")
    if not kind.startswith("multipart/form-data"):
        return await _read_body(request, MOST_BYTES, "a photo")
    files = read_form(kind, await _read_body(request, MOST_BYTES + 65_536, "a photo"))
    if len(files) != 1:
        raise Refusal(400, f"a form must have one file, got {len(files)}")
    return files[0]


def read_form(kind: str, body: bytes) -> list[bytes]:
    """The files of a form with that content type."""
    form = _Form()
    calls: Any = {name: getattr(form, name) for name in vars(_Form) if name.startswith("on_")}
    try:
        parser = MultipartParser(parse_options_header(kind)[1][b"boundary"], calls)
        parser.write(body)
        parser.finalize()
    except (KeyError, FormParserError) as error:
        raise Refusal(400, "a form must have one file, got a damaged one") from error
    return form.files


class _Form:
    """Keeps the files of a form in memory: those of Starlette may lie on the disk, which may be full."""

    def __init__(self) -> None:
        self.files: list[bytes] = []
        self._parts = 0

    def on_part_begin(self) -> None:
        self._parts += 1
        if self._parts > MOST_PARTS:
            raise Refusal(400, f"a form must have one file and at most {MOST_PARTS - 1} other fields, got more")
        self._headers: list[list[bytes]] = [[b"", b""]]
        self._content: bytearray | None = None

    def on_header_field(self, data: bytes, start: int, end: int) -> None:
        self._headers[-1][0] += data[start:end]

    def on_header_value(self, data: bytes, start: int, end: int) -> None:
        self._headers[-1][1] += data[start:end]

    def on_header_end(self) -> None:
        self._headers.append([b"", b""])

    def on_headers_finished(self) -> None:
        said = next((value for name, value in self._headers if name.lower() == b"content-disposition"), b"")
        self._content = bytearray() if b"filename" in parse_options_header(said)[1] else None

    def on_part_data(self, data: bytes, start: int, end: int) -> None:
        if self._content is not None:
            self._content += data[start:end]

    def on_part_end(self) -> None:
        if self._content is not None:
            self.files.append(bytes(self._content))


async def _read_body(request: Request, most: int, what: str) -> bytes:
    """The body, of at most so many bytes, within `PATIENCE`."""
    sentence = f"{what} must have at most {most / 1e6:.3g} MB"
    length = request.headers.get("content-length", "")
    if length.isdecimal() and int(length) > most:
        await _drain(request)
        raise Refusal(413, f"{sentence}, got {int(length) / 1e6:.3g} MB", {"Connection": "close"})
    found = bytearray()
    try:
        async with asyncio.timeout(PATIENCE):
            async for piece in request.stream():
                found += piece
                if len(found) > most:
                    raise Refusal(413, f"{sentence}, got more", {"Connection": "close"})
    except TimeoutError:
        raise Refusal(408, f"a request must be sent within {PATIENCE:g} s", {"Connection": "close"}) from None
    except ClientDisconnect:
        raise Refusal(400, "the request ended too soon") from None
    return bytes(found)


async def _drain(request: Request) -> None:
    """Take in a body that is refused for a moment: a client that still sends when it is cut off reads no answer."""
    if "expect" in request.headers:  # it waits for a word before it sends
        return
    taken = 0
    with suppress(TimeoutError, ClientDisconnect):
        async with asyncio.timeout(DRAIN):
            async for piece in request.stream():
                taken += len(piece)
                if taken > MOST_BYTES * 2:
                    return


async def read_json(request: Request) -> Mapping[str, Any]:
    body = await _read_body(request, MOST_JSON, "JSON")
    try:
        found = json.loads(body)
    except (ValueError, RecursionError):
        raise Refusal(400, "the body must be JSON, got something else") from None
    if not isinstance(found, dict):
        raise Refusal(400, f"the body must be a JSON object, got {type(found).__name__}")
    return found
