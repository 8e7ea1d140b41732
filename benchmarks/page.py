"""How long visitors of `moreaugrad serve` wait, and what the server does under load and under odd uploads.

Starts the server as people do. In Chromium: from the command to the first map (of the first start, and of a later one,
which has kept the map of the built-in photo), a page that is loaded again, the share
slider, an explanation with its progress, Stop, and a tab that is closed. Then many visitors at once, each with a photo
of its own, whose maps are compared with those computed alone; then uploads that are no photos, or odd ones.

python -m benchmarks.page [--visitors 20] [--seconds 120] [--uploads 500] [--model efficientnet_lite0]
"""

from __future__ import annotations

import http.client
import json
import os
import random
import shutil
import statistics
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from io import BytesIO
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
from PIL import Image

import moreaugrad as mg
from benchmarks import record

BROWSER = shutil.which("chromium")
ARGUMENTS = ["--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-component-update"]
SLIDE = """async () => {
  const share = document.querySelector('#share'), times = [];
  for (let step = 0; step < 40; step++) {
    const began = performance.now();
    share.value = String(Number(share.min) + (Number(share.max) - Number(share.min)) * step / 39);
    share.dispatchEvent(new Event('input', {bubbles: true}));
    await new Promise(requestAnimationFrame);
    await new Promise(requestAnimationFrame);
    times.push(performance.now() - began);
  }
  return times;
}"""


@dataclass
class Server:
    """A running `moreaugrad serve`."""

    process: subprocess.Popen[str]
    port: int
    began: float
    pages: list[float] = field(default_factory=list)

    @property
    def megabytes(self) -> float:
        """Memory that it holds now."""
        for line in Path(f"/proc/{self.process.pid}/status").read_text().splitlines():
            if line.startswith("VmRSS"):
                return int(line.split()[1]) / 1024
        return 0.0

    @property
    def most_megabytes(self) -> float:
        """The most that it ever held."""
        for line in Path(f"/proc/{self.process.pid}/status").read_text().splitlines():
            if line.startswith("VmHWM"):
                return int(line.split()[1]) / 1024
        return 0.0

    def ask(self, method: str, path: str, body: Any = None) -> tuple[int, bytes]:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=300)
        try:
            with suppress(BrokenPipeError, ConnectionResetError):  # refused while it was sent; the answer is there
                connection.request(method, path, json.dumps(body) if isinstance(body, dict) else body)
            answer = connection.getresponse()
            return answer.status, answer.read()
        finally:
            connection.close()

    def explain(self, photo: str, **options: Any) -> tuple[str, dict[str, Any]]:
        """The state of a job when it is over, and its result."""
        status, body = self.ask("POST", "/api/jobs", {"photo": photo, "options": options})
        while status == 503:
            time.sleep(1)
            status, body = self.ask("POST", "/api/jobs", {"photo": photo, "options": options})
        job = json.loads(body)["id"]
        while (found := json.loads(self.ask("GET", f"/api/jobs/{job}")[1]))["state"] in ("waiting", "running"):
            time.sleep(0.1)
        return found["state"], found["result"] or {"error": found["error"]}


@contextmanager
def serving(model: str, cache: Path, port: int = 7981) -> Iterator[Server]:
    began = time.perf_counter()
    command = [sys.executable, "-m", "moreaugrad", "serve", "--model", model, "--port", str(port)]
    environment = os.environ | {"OMP_WAIT_POLICY": "PASSIVE", "XDG_CACHE_HOME": str(cache)}
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment) as process:
        try:
            assert process.stdout is not None
            process.stdout.readline()
            yield Server(process, port, began)
        finally:
            process.terminate()


def main() -> None:
    args = record.arguments(__doc__, data=False, visitors=20, seconds=120, uploads=500, model="efficientnet_lite0")
    found: dict[str, Any] = {}
    with TemporaryDirectory() as name, open_browser() as browser:
        cache = Path(name)
        with serving(args.model, cache) as server:
            first = wait_for_map(server, open_page(browser, server))
        with serving(args.model, cache) as server:
            found["page"] = {"seconds_at_the_first_start": first} | measure_page(server, browser)
        print(json.dumps(found["page"]), flush=True)
    with TemporaryDirectory() as name, serving(args.model, Path(name)) as server:
        found["visitors"] = measure_visitors(server, args.model, args.visitors, args.seconds)
        print(json.dumps(found["visitors"]), flush=True)
    with TemporaryDirectory() as name, serving(args.model, Path(name)) as server:
        found["uploads"] = measure_uploads(server, args.uploads)
        print(json.dumps(found["uploads"]), flush=True)
    record.store("page", "cpu", found, args.out)


@contextmanager
def open_browser() -> Iterator[Any]:
    """A browser that is open before the server starts, as visitors have it."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as tool:
        browser = tool.chromium.launch(executable_path=BROWSER, args=ARGUMENTS)
        yield browser
        browser.close()


def open_page(browser: Any, server: Server) -> Any:
    page = browser.new_page(viewport={"width": 1280, "height": 900})
    page.goto(f"http://127.0.0.1:{server.port}/")
    return page


def wait_for_map(server: Server, page: Any) -> float:
    """Seconds from the start of the command until the first map is drawn."""
    page.wait_for_selector("body[data-state=done]", timeout=120_000)
    return time.perf_counter() - server.began


def measure_page(server: Server, browser: Any) -> dict[str, Any]:
    """What a visitor waits for, in a browser."""
    found: dict[str, Any] = {}
    home = f"http://127.0.0.1:{server.port}/"
    found["seconds_from_command_to_first_map"] = wait_for_map(server, open_page(browser, server))
    again = browser.new_page(viewport={"width": 1280, "height": 900})
    requests: list[str] = []
    again.on("request", lambda request: requests.append(request.url))
    began = time.perf_counter()
    again.goto(home)
    again.wait_for_selector("#classes button[data-target]", timeout=60_000)
    found["seconds_until_ready"] = time.perf_counter() - began
    again.wait_for_selector("body[data-state=done]", timeout=60_000)
    again.wait_for_timeout(300)
    found["requests_of_a_page"] = len(requests)
    requests.clear()
    times = again.evaluate(SLIDE)
    found["slider_ms"] = {"median": statistics.median(times), "most": max(times), "requests": len(requests)}
    found["explanation"] = measure_explanation(server)
    found["seconds_to_stop"] = stop_a_long_map(again)
    found["seconds_until_idle_after_a_closed_tab"] = close_tab(server, again)
    return found


# in the page, at once: a small network may be done before a click from here arrives
CLICK_STOP = "() => document.body.dataset.state === 'running' && (document.querySelector('#stop').click(), true)"


def stop_a_long_map(page: Any) -> float:
    """Seconds from a click on Stop until the page says that it stopped."""
    page.evaluate("document.body.dataset.state = 'asked'")
    page.select_option("#quality", "best")
    page.wait_for_function(CLICK_STOP, timeout=60_000)
    began = time.perf_counter()
    page.wait_for_selector("body[data-state=stopped]", timeout=60_000)
    return time.perf_counter() - began


def close_tab(server: Server, page: Any) -> float:
    """Seconds until another visitor's job begins, after a tab with a long job was closed."""
    page.evaluate("document.body.dataset.state = 'asked'")
    page.click("#again")
    page.wait_for_selector("body[data-state=running]", timeout=60_000)
    status, body = server.ask("POST", "/api/jobs", {"photo": "chelsea", "method": "gradient"})
    assert status == 201
    job = json.loads(body)["id"]
    began = time.perf_counter()
    page.close()
    while json.loads(server.ask("GET", f"/api/jobs/{job}")[1])["state"] == "waiting":
        time.sleep(0.02)
    return time.perf_counter() - began


def measure_explanation(server: Server) -> dict[str, float]:
    """A `fast` map as a browser gets it: seconds, and the longest silence."""
    body = {"photo": "chelsea", "options": {"quality": "fast", "seed": 12}}
    began = time.perf_counter()
    job = json.loads(server.ask("POST", "/api/jobs", body)[1])["id"]
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=300)
    connection.request("GET", f"/api/jobs/{job}/events")
    answer, last, silence, previews = connection.getresponse(), began, 0.0, 0
    while line := answer.readline():
        if line.startswith(b"event"):
            now = time.perf_counter()
            silence, last, previews = max(silence, now - last), now, previews + line.startswith(b"event: preview")
    connection.close()
    return {"seconds": last - began, "longest_silence": silence, "previews": previews}


def measure_visitors(server: Server, model: str, visitors: int, seconds: float) -> dict[str, Any]:
    """Many visitors, each of whom asks again and again for maps of its own photo."""
    photos = draw_photos(visitors)
    waits: list[float] = []
    last: dict[int, bytes] = {}
    problems: Counter[str] = Counter()
    until = time.monotonic() + seconds

    def visit(number: int) -> None:
        key = json.loads(server.ask("POST", "/api/photos", encode(photos[number]))[1])["id"]
        turn = 0
        while time.monotonic() < until:
            began = time.perf_counter()
            # always another seed: the answer to a question that was asked before would cost nothing
            state, result = server.explain(key, quality="fast", seed=turn)
            if state != "done":
                problems[str(result)[:200]] += 1
            else:
                waits.append(time.perf_counter() - began)
                if result["seed"] == 0:
                    last[number] = server.ask("GET", result["files"]["npz"])[1]
            turn += 1

    memory, done = [server.megabytes], threading.Event()

    def look() -> None:
        while not done.wait(1):
            memory.append(server.megabytes)

    watcher = threading.Thread(target=look)
    watcher.start()
    with ThreadPoolExecutor(visitors) as pool:
        list(pool.map(visit, range(visitors)))
    done.set()
    watcher.join()
    return {
        "visitors": visitors,
        "seconds": seconds,
        "maps": len(waits),
        "problems": dict(problems),
        "seconds_median": statistics.median(waits),
        "seconds_most": max(waits),
        "own_maps": compare_maps(model, photos, last),
        "compared": len(last),
        "megabytes": describe_memory(memory),
    }


def describe_memory(megabytes: list[float]) -> dict[str, float]:
    """Whether memory grows once every visitor has been served."""
    third = max(1, len(megabytes) // 3)
    early, late = statistics.median(megabytes[third : 2 * third]), statistics.median(megabytes[-third:])
    return {"second_third": early, "last_third": late, "growth": late / early - 1}


def draw_photos(count: int) -> list[Image.Image]:
    """Pictures that differ."""
    chance, found = np.random.default_rng(0), []
    for number in range(count):
        pixels = chance.integers(0, 80, (240, 240, 3)) + np.linspace(0, 170, 240)[:, None, None]
        pixels[20 + 5 * number : 90 + 5 * number, 60:160] = chance.integers(0, 255, 3)
        found.append(Image.fromarray(pixels.astype(np.uint8)))
    return found


def compare_maps(model: str, photos: list[Image.Image], stored: dict[int, bytes]) -> int:
    """How many visitors have the map that their photo has alone."""
    network, same = mg.load_model(model), 0
    for number, content in stored.items():
        alone = mg.explain(network, photos[number], budget="fast", seed=0)
        same += bool(np.array_equal(alone.map.numpy(), np.load(BytesIO(content), allow_pickle=False)["map"]))
    return same


def measure_uploads(server: Server, count: int) -> dict[str, Any]:
    """Files that are odd, damaged or no photos; each ends in a sentence or in a map."""
    chance, slowest, outcomes = random.Random(0), 0.0, Counter[str]()
    makers = list(odd_files().items())
    for number in range(count):
        name, make = makers[number % len(makers)]
        content = make(chance)
        began = time.perf_counter()
        status, body = server.ask("POST", "/api/photos", content)
        outcome = f"{name}: {status}"
        if status == 201:
            body = json.dumps({"photo": json.loads(body)["id"], "method": "gradient"}).encode()
            job = json.loads(server.ask("POST", "/api/jobs", json.loads(body))[1])["id"]
            while (state := json.loads(server.ask("GET", f"/api/jobs/{job}")[1])["state"]) in ("waiting", "running"):
                time.sleep(0.02)
            outcome += f" {state}"
        outcomes[outcome] += 1
        slowest = max(slowest, time.perf_counter() - began)
    alive = server.ask("GET", "/api/about")[0] == 200
    return {
        "uploads": count,
        "slowest_seconds": slowest,
        "most_megabytes": server.most_megabytes,
        "alive": alive,
        "outcomes": dict(sorted(outcomes.items())),
    }


def odd_files() -> dict[str, Callable[[random.Random], bytes]]:
    """Makers of odd files, by what they are."""
    noise = np.random.default_rng(0)
    small = Image.fromarray(noise.integers(0, 255, (60, 80, 3), dtype=np.uint8))
    deep = Image.fromarray(np.tile(np.arange(6600, dtype=np.uint16) * 9, (6000, 1)))
    files = {
        "bomb of 170 megapixels": _compressed(17_000, 10_000),
        "bomb of 400 megapixels": _compressed(20_000, 20_000),
        "39 megapixels": _compressed(7800, 5000),
        "16-bit, 39 megapixels": encode(deep, "PNG", compress_level=1),
        "16-bit": encode(Image.fromarray(noise.integers(0, 65535, (60, 80), dtype=np.uint16))),
        "cmyk": encode(small.convert("CMYK"), "JPEG"),
        "1 x 1": encode(Image.new("RGB", (1, 1), "red")),
        "svg": b'<svg xmlns="http://www.w3.org/2000/svg"><script>alert(1)</script></svg>',
        "text": b"this is no photo" * 100,
        "20 MB of noise": bytes(noise.integers(0, 255, 19_999_999, dtype=np.uint8)),
        "21 MB": b"x" * 21_000_000,
        "empty": b"",
    }
    found: dict[str, Callable[[random.Random], bytes]] = {
        name: (lambda chance, content=content: content)  # type: ignore[misc]
        for name, content in files.items()
    }
    wholes = [encode(small, kind) for kind in ("PNG", "JPEG", "GIF", "WEBP", "TIFF", "BMP")]
    found["truncated"] = lambda chance: (whole := chance.choice(wholes))[: chance.randrange(1, len(whole))]
    found["damaged"] = lambda chance: _damage(chance.choice(wholes), chance)
    found["animated"] = lambda chance: _animate(chance.randrange(2, 9))
    return found


def encode(picture: Image.Image, kind: str = "PNG", **options: Any) -> bytes:
    picture.save(handle := BytesIO(), kind, **options)
    return handle.getvalue()


def _compressed(width: int, height: int) -> bytes:
    """A black picture, which is small as a file."""
    limit, Image.MAX_IMAGE_PIXELS = Image.MAX_IMAGE_PIXELS, None
    try:
        return encode(Image.new("RGB", (width, height)))
    finally:
        Image.MAX_IMAGE_PIXELS = limit


def _damage(whole: bytes, chance: random.Random) -> bytes:
    content = bytearray(whole)
    for _ in range(chance.randint(1, 10)):
        content[chance.randrange(len(content))] = chance.randrange(256)
    return bytes(content)


def _animate(frames: int) -> bytes:
    first, *rest = (Image.new("RGB", (50, 40), (25 * frame, 0, 90)) for frame in range(frames))
    return encode(first, "GIF", save_all=True, append_images=rest)


if __name__ == "__main__":
    main()
