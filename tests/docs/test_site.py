"""The site in build/docs, as `make docs` made it: whole, without a network, every public name with its arguments."""

import json
import re
import shutil
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest

import moreaugrad as mg

ROOT = Path(__file__).parents[2]
SITE = ROOT / "build" / "docs"
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
NAMES = [name for name in dir(mg) if not name.startswith("_")]
LOADS = {"script": "src", "img": "src", "link": "href", "iframe": "src", "source": "src", "video": "src"}

pytestmark = pytest.mark.skipif(not (SITE / "index.html").is_file(), reason="needs the site: make docs")


class Page(HTMLParser):
    """What a page loads, what it links to, and the places in it that others can link to."""

    def __init__(self, path):
        super().__init__()
        self.loads, self.links, self.places = [], [], set()
        self.feed(path.read_text(encoding="utf-8"))

    def handle_starttag(self, tag, attrs):
        given = dict(attrs)
        self.places.update(value for name, value in attrs if name in ("id", "name") and value)
        if tag in LOADS and given.get("rel") != "canonical" and given.get(LOADS[tag]):
            self.loads.append(given[LOADS[tag]])
        if tag == "a" and given.get("href"):
            self.links.append(given["href"])


@pytest.fixture(scope="module")
def pages():
    return {path: Page(path) for path in sorted(SITE.rglob("*.html")) if "_static" not in path.parts}


def test_nothing_is_loaded_from_elsewhere(pages):
    outside = {path.name: [each for each in page.loads if urlsplit(each).netloc] for path, page in pages.items()}
    assert {name: found for name, found in outside.items() if found} == {}


def test_links_and_files_lead_somewhere(pages):
    dead = []
    for path, page in pages.items():
        for link in (*page.links, *page.loads):
            where = urlsplit(link)
            if where.scheme or where.netloc:
                continue
            target = (path.parent / unquote(where.path)).resolve() if where.path else path
            if not target.exists():
                dead.append(f"{path.relative_to(SITE)}: {link}")
            elif where.fragment and target in pages and unquote(where.fragment) not in pages[target].places:
                dead.append(f"{path.relative_to(SITE)}: {link} (no such place)")
    assert dead == []


@pytest.mark.parametrize("name", NAMES)
def test_a_public_name_has_its_place(name, pages):
    found = [page for page in pages.values() if f"moreaugrad.{name}" in page.places]
    assert found, f"{name} is on no page of the API"


def needs_example(name):
    found = getattr(mg, name)
    return callable(found) and not getattr(found, "_is_protocol", False)  # a protocol is what others follow


@pytest.mark.parametrize("name", [name for name in NAMES if needs_example(name)])
def test_its_page_has_an_example(name):
    text = (SITE / "api" / "generated" / f"moreaugrad.{name}.html").read_text(encoding="utf-8")
    assert "&gt;&gt;&gt;" in text


def test_the_site_tells_machines_what_it_holds():
    listed = (SITE / "llms.txt").read_text(encoding="utf-8")
    assert all(f"{page}.html" in listed or page in listed for page in ("start", "choose", "methods"))
    assert (SITE / "llms-full.txt").stat().st_size > 100_000


@pytest.fixture(scope="module")
def browser():
    playwright = pytest.importorskip("playwright.sync_api", reason="needs playwright")
    if CHROMIUM is None:
        pytest.skip("needs Chromium: make browser")
    with playwright.sync_playwright() as tool:
        yield tool.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox", "--disable-gpu"])


@pytest.fixture
def visit(browser):
    """Opens a page from disk; whatever it asks the network for, and every error, is noted."""
    context, noted = browser.new_context(viewport={"width": 1280, "height": 900}), []
    page = context.new_page()
    page.on("request", lambda asked: asked.url.startswith(("file:", "data:", "blob:")) or noted.append(asked.url))
    # the search lists pages also where it may not fetch them to show a passage of each, as from disk
    page.on("pageerror", lambda error: "Failed to fetch" in str(error) or noted.append(str(error)))

    def open_page(name):
        page.goto((SITE / name).as_uri())
        page.wait_for_load_state("networkidle")
        return page

    yield open_page
    context.close()
    assert noted == []


@pytest.mark.parametrize("name", ["index", "how-it-works", "certificates", "api/generated/moreaugrad.SparseMoreauGrad"])
def test_a_page_opens_from_disk_without_a_network(visit, name):
    page = visit(f"{name}.html")
    assert page.locator("h1").first.is_visible()


def test_formulas_are_typeset(visit):
    page = visit("certificates.html")
    page.wait_for_selector("mjx-container", timeout=20_000)
    assert page.locator(".math").count() > 20
    assert page.locator("mjx-merror").count() == 0


def test_the_search_works_from_disk(visit):
    page = visit("search.html")
    page.fill("input[name=q] >> visible=true", "sparsity")
    page.keyboard.press("Enter")
    page.locator("#search-results li a").nth(3).wait_for(timeout=30_000)  # they appear one by one


def test_figures_answer_to_the_keyboard(visit):
    page = visit("how-it-works.html")
    sliders = page.locator("input[type=range]")
    assert sliders.count() >= 4
    for number in range(sliders.count()):
        figure = sliders.nth(number).locator("xpath=ancestor::*[@data-figure]")
        before = figure.screenshot()
        sliders.nth(number).focus()
        for _ in range(8):
            page.keyboard.press("ArrowRight" if number % 2 == 0 else "ArrowLeft")
        page.wait_for_timeout(100)
        if figure.screenshot() == before:  # it stood at that end
            for _ in range(8):
                page.keyboard.press("ArrowLeft" if number % 2 == 0 else "ArrowRight")
            page.wait_for_timeout(100)
        assert figure.screenshot() != before


def test_notebooks_have_outputs_unless_they_were_left_out(pages):
    notebooks = sorted((ROOT / "docs" / "notebooks").glob("*.py"))
    texts = {path.stem: (SITE / "notebooks" / f"{path.stem}.html").read_text(encoding="utf-8") for path in notebooks}
    shown = [name for name, text in texts.items() if re.search(r'class="cell_output', text)]
    assert len(shown) in (
        sum((ROOT / "docs/notebooks/stored" / f"{name}.ipynb").is_file() for name in texts),
        len(texts),
    )


def test_stored_outputs_name_no_machine():
    for path in (ROOT / "docs" / "notebooks" / "stored").glob("*.ipynb"):
        text = json.dumps(json.loads(path.read_text(encoding="utf-8")))
        assert not re.search(r"/(home|root|tmp|work|Users)/", text), path.name
