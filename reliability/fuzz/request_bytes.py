"""What browsers, scripts and attackers send in bytes: forms, photos, and what is hardly HTTP."""

from __future__ import annotations

import random

from reliability.fuzz.command_inputs import photo
from reliability.fuzz.page import HOST


def make_form(chance: random.Random) -> tuple[bytes, bytes]:
    """The content type and body of a form, mostly a damaged one."""
    boundary = chance.choice([b"xyz", b"", b"a b", b'"q"', b"x" * 300, b"\xff", b"--", b"xyz"])
    kind = b"multipart/form-data" + chance.choice(
        [b"; boundary=" + boundary] * 5 + [b"", b"; boundary", b"; charset=no; boundary=xyz"]
    )
    name = chance.choice([b'name="photo"', b"name=photo", b"", b'name=""', b'name="\xff"', b'name="a"; name="b"'])
    file = chance.choice(
        [
            b'; filename="a.png"',
            b'; filename="../../x.png"',
            b"",
            b'; filename="\0"',
            b"; filename*=utf-8''%ff",
            b'; filename="',
        ]
    )
    more = chance.choice(
        [
            b"",
            b"",
            b"Content-Type: image/png\r\n",
            b"X: " + b"y" * 20_000 + b"\r\n",
            b"broken\r\n",
            b": x\r\n",
            b"\xff: x\r\n",
        ]
    )
    part = b"--" + boundary + b"\r\nContent-Disposition: form-data; " + name + file + b"\r\n" + more + b"\r\n"
    part += chance.choice([photo(), photo(), b"junk", b""]) + b"\r\n"
    body = part * chance.choice([1, 1, 1, 2, 0, 9])
    end = chance.choice(
        [b"--" + boundary + b"--\r\n"] * 4 + [b"", b"--" + boundary, b"--other--", b"--" + boundary + b"--junk"]
    )
    return kind, chance.choice([body + end] * 5 + [body.replace(b"\r\n", b"\n") + end, b"\r\n" + body + end, end])


def make_upload(chance: random.Random) -> bytes:
    """The bytes of a photo, or what is none."""
    whole = bytearray(photo(chance.randrange(3)))
    way = chance.random()
    if way < 0.4:
        return bytes(whole)
    if way < 0.7:
        for _ in range(chance.randint(1, 5)):
            whole[chance.randrange(len(whole))] = chance.randrange(256)
        return bytes(whole)
    return chance.choice(
        [bytes(whole[: chance.randrange(len(whole))]), b"", b"junk", b"\0" * 5000, b"GIF89a", b"%!PS", b"<svg/>"]
    )


def make_junk(chance: random.Random) -> bytes:
    """Bytes on a connection that are HTTP in part."""
    line = chance.choice([b"GET /api/about HTTP/1.1", b"POST /api/jobs HTTP/1.1", b"POST /api/photos HTTP/1.1"])
    host = b"Host: " + HOST
    wholes = [
        *(b"", b"\r\n\r\n", b"\0" * 500, b"\x16\x03\x01\x02\x00", b"GET", b"GET /\r\n\r\n", b"GET / HTTP/9.9\r\n\r\n"),
        *(b"GET / HTTP/1.0\r\n\r\n", line + b"\r\n\r\n", line + b"\r\n" + host, line + b"\n" + host + b"\n\n"),
        *(
            line + b"\r\n" + host + b"\r\n" + host + b"\r\n\r\n",
            line + b"\r\nHost : x\r\n\r\n",
            line + b"\r\n" + host + b"\r\n x\r\n\r\n",
        ),
        line + b"\r\n" + host + b"\r\nX: " + b"y" * 70_000 + b"\r\n\r\n",
        line + b"\r\n" + host + b"\r\n" + b"".join(b"X-%d: y\r\n" % n for n in range(300)) + b"\r\n",
        line + b"\r\n" + host + b"\r\nContent-Length: 10\r\nContent-Length: 11\r\n\r\n0123456789",
        line + b"\r\n" + host + b"\r\nContent-Length: 100\r\n\r\nshort",
        line + b"\r\n" + host + b"\r\nContent-Length: 2\r\n\r\n{}GET /api/about HTTP/1.1\r\n" + host + b"\r\n\r\n",
        line + b"\r\n" + host + b"\r\nContent-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n",
        line + b"\r\n" + host + b"\r\nX: a\0b\r\n\r\n",
        line + b"\r\n" + host + b"\r\nX\xff: a\r\n\r\n",
        b"GET /\xff\xfe HTTP/1.1\r\n" + host + b"\r\n\r\n",
        b"GET /a b HTTP/1.1\r\n" + host + b"\r\n\r\n",
        b"GET " + b"/" * 70_000 + b" HTTP/1.1\r\n" + host + b"\r\n\r\n",
        b"GET /api/about HTTP/1.1\r\n"
        + host
        + b"\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Key: x\r\n\r\n",
        (b"GET /api/about HTTP/1.1\r\n" + host + b"\r\n\r\n") * 20,
    ]
    chunks = [
        b"2\r\n{}\r\n0\r\n\r\n",
        b"zz\r\n{}\r\n",
        b"-1\r\n\r\n",
        b"ffffffffffffffff\r\nx",
        b"2\r\n{}",
        b"2;x=\xff\r\n{}\r\n0\r\nA: b\r\n\r\n",
    ]
    wholes += [line + b"\r\n" + host + b"\r\nTransfer-Encoding: chunked\r\n\r\n" + each for each in chunks]
    found = bytearray(chance.choice(wholes))
    if found and chance.random() < 0.2:
        found[chance.randrange(len(found))] = chance.randrange(256)
    return bytes(found)
