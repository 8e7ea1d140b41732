"""What browsers, scripts and attackers send in words: addresses, headers and JSON."""

from __future__ import annotations

import json
import random
from typing import Any

from reliability.fuzz.page import HOST, Header

METHODS = ["GET", "HEAD", "POST", "PUT", "DELETE", "PATCH", "OPTIONS", "TRACE", "CONNECT", "get", "FOO", "PROPFIND"]
TARGETS = [
    *(
        b"/",
        b"/api/about",
        b"/api/openapi.json",
        b"/api/models/small/classes",
        b"/static/page.css",
        b"/static/page.html",
    ),
    *(b"/api/photos/first/thumbnail", b"/api/photos/first/crop", b"/api/photos/first/crop?model=small"),
    *(b"/api/photos", b"/api/jobs", b"/api/jobs/x", b"/api/jobs/x/events", b"/api/jobs/x/map", b"/api/photos/x/crop"),
]
ODD_TARGETS = [
    *(
        b"/static/../server.py",
        b"/static/..%2fserver.py",
        b"/static/%2e%2e/%2e%2e/etc/passwd",
        b"/static/..%5cserver.py",
    ),
    *(b"/static/%00", b"/static/page.css%00", b"/static/page.css%00.js", b"/static/", b"/static", b"/static/page.css/"),
    *(b"/static/" + 3000 * b"a" + b".js", b"/static/%ff%fe.js", b"/static/%", b"/static/%zz", b"/static/%u0041"),
    *(b"//evil.example/", b"///", b"/./api/about", b"/api//about", b"/api/about/", b"/API/ABOUT", b"/api/about%20"),
    *(b"/api/photos/%2e%2e/crop", b"/api/photos/first%2fcrop", b"/api/photos//crop", b"/api/photos/%00/crop"),
    *(
        b"/api/photos/first/crop?model=%00",
        b"/api/photos/first/crop?model=",
        b"/api/photos/first/crop?model=a&model=small",
    ),
    *(b"/api/photos/first/crop?" + b"&".join(b"a=%d" % n for n in range(3000)), b"/api/about?" + b"x" * 9000),
    *(
        b"/api/models/../classes",
        b"/api/models//classes",
        b"/api/models/a/b/c/classes",
        b"/api/models/%ed%a0%80/classes",
    ),
    *(b"/api/models/small%0d%0aX-Injected:%201/classes", b"/api/jobs/%0d%0aX-Injected:1", b"/api/jobs/" + b"a" * 5000),
    *(b"/api/jobs/x/map%2e%2e", b"/api/jobs/x/../../about", b"/api/jobs/x/%2fetc%2fpasswd", b"/api/jobs/%f0%9f%92%a5"),
    *(
        b"/?token=",
        b"/?token=wrong",
        b"/?token=a&token=b",
        b"/?%00",
        b"/?token=%ff",
        b"*",
        b"/\\evil",
        b"/;a=b",
        b"/?a=;b",
    ),
    *(
        b"http://evil.example/api/about",
        b"/docs",
        b"/openapi.json",
        b"/.git/config",
        b"/etc/passwd",
        b"/proc/self/environ",
    ),
]
HOSTS = [
    *(
        b"evil.example",
        b"127.0.0.1.evil.example",
        b"",
        b"[::",
        b"[::1]",
        b"10.0.0.1",
        b"localhost",
        b"LOCALHOST:1",
        b"::1",
    ),
    *(
        b"127.0.0.1:notaport",
        b"127.0.0.1:99999999",
        b"a@127.0.0.1",
        b"127.0.0.1/evil",
        b"\xff\xfe",
        b"[::1]x",
        b"[v1.x]",
    ),
    *(b"127.0.0.1?x", b"127.0.0.1#x", b" 127.0.0.1", b"0x7f.1", b"2130706433", b"\xe2\x84\x80.com", b"a\xe2\x84\x80b"),
]
ORIGINS = [
    *(
        b"http://" + HOST,
        b"https://" + HOST,
        b"null",
        b"",
        b"http://evil.example",
        b"http://[::",
        b"http://[::1",
        b"//" + HOST,
    ),
    *(b"http://127.0.0.1:1", b"javascript:alert(1)", b"\xff", b"http://\xe2\x84\x80", b"http://a]b", b"http://[x]/"),
]
FIELDS: list[Header] = [
    *((b"origin", each) for each in ORIGINS),
    *((b"sec-fetch-site", each) for each in (b"same-origin", b"cross-site", b"same-site", b"none", b"", b"\xff", b"x")),
    *(
        (b"range", each)
        for each in (b"bytes=0-10", b"bytes=10-0", b"bytes=-1", b"bytes=0-" + b"9" * 99, b"x", b"bytes=,,")
    ),
    *((b"if-none-match", each) for each in (b"*", b'"x"', b"")),
    *((b"if-modified-since", each) for each in (b"Thu, 01 Jan 2099 00:00:00 GMT", b"yesterday", b"")),
    *(
        (b"cookie", each)
        for each in (b"", b";;;", b"a=b; " * 900, b"moreaugrad_token=x", b"\xff=\xfe", b"moreaugrad_token_7860")
    ),
    *(
        (b"cookie", b"moreaugrad_token_7860=" + each)
        for each in (b"", b"wrong", b"\xff", b'"open-sesame_1"', b"x" * 5000)
    ),
    *(
        (b"authorization", each)
        for each in (b"", b"Bearer", b"Bearer wrong", b"Basic eDp5", b"bearer  \xff", b"Bearer " + b"x" * 9000)
    ),
    *(
        (b"content-type", each)
        for each in (b"", b"text/html", b"application/json; charset=utf-99", b"\xff", b"multipart/form-data")
    ),
    *((b"content-encoding", each) for each in (b"gzip", b"br", b"x")),
    *(
        (b"content-length", each)
        for each in (b"0", b"5", b"25000000", b"99999999999999999", b"-1", b"+5", b"5, 6", b"x")
    ),
    *((b"transfer-encoding", each) for each in (b"chunked", b"gzip, chunked", b"identity", b"x")),
    *((b"expect", each) for each in (b"100-continue", b"x")),
    *((b"upgrade", b"websocket"), (b"connection", b"Upgrade"), (b"accept", b"\xff"), (b"accept-encoding", b"gzip;q=x")),
    *(
        (b"x-forwarded-for", b"evil"),
        (b"x-forwarded-proto", b"\xff"),
        (b"x-http-method-override", b"DELETE"),
        (b"te", b"x"),
    ),
]
# a number or word that JSON writers of other languages write, and json.dumps does not
RAW = [
    "1e999",
    "-1e999",
    "9" * 4000,
    "9" * 5000,
    "1.0000000000000000000001",
    "-0",
    "NaN",
    "Infinity",
    '"\\ud800"',
    "[" * 9000,
]
ODD: list[Any] = [
    *(
        None,
        True,
        False,
        [],
        {},
        "",
        " ",
        "x",
        "x" * 3000,
        -1,
        0,
        1.5,
        10**30,
        -(10**30),
        1e308,
        float("nan"),
        float("inf"),
    ),
    *(
        ["first"],
        {"a": 1},
        [[]],
        "\ud800",
        "\0",
        "first\n",
        "../../etc/passwd",
        "http://127.0.0.1:9/",
        "__class__",
        "<b>",
    ),
    *("NaN", "1", [1, 2], {"budget": 3}, 2**31, 2**63, 2**64, 0.1, 1e-300),
]
OPTIONS: dict[str, list[Any]] = {
    "preset": ["published", "robust"],
    "quality": ["fast"],
    "sparsity": [0.0001, 0.05, 1],
    "noise_level": [0, 0.1, 2],
    "statistic": ["mean", "rms", "votes", "geometric"],
    "rho": [0, 0.5, 1000],
    "groups": [1, 2, 64, "channels", "superpixels"],
    "seed": [0, 7, 2**31 - 1],
}
NAMES = ["gradient", "smoothgrad", "sparse_moreau", "moreau", "group_sparse_moreau", "integrated_gradients", "deeplift"]


def make_job(chance: random.Random) -> dict[str, Any]:
    """A job that a browser might ask for; every method is not for every option."""
    kind = chance.choices(["explain", "attack", "certify"], [8, 1, 1])[0]
    job: dict[str, Any] = {"photo": "first", "kind": kind}
    if chance.random() < 0.5:
        job["target"] = chance.choice([0, 1, 2, None])
    if kind != "certify":
        job["method"] = chance.choice(NAMES)
        chosen = chance.sample(list(OPTIONS), chance.choice([0, 0, 1, 1, 2]))
        job["options"] = {"quality": "fast"} if job["method"] in NAMES[1:5] else {}
        job["options"] |= {name: chance.choice(OPTIONS[name]) for name in chosen}
    if kind == "attack":
        job["attack"] = {"steps": 1, "epsilon": chance.choice([0.001, 1, 100])}
    if kind == "certify":
        job["certify"] = {"samples": 100, "sigma": chance.choice([0.01, 0.25, 10])}
    return job


def spoil_json(chance: random.Random, value: Any) -> Any:
    """The same with something odd in it, at any depth."""
    if isinstance(value, dict) and value and chance.random() < 0.85:
        name = chance.choice(list(value))
        found = dict(value)
        way = chance.random()
        if way < 0.75:
            found[name] = spoil_json(chance, found[name])
        elif way < 0.9:
            found[chance.choice(["extra", "network", "budget", "", "\ud800", "model", "options", name.upper()])] = (
                chance.choice(ODD)
            )
        else:
            del found[name]
        return found
    return f"@{chance.choice(RAW)}@" if chance.random() < 0.2 else chance.choice(ODD)


def write_json(chance: random.Random, value: Any) -> bytes:
    """JSON, with what only others write put in, and sometimes spoiled as bytes."""
    text = json.dumps(value, ensure_ascii=chance.random() < 0.9)
    for raw in RAW:
        text = text.replace(json.dumps(f"@{raw}@"), raw)
    content = text.encode(errors="surrogatepass")
    way = chance.random()
    if way < 0.03:
        return content[: chance.randrange(len(content) + 1)]
    if way < 0.06:
        return content.replace(b"{", b'{"photo": "first", "photo": 3, ', 1)
    if way < 0.09:
        return chance.choice([b"\xef\xbb\xbf", b"\0", b"[", b"'", b"\xff"]) + content
    if way < 0.11:
        return text.encode(chance.choice(["utf-16", "utf-32"]), errors="surrogatepass")
    if way < 0.12:
        return content + b" " * 70_000
    return content
