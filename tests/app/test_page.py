"""The page in a real browser: what people do, with the mouse and by keyboard, and that it asks no other host.

Needs Playwright and Debian's Chromium, which `make browser` installs; skipped where there is none.
"""

import re
import shutil
from contextlib import contextmanager
from io import BytesIO

import numpy as np
import pytest
from page_server import encode, make_studio, running
from PIL import Image
from torch import nn

import moreaugrad as mg
from moreaugrad.models.classifier import CentreCrop, Classifier

playwright = pytest.importorskip("playwright.sync_api", reason="needs playwright")
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
if CHROMIUM is None:
    pytest.skip("needs Chromium; `make browser` installs it", allow_module_level=True)
QUIET = ["--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-component-update"]
QUIET += ["--disable-sync", "--no-first-run", "--disable-quic"]


@pytest.fixture(scope="module")
def browser():
    with playwright.sync_playwright() as tool:
        found = tool.chromium.launch(executable_path=CHROMIUM, args=QUIET)
        yield found
        found.close()


@pytest.fixture(scope="module")
def server(network, picture):
    with running(make_studio({"lipschitz_cifar10": network}, picture)) as client:
        yield client


@contextmanager
def opened(browser, server, place="/", **options):
    """A page that is loaded; another host, an error on the console or an uncaught one fails the test."""
    wrong, home = [], f"http://127.0.0.1:{server.port}"
    context = browser.new_context(viewport={"width": 1280, "height": 900}, accept_downloads=True, **options)

    def route(way):
        if way.request.url.startswith((home, "blob:")):
            way.continue_()
        else:
            wrong.append(f"asked {way.request.url}")
            way.abort()

    context.route("**/*", route)
    page = context.new_page()
    page.on("pageerror", lambda error: wrong.append(f"uncaught: {error}"))
    page.on("console", lambda line: wrong.append(line.text) if is_error(line) else None)
    page.goto(home + place)
    wait_done(page)
    yield page
    context.close()
    assert not wrong


def is_error(line):
    """Whether a line of the console is an error of the page; an answer such as 422, or a test's abort, is not."""
    return line.type == "error" and "status of" not in line.text and "ERR_FAILED" not in line.text


def wait_done(page, state="done"):
    page.wait_for_selector(f"body[data-state={state}]", timeout=60_000)


def choose(page, change, state="done"):
    """Do something that asks for another map, and wait for it."""
    page.evaluate("document.body.dataset.state = 'asked'")
    change()
    wait_done(page, state)


def pixels(page, selector="#stage"):
    """The canvas as numbers."""
    png = page.locator(selector).screenshot()
    with Image.open(BytesIO(png)) as found:
        return np.asarray(found.convert("RGB")).astype(int)


def note_requests(page):
    """What the page asks from now on; its icon is asked for by the browser, whenever that has time."""
    asked = []
    page.on("request", lambda request: asked.append(request.url) if not request.url.endswith("icon.svg") else None)
    return asked


@contextmanager
def delayed(page, pattern, start):
    """What is done while the answer to a request is not there yet; then it comes, and the page has time for it."""
    waiting, pattern = [], re.compile(pattern)

    def hold(way):
        waiting.append(way)

    page.route(pattern, hold)
    start()
    while not waiting:
        page.wait_for_timeout(20)
    yield
    with page.expect_response(pattern):
        waiting[0].continue_()
    page.wait_for_timeout(300)


def own_photo(name="other.png"):
    """A photo as a file that is chosen."""
    values = np.random.default_rng(5).integers(0, 255, (50, 60, 3), dtype=np.uint8)
    return {"name": name, "mimeType": "image/png", "buffer": encode(Image.fromarray(values))}


def test_the_first_photo_is_explained_at_once(browser, server):
    with opened(browser, server) as page:
        playwright.expect(page.locator("#stage-corner")).to_have_text("map")
        assert page.locator("#classes button[data-target]").count() == 5
        assert "%" in page.inner_text("#known") or "known" in page.inner_text("#known")
        assert pixels(page).std() > 10
        assert page.title()


def test_a_photo_is_uploaded_and_its_map_is_that_of_the_library(browser, server, network, tmp_path):
    other = Image.fromarray(np.random.default_rng(5).integers(0, 255, (50, 60, 3), dtype=np.uint8))
    (tmp_path / "other.png").write_bytes(encode(other))
    with opened(browser, server) as page:
        choose(page, lambda: page.set_input_files("#photo-input", tmp_path / "other.png"))
        with page.expect_download() as waiting:
            page.click("#download-npz")
        waiting.value.save_as(tmp_path / "map.npz")
        found = mg.Explanation.load(tmp_path / "map.npz")
        wanted = mg.explain(network, other, budget=int(found.options["budget"]))
        np.testing.assert_array_equal(found.map.numpy(), wanted.map.numpy())
        assert "sample" not in page.evaluate("location.hash")  # an uploaded photo is never in the link


GIVE = """([kind, bytes]) => {
  const data = new DataTransfer();
  data.items.add(new File([new Uint8Array(bytes)], 'given.png', {type: 'image/png'}));
  const words = {bubbles: true, cancelable: true};
  document.body.dispatchEvent(kind === 'paste' ? new ClipboardEvent(kind, {...words, clipboardData: data})
    : new DragEvent(kind, {...words, dataTransfer: data}));
}"""


@pytest.mark.parametrize("kind", ["drop", "paste"])
def test_a_photo_is_dropped_or_pasted(browser, server, kind):
    given = list(encode(Image.fromarray(np.random.default_rng(8).integers(0, 255, (30, 44, 3), dtype=np.uint8))))
    with opened(browser, server) as page:
        choose(page, lambda: page.evaluate(GIVE, [kind, given]))
        assert "given.png, 44 \u00d7 30" in page.inner_text("#photo-name")


def test_another_class_is_one_click(browser, server):
    with opened(browser, server) as page:
        second = page.locator("#classes button[data-target]").nth(1)
        wanted = second.get_attribute("data-target")
        choose(page, second.click)
        assert f"target={wanted}" in page.evaluate("location.hash")
        assert page.locator(f"#classes button[data-target='{wanted}']").get_attribute("aria-pressed") == "true"


def test_the_share_slider_draws_without_a_request(browser, server):
    with opened(browser, server) as page:
        before, asked = pixels(page), note_requests(page)
        page.evaluate(
            "const s = document.querySelector('#share'); s.value = s.max; s.dispatchEvent(new Event('input'))"
        )
        page.evaluate("new Promise(requestAnimationFrame)")
        page.wait_for_timeout(50)
        assert np.abs(pixels(page) - before).mean() > 1
        for control, value in (("#overlay", "20"), ("#colours", "grey")):
            page.locator(control).evaluate(
                "(e, v) => { e.value = v; e.dispatchEvent(new Event('input', {bubbles: true})); "
                "e.dispatchEvent(new Event('change', {bubbles: true})) }",
                value,
            )
        assert not asked


def test_the_pointer_reads_values(browser, server):
    with opened(browser, server) as page:
        box = page.locator("#stage").bounding_box()
        page.mouse.move(box["x"] + 0.7 * box["width"], box["y"] + 0.5 * box["height"])
        playwright.expect(page.locator("#pointer-value")).to_have_text(re.compile(r"\d"))
        first = page.inner_text("#pointer-value")
        page.mouse.move(box["x"] + 0.9 * box["width"], box["y"] + 0.2 * box["height"])
        playwright.expect(page.locator("#pointer-value")).not_to_have_text(first)


def test_methods_are_compared(browser, server):
    with opened(browser, server) as page:
        page.click("#tab-compare")
        page.click("#compare-none")
        for name in ("gradient", "smoothgrad"):
            page.locator(f"#compare-methods input[value={name}]").check()
        page.click("#compare-run")
        playwright.expect(page.locator("#compare-tiles canvas")).to_have_count(3, timeout=60_000)  # the photo too
        playwright.expect(page.locator("#compare-status")).to_contain_text("Done:", timeout=60_000)
        assert "gradient" in page.inner_text("#compare-tiles")


def test_a_map_is_attacked(browser, server):
    with opened(browser, server) as page:
        page.click("#tab-attack")
        page.fill("#attack-epsilon", "1")
        page.fill("#attack-steps", "1")
        page.click("#attack-run")
        page.wait_for_selector("#attack-sentence:visible", timeout=120_000)
        assert "another seed" in page.inner_text("#attack-sentence")
        assert page.locator("#attack-metrics tr").count() >= 3


def test_a_certificate_is_drawn_against_epsilon(browser, server):
    with opened(browser, server) as page:
        page.click("#tab-certificate")
        page.click("#certify-run")
        page.wait_for_selector("#certify-epsilon:visible", timeout=120_000)
        asked, first = note_requests(page), page.inner_text("#certify-counts")
        page.locator("#certify-epsilon").focus()
        for _ in range(8):
            page.keyboard.press("ArrowRight")
        playwright.expect(page.locator("#certify-counts")).not_to_have_text(first)  # it is drawn once a frame
        assert not asked


def test_stop_stops_in_the_middle(browser, server):
    with opened(browser, server) as page:
        choose(page, lambda: page.select_option("#quality", "best"), "running")
        page.click("#stop")
        wait_done(page, "stopped")
        choose(page, lambda: page.select_option("#quality", "fast"))


def test_a_bad_file_is_told_and_harms_nothing(browser, server, tmp_path):
    (tmp_path / "bad.jpg").write_text("this is no photo")
    with opened(browser, server) as page:
        page.set_input_files("#photo-input", tmp_path / "bad.jpg")
        playwright.expect(page.locator("#error")).to_contain_text("photo must be")
        assert pixels(page).std() > 10


def test_two_tabs_do_not_disturb_each_other(browser, server):
    with opened(browser, server) as one, opened(browser, server) as two:
        one.evaluate("document.body.dataset.state = 'asked'")
        two.evaluate("document.body.dataset.state = 'asked'")
        one.select_option("#method", "gradient")
        two.select_option("#method", "smoothgrad")
        wait_done(one)
        wait_done(two)
        assert "method=gradient" in one.evaluate("location.hash")
        assert "method=smoothgrad" in two.evaluate("location.hash")


def test_a_link_restores_the_settings(browser, server):
    with opened(browser, server) as page:
        choose(page, lambda: page.select_option("#method", "smoothgrad"))
        choose(page, lambda: page.locator("#classes button[data-target]").nth(2).click())
        link, picture = page.evaluate("location.hash"), pixels(page)
        target = re.search(r"target=(\d+)", link)[1]
    with opened(browser, server, "/" + link) as page:
        assert page.input_value("#method") == "smoothgrad"
        assert page.locator(f"#classes button[data-target='{target}']").get_attribute("aria-pressed") == "true"
        assert np.abs(pixels(page) - picture).mean() < 2


def test_a_visit_by_keyboard_alone(browser, server):
    """From the top of the page to another class, the share and the next tab, with nothing but keys."""
    with opened(browser, server) as page:

        def tab_to(selector, most=60):
            for _ in range(most):
                page.keyboard.press("Tab")
                if page.evaluate(f"document.activeElement?.matches({selector!r})"):
                    return
            raise AssertionError(f"{selector} cannot be reached by Tab")

        tab_to("#drop")
        tab_to("#tab-explain")
        tab_to("#stage")
        before = page.inner_text("#pointer-value")
        page.keyboard.press("ArrowRight")
        playwright.expect(page.locator("#pointer-value")).not_to_have_text(before)
        tab_to("#classes button[aria-pressed=false]")
        choose(page, lambda: page.keyboard.press("Enter"))
        tab_to("#share")
        value = page.input_value("#share")
        page.keyboard.press("ArrowLeft")
        assert page.input_value("#share") != value
        page.locator("#tab-explain").focus()
        page.keyboard.press("ArrowRight")
        assert page.locator("#panel-compare").is_visible()


@pytest.mark.parametrize(
    ("tab", "name", "field", "file"),
    [("attack", "attack", "steps", "before"), ("certificate", "certify", "samples", "radius")],
)
def test_a_late_result_of_another_photo_is_not_shown(browser, server, tab, name, field, file):
    with opened(browser, server) as page:
        page.click(f"#tab-{tab}")
        page.fill(f"#{name}-{field}", page.get_attribute(f"#{name}-{field}", "min"))
        with delayed(page, f"/{file}$", lambda: page.click(f"#{name}-run")):
            choose(page, lambda: page.set_input_files("#photo-input", own_photo()))
        assert page.locator(f"#{name}-result").is_hidden()
        assert not page.inner_text(f"#{name}-status")


def test_a_map_that_stays_after_stop_is_named(browser, server):
    with opened(browser, server) as page:
        named = page.locator("#classes [aria-pressed=true] span").first.inner_text()
        page.route("**/events", lambda way: None)
        choose(page, page.locator("#classes [aria-pressed=false]").first.click, "waiting")
        page.click("#stop")
        wait_done(page, "stopped")
        assert page.inner_text("#status-text") == f"Stopped. The map is still Sparse MoreauGrad for {named}."
        playwright.expect(page.locator("#stage-corner")).to_have_text("earlier map")


def test_an_example_chosen_during_an_upload_stays(browser, server):
    with opened(browser, server) as page:
        with delayed(page, "/api/photos$", lambda: page.set_input_files("#photo-input", own_photo())):
            page.locator(".example").dispatch_event("click")
        assert "a slope" in page.inner_text("#photo-name")
        assert page.get_attribute("#drop", "data-busy") is None


def test_the_class_of_an_own_photo_is_not_in_the_link(browser, server):
    with opened(browser, server) as page:
        choose(page, lambda: page.set_input_files("#photo-input", own_photo()))
        choose(page, page.locator("#classes [aria-pressed=false]").first.click)
        page.wait_for_timeout(400)  # the address is written a little later
        assert "target" not in page.evaluate("location.hash")
    with opened(browser, server, "/#photo=unknown&target=9") as page:
        page.wait_for_timeout(400)
        assert "target" not in page.evaluate("location.hash")


def test_stop_ends_a_comparison_while_a_map_is_loaded(browser, server):
    with opened(browser, server) as page:
        page.click("#tab-compare")
        asked = note_requests(page)
        with delayed(page, "/map$", lambda: page.click("#compare-run")):
            page.click("#compare-stop")
        page.wait_for_selector("#compare-stop", state="hidden", timeout=60_000)
        assert len([each for each in asked if each.endswith("/jobs")]) == 1


def test_a_job_that_nobody_can_hear_is_stopped(browser, server):
    with opened(browser, server) as page:
        asked = note_requests(page)
        page.route("**/events", lambda way: way.abort())
        choose(page, lambda: page.select_option("#quality", "best"), "failed")
        job = next(each for each in asked if each.endswith("/events")).split("/")[-2]
        assert server.wait(job)["state"] == "stopped"
        assert "broke off" in page.inner_text("#error")


def test_a_finger_reads_values(browser, server):
    def tap(selector, across=0.7):
        place = page.locator(selector)  # tapped once it lies still
        box = place.bounding_box()
        place.tap(position={"x": across * box["width"], "y": 0.3 * box["height"]})

    with opened(browser, server, has_touch=True) as page:
        tap("#stage")
        playwright.expect(page.locator("#pointer-value")).to_contain_text("row ")
        page.click("#tab-compare")
        page.click("#compare-none")
        page.check("#compare-methods input[value=gradient]")
        page.click("#compare-run")
        playwright.expect(page.locator("#compare-status")).to_contain_text("Done:", timeout=60_000)
        value = page.locator(".tile:nth-child(2) .value")
        tap(".tile:nth-child(1) canvas")
        playwright.expect(value).to_contain_text("sum")
        first = value.inner_text()
        tap(".tile:nth-child(2) canvas", 0.4)
        playwright.expect(value).not_to_have_text(first)
        playwright.expect(value).to_contain_text("sum")


def test_only_the_first_mouse_button_moves_the_divider(browser, server):
    with opened(browser, server) as page:
        box = page.locator("#stage").bounding_box()
        for button, moved in (("right", False), ("left", True)):
            page.mouse.move(box["x"] + 0.5 * box["width"], box["y"] + 50)
            page.mouse.down(button=button)
            page.mouse.move(box["x"] + 0.8 * box["width"], box["y"] + 50)
            page.mouse.up(button=button)
            assert (page.input_value("#divider") != "50") == moved


def test_a_text_is_dropped_into_a_field(browser, server):
    drop = """field => {
      const dataTransfer = new DataTransfer();
      dataTransfer.setData('text/plain', 'cat');
      return field.dispatchEvent(new DragEvent('drop', {bubbles: true, cancelable: true, dataTransfer}));
    }"""
    with opened(browser, server) as page:
        assert page.locator("#class-search").evaluate(drop)  # the browser may put it in
        assert not page.inner_text("#error")
        assert not page.locator("#stage").evaluate(drop)


def test_a_network_with_one_output_is_neither_attacked_nor_certified(browser, picture):
    crop = CentreCrop((16, 16), (16, 16), (0.0,) * 3, (1.0,) * 3)
    single = Classifier(nn.Sequential(nn.Flatten(), nn.Linear(768, 1)).requires_grad_(False), crop, "single")
    with running(make_studio({"single": single}, picture)) as server, opened(browser, server) as page:
        for tab, name in (("attack", "attack"), ("certificate", "certify")):
            page.click(f"#tab-{tab}")
            assert page.locator(f"#{name}-run").is_disabled()
            assert "single output" in page.inner_text(f"#{name}-status")


def test_the_copied_link_has_no_token(browser, server):
    with opened(browser, server, "/?token=secret", permissions=["clipboard-read", "clipboard-write"]) as page:
        page.click("#copy-link")
        playwright.expect(page.locator("#copied")).to_have_text("The link is copied.")
        copied = page.evaluate("navigator.clipboard.readText()")
        assert "method=" in copied
        assert "secret" not in copied


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [1280, 390])
def test_nothing_serious_bars_anybody(browser, server, scheme, width):
    axe = pytest.importorskip("axe_playwright_python.sync_playwright", reason="needs axe-playwright-python")
    with opened(browser, server, color_scheme=scheme, bypass_csp=True) as page:
        page.set_viewport_size({"width": width, "height": 900})
        for tab in ("explain", "compare", "attack", "certificate", "about"):
            page.click(f"#tab-{tab}")
            found = axe.Axe().run(page).response["violations"]
            serious = [(each["id"], len(each["nodes"])) for each in found if each["impact"] in ("serious", "critical")]
            assert not serious, tab
        assert page.evaluate("document.documentElement.scrollWidth") <= width
