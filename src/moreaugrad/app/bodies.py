"""What a request brings along: a photo or JSON, within limits of size and time."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request

from moreaugrad.app.photos import MOST_BYTES
from moreaugrad.app.refusal import Refusal

MOST_JSON, PATIENCE = 65_536, 30.0  # bytes of a request's JSON; seconds that sending a request may take
DRAIN = 5.0  # seconds for the rest of a request that is refused


async def read_photo(request: Request) -> bytes:
    """The bytes of a photo: the body itself, or the one file of a form."""
    if request.headers.get("content-type", "").startswith("multipart/form-data"):
        body = await _read_body(request, MOST_BYTES + 65_536, "a photo")
        request._body = body  # the form is read from what is there already
        try:
            async with request.form(max_files=1, max_fields=4) as form:
                uploads = [each for each in form.values() if not isinstance(each, str)]
                if len(uploads) != 1:
                    raise Refusal(400, f"a form must have one file, got {len(uploads)}")
                return await uploads[0].read()
        except HTTPException as error:
            raise Refusal(400, "a form must have one file, got a damaged one") from error
    return await _read_body(request, MOST_BYTES, "a photo")


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
