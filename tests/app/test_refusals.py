"""What must not get in: odd photos, foreign pages, odd paths and bodies. Each is told what is wrong, and no more."""

import json
import random
import socket
import struct
import tempfile
import zlib
from io import BytesIO
from pathlib import Path

import numpy as np
import pytest
from page_server import encode, make_studio, running
from PIL import Image

from moreaugrad.app import bodies, connections
from moreaugrad.app.guard import HEADERS, Guard, is_local


def png_claiming(width, height):
    """A file of a few bytes that says it has that many pixels."""

    def chunk(name, content):
        return struct.pack(">I", len(content)) + name + content + struct.pack(">I", zlib.crc32(name + content))

    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    lines = zlib.compress(b"\0" * 1000)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", lines) + chunk(b"IEND", b"")


def film(frames):
    first, *rest = (Image.new("RGB", (30, 20), (10 * n, 0, 90)) for n in range(frames))
    first.save(handle := BytesIO(), "GIF", save_all=True, append_images=rest)
    return handle.getvalue()


SVG = b'<svg xmlns="http://www.w3.org/2000/svg"><script>alert(1)</script></svg>'
GOOD = Image.fromarray(np.random.default_rng(1).integers(0, 255, (40, 50, 3), dtype=np.uint8))
DEEP = Image.fromarray(np.random.default_rng(1).integers(0, 65535, (40, 50), dtype=np.uint16))
ODD = {
    "170 megapixels": png_claiming(17_000, 10_000),
    "400 megapixels": png_claiming(20_000, 20_000),
    "41 megapixels": png_claiming(8200, 5000),
    "truncated": encode(GOOD)[:900],
    "truncated jpeg": encode(GOOD, "JPEG")[:700],
    "svg": SVG,
    "text": b"this is no photo",
    "empty": b"",
    "postscript": b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 10 10\n",
    "very long": encode(Image.new("RGB", (5000, 2), "blue")),
    "pickle": b"\x80\x04\x95\x10\x00\x00\x00\x00\x00\x00\x00\x8c\x02os\x94",
}
FINE = {
    "animated": film(4),
    "16-bit": encode(DEEP),
    "cmyk": encode(GOOD.convert("CMYK"), "JPEG"),
    "1 x 1": encode(Image.new("RGB", (1, 1), "red")),
    "palette": encode(GOOD.convert("P")),
    "transparent": encode(GOOD.convert("RGBA")),
    "black and white": encode(GOOD.convert("1")),
    "wide": encode(Image.new("RGB", (3000, 30), "blue")),
    "tiff": encode(GOOD, "TIFF"),
    "webp": encode(GOOD, "WEBP"),
}


@pytest.mark.parametrize("name", ODD)
def test_what_is_no_photo_is_refused_in_one_sentence(client, name):
    answer = client("POST", "/api/photos", ODD[name])
    assert answer.status == 422, answer.body
    check_sentence(answer)


@pytest.mark.parametrize("name", FINE)
def test_odd_photos_get_a_map(client, name):
    job = client.start(photo=client.send(FINE[name]), method="gradient")
    assert client.wait(job)["state"] == "done"


def test_damaged_photos_never_hurt(client):
    """Bytes changed at random: a sentence or a map, and the server lives."""
    chance, whole = random.Random(0), [encode(GOOD, kind) for kind in ("PNG", "JPEG", "GIF", "WEBP", "TIFF", "BMP")]
    for number in range(120):
        content = bytearray(whole[number % len(whole)])
        for _ in range(chance.randint(1, 8)):
            content[chance.randrange(len(content))] = chance.randrange(256)
        answer = client("POST", "/api/photos", bytes(content[: chance.randint(10, len(content))]))
        assert answer.status in (201, 422)
        if answer.status == 422:
            check_sentence(answer)
    assert client("GET", "/api/about").status == 200


def test_a_photo_that_is_too_large_is_refused_before_it_is_read(client):
    answer = client("POST", "/api/photos", b"x" * 100, Content_Length="25000000")
    assert answer.status == 413
    check_sentence(answer)

    def pieces():
        for _ in range(25):
            yield b"y" * 1_000_000

    with socket.create_connection(("127.0.0.1", client.port)) as line:
        head = f"POST /api/photos HTTP/1.1\r\nHost: 127.0.0.1:{client.port}\r\nTransfer-Encoding: chunked\r\n\r\n"
        line.sendall(head.encode())
        try:
            for piece in pieces():
                line.sendall(f"{len(piece):x}\r\n".encode() + piece + b"\r\n")
            line.sendall(b"0\r\n\r\n")
        except OSError:
            pass  # the server hung up, as it should
        line.settimeout(10)
        assert b" 413 " in line.recv(200)


def test_a_form_may_send_the_photo_too(client):
    boundary = "xyz"
    part = f'--{boundary}\r\nContent-Disposition: form-data; name="photo"; filename="../../etc/a.png"\r\n\r\n'.encode()
    body = part + encode(GOOD) + f"\r\n--{boundary}--\r\n".encode()
    kind = f"multipart/form-data; boundary={boundary}"
    assert client("POST", "/api/photos", body, Content_Type=kind).status == 201
    assert client("POST", "/api/photos", b"--xyz--\r\n", Content_Type=kind).status == 400
    assert client("POST", "/api/photos", b"junk", Content_Type="multipart/form-data").status == 400
    assert client("POST", "/api/photos", body[:-9], Content_Type=kind).status == 400  # without its end
    assert client("POST", "/api/photos", part + b"junk\r\n" + body, Content_Type=kind).status == 400
    field = f'--{boundary}\r\nContent-Disposition: form-data; name="a"\r\n\r\nb\r\n'.encode()
    assert client("POST", "/api/photos", 4 * field + body, Content_Type=kind).status == 201
    many = client("POST", "/api/photos", 5 * field + body, Content_Type=kind)
    assert many.status == 400
    check_sentence(many)


def test_the_file_of_a_form_never_lies_on_the_disk(client, monkeypatch):
    """A full disk, or one that others read, is none of its business."""

    def refuse(*given, **options):
        raise OSError("no space left on device")

    monkeypatch.setattr(tempfile, "SpooledTemporaryFile", refuse)
    monkeypatch.setattr("starlette.formparsers.SpooledTemporaryFile", refuse)
    body = b'--xyz\r\nContent-Disposition: form-data; name="photo"; filename="a.png"\r\n\r\n' + encode(GOOD)
    kind = "multipart/form-data; boundary=xyz"
    assert client("POST", "/api/photos", body + b"\r\n--xyz--\r\n", Content_Type=kind).status == 201


def test_a_slow_upload_is_cut_off(network, picture, monkeypatch):
    monkeypatch.setattr(bodies, "PATIENCE", 0.3)
    with running(make_studio({"n": network}, picture)) as client:
        with socket.create_connection(("127.0.0.1", client.port)) as line:
            head = f"POST /api/photos HTTP/1.1\r\nHost: 127.0.0.1:{client.port}\r\nContent-Length: 1000\r\n\r\nabc"
            line.sendall(head.encode())
            line.settimeout(10)
            assert b" 408 " in line.recv(200)
        assert client("GET", "/api/about").status == 200


def test_a_silent_connection_is_closed(network, picture, monkeypatch):
    monkeypatch.setattr(connections, "HEADER_PATIENCE", 0.5)
    with running(make_studio({"n": network}, picture)) as client:
        for sent in (b"", b"GET / HTTP/1.1\r\nHost: 127", b"GET /api/about HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\nGET"):
            with socket.create_connection(("127.0.0.1", client.port)) as line:
                line.sendall(sent)
                line.settimeout(10)
                while line.recv(65536):
                    pass  # until the server hangs up


PATHS = [
    "/static/../server.py",
    "/static/..%2fserver.py",
    "/static/%2e%2e/%2e%2e/etc/passwd",
    "/static/..%5cserver.py",
    "/static/server.py",
    "/static/",
    "/static/page",
    "/static/" + 300 * "a" + ".js",
    "/api/photos/../../etc/passwd/crop",
    "/api/photos/nobody/crop",
    "/api/jobs/nobody",
    "/api/jobs/nobody/events",
    "/api/jobs/nobody/map",
    "/api/nothing",
    "/nothing",
    "/api/models/nobody/classes",
    "/docs",
    "/etc/passwd",
    "//evil.example/",
]


@pytest.mark.parametrize("path", PATHS)
def test_unknown_paths_have_nothing(client, path):
    answer = client("GET", path)
    assert answer.status in (404, 422)
    check_sentence(answer)


BODIES = [
    ({}, 404),
    ({"photo": "http://127.0.0.1:7999/"}, 404),
    ({"photo": "/etc/passwd"}, 404),
    ({"photo": ["first"]}, 404),
    ({"photo": "first", "model": "os:system"}, 422),
    ({"photo": "first", "model": "../../etc/passwd"}, 422),
    ({"photo": "first", "model": 3}, 422),
    ({"photo": "first", "method": "captum/Saliency"}, 422),
    ({"photo": "first", "method": "mask_network"}, 422),
    ({"photo": "first", "method": None}, 422),
    ({"photo": "first", "kind": "shell"}, 422),
    ({"photo": "first", "target": 10}, 422),
    ({"photo": "first", "target": -1}, 422),
    ({"photo": "first", "target": True}, 422),
    ({"photo": "first", "target": "cat"}, 422),
    ({"photo": "first", "options": ["sparsity"]}, 422),
    ({"photo": "first", "options": {"network": "/etc/passwd"}}, 422),
    ({"photo": "first", "options": {"budget": 10**9}}, 422),
    ({"photo": "first", "options": {"quality": "endless"}}, 422),
    ({"photo": "first", "options": {"sparsity": 0}}, 422),
    ({"photo": "first", "options": {"noise_level": -1}}, 422),
    ({"photo": "first", "options": {"rho": "1"}}, 422),
    ({"photo": "first", "options": {"statistic": "rms", "noise_level": 0}}, 422),
    ({"photo": "first", "options": {"seed": 1.5}}, 422),
    ({"photo": "first", "method": "group_sparse_moreau", "options": {"groups": 100_000}}, 422),
    ({"photo": "first", "method": "group_sparse_moreau", "options": {"groups": "files"}}, 422),
    ({"photo": "first", "kind": "attack", "attack": {"epsilon": 10**6}}, 422),
    ({"photo": "first", "kind": "attack", "attack": {"steps": 10**6}}, 422),
    ({"photo": "first", "kind": "attack", "attack": "all"}, 422),
    ({"photo": "first", "kind": "certify", "certify": {"samples": 10**9}}, 422),
    ({"photo": "first", "surprise": 1}, 422),
    ({"photo": "first", "options": {"seed": 10**400}}, 422),
    ({"photo": "first", "target": 10**400}, 422),
    ([1, 2], 400),
    (b"{", 400),
    (b"[" * 30_000, 400),
    (b"\xff\xfe", 400),
    (b'{"photo": "first", "options": {"rho": NaN}}', 422),
    (b'{"photo": "' + b"a" * 70_000 + b'"}', 413),
]


@pytest.mark.parametrize("place", range(len(BODIES)))
def test_odd_requests_are_refused(client, place):
    body, status = BODIES[place]
    answer = client("POST", "/api/jobs", body)
    assert answer.status == status, answer.body
    check_sentence(answer)


@pytest.mark.parametrize(
    ("method", "headers", "status"),
    [
        ("GET", {"Host": "evil.example"}, 400),
        ("GET", {"Host": "127.0.0.1.evil.example"}, 400),
        ("GET", {"Host": ""}, 400),
        ("GET", {"Host": "[::"}, 400),
        ("GET", {"Host": "10.0.0.1"}, 400),
        ("POST", {"Origin": "http://evil.example"}, 403),
        ("POST", {"Origin": "null"}, 403),
        ("POST", {"Origin": "http://[::"}, 403),
        ("GET", {"Origin": "http://[x]/"}, 403),
        ("POST", {"Sec_Fetch_Site": "cross-site"}, 403),
        ("POST", {"Sec_Fetch_Site": "same-site"}, 403),
        ("DELETE", {"Origin": "http://127.0.0.1:1"}, 403),
        ("GET", {"Sec_Fetch_Site": "cross-site"}, 403),
        ("PUT", {}, 405),
    ],
)
def test_other_hosts_and_pages_are_refused(client, method, headers, status):
    answer = client(method, "/api/jobs/x" if method in ("GET", "DELETE") else "/api/jobs", b"", **headers)
    assert answer.status == status
    check_sentence(answer)


def test_the_own_page_may_ask(client):
    own = {"Origin": f"http://127.0.0.1:{client.port}", "Sec_Fetch_Site": "same-origin"}
    assert client("POST", "/api/jobs", {"photo": "first", "method": "gradient"}, **own).status == 201
    assert client("GET", "/", Sec_Fetch_Site="cross-site").status == 200  # a link on another page leads here


@pytest.mark.parametrize("path", ["/", "/api/about", "/nothing", "/api/jobs/x", "/static/page.css"])
def test_every_answer_has_the_headers_that_protect_it(client, path):
    answer = client("GET", path)
    for name, value in HEADERS.items():
        assert answer.headers[name.lower()] == value
    assert "server" not in answer.headers or "uvicorn" in answer.headers["server"]


def test_which_hosts_a_guard_knows():
    listening = Guard(app=None, hosts=("127.0.0.1", "maps.example"), any_address=True)
    known = {"10.0.0.1:80": True, "[fe80::1]:80": True, "maps.example:1": True, "other.example": False, "": False}
    assert {host: listening._knows_host(host) for host in known} == known
    assert [is_local(host) for host in ("localhost", "127.0.0.9", "::1", "0.0.0.0", "10.0.0.1", "me")] == [
        *[True] * 3,
        *[False] * 3,
    ]


def check_sentence(answer):
    """One sentence in JSON, without what is none of the visitor's business."""
    text = answer.json["error"]
    assert 5 < len(text) < 600
    for word in (
        "Traceback",
        str(Path(__file__).parents[2]),
        str(Path.home()),
        "site-packages",
        ".py",
        "\n",
        "<PIL",
        "0x",
    ):
        assert word not in text
    assert json.loads(answer.body).keys() == {"error"}
