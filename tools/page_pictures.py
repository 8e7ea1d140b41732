"""Draws the pictures of the page in docs/page.md: python tools/page_pictures.py [--out docs]

Starts `moreaugrad serve` with its default model and visits it in Chromium, 1280 and 390 pixels wide, light and dark.
"""

from __future__ import annotations

import argparse
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from io import BytesIO
from pathlib import Path
from typing import Any

from PIL import Image
from playwright.sync_api import Page, sync_playwright

WIDE, NARROW = {"width": 1280, "height": 860}, {"width": 390, "height": 844}
PATIENCE = 300_000  # milliseconds
COMPARED = ("gradient", "smoothgrad", "integrated_gradients", "gradcam", "moreau", "sparse_moreau")


def main() -> None:
    asked = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    asked.add_argument("--out", type=Path, default=Path("docs"))
    out = asked.parse_args().out
    out.mkdir(exist_ok=True)
    with serve() as home, sync_playwright() as tool:
        browser = tool.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox", "--disable-gpu"])
        with visit(browser, home, WIDE, "light") as page:
            save(out / "page.jpg", photograph(page))
        with visit(browser, home, WIDE | {"height": 1500}, "dark") as page:
            compare(page)
            save(out / "page-compare.jpg", photograph(page))
        with visit(browser, home, WIDE | {"height": 1300}, "light") as page:
            attack(page)
            save(out / "page-attack.jpg", photograph(page))
        with visit(browser, home, WIDE | {"height": 1050}, "dark") as page:
            certify(page)
            save(out / "page-certificate.jpg", photograph(page))
        phones = []
        for scheme in ("light", "dark"):
            with visit(browser, home, NARROW, scheme) as page:
                phones.append(photograph(page))
                page.locator("#class-card").scroll_into_view_if_needed()
                phones.append(photograph(page))
        save(out / "page-phone.jpg", put_beside(phones))
        browser.close()


@contextmanager
def serve() -> Iterator[str]:
    """The page's address."""
    command = [sys.executable, "-m", "moreaugrad", "serve", "--port", "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            found = re.search(r"http://\S+", process.stdout.readline())
            assert found is not None
            yield found[0]
        finally:
            process.terminate()


@contextmanager
def visit(browser: Any, home: str, size: dict[str, int], scheme: str) -> Iterator[Page]:
    """A page with its first map."""
    phone = size is NARROW
    context = browser.new_context(
        viewport=size, color_scheme=scheme, device_scale_factor=2 if phone else 1, has_touch=phone
    )
    page = context.new_page()
    page.set_default_timeout(PATIENCE)
    page.goto(home)
    page.wait_for_selector("body[data-state=done]")
    yield page
    context.close()


def compare(page: Page) -> None:
    page.click("#tab-compare")
    page.click("#compare-none")
    for name in COMPARED:
        page.locator(f"#compare-methods input[value={name}]").check()
    page.click("#compare-run")
    page.wait_for_selector("#compare-stop:visible")
    page.wait_for_selector("#compare-stop", state="hidden")


def attack(page: Page) -> None:
    page.click("#tab-attack")
    page.click("#attack-run")
    page.wait_for_selector("#attack-sentence:visible")


def certify(page: Page) -> None:
    page.click("#tab-certificate")
    page.click("#certify-run")
    page.wait_for_selector("#certify-counts:visible")
    page.locator("#certify-epsilon").focus()
    for _ in range(5):
        page.keyboard.press("ArrowRight")


def photograph(page: Page) -> Image.Image:
    page.wait_for_timeout(500)  # what is drawn in the next frames
    return Image.open(BytesIO(page.screenshot())).convert("RGB")


def put_beside(pictures: list[Image.Image], gap: int = 24) -> Image.Image:
    height = max(each.height for each in pictures)
    whole = Image.new("RGB", (sum(each.width + gap for each in pictures) - gap, height), "#888888")
    left = 0
    for each in pictures:
        whole.paste(each, (left, 0))
        left += each.width + gap
    return whole.resize((whole.width // 2, whole.height // 2), Image.Resampling.LANCZOS)


def save(path: Path, picture: Image.Image) -> None:
    picture.save(path, quality=82, optimize=True)


if __name__ == "__main__":
    main()
