"""The pages agree with the committed results, take every number from them, and link to files that exist."""

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import click
import doc_values
import gallery
import jupytext
import pytest
import render_docs
import typer

import moreaugrad as mg
from moreaugrad.cli.app import app

ROOT = Path(__file__).parents[2]
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").glob("*.md"), ROOT / "paper" / "README.md"])

SETTING = """
import moreaugrad as mg
import torch
from PIL import Image
torch.manual_seed(0)
x = torch.rand(2, 3, 16, 16)
net = torch.nn.Sequential(
    torch.nn.Conv2d(3, 8, 3, padding=1), torch.nn.ReLU(), torch.nn.AdaptiveAvgPool2d(1), torch.nn.Flatten(),
    torch.nn.Linear(8, 5),
).eval()
model, method, attacked = net, mg.Gradient(net), x + 0.01
image = Image.new("RGB", (32, 32), "teal")
image.save("photo.jpg")
photo = "photo.jpg"
"""
ELSEWHERE = {"docs/page.md"}  # its examples need a server: tests/app/test_examples.py
SLOW = {"README.md", "docs/start.md", "docs/certify.md", "docs/certificates.md"}  # their examples load a real network
NAMED = {page.relative_to(ROOT).as_posix(): page for page in PAGES}
EXAMPLES = [
    pytest.param(name, marks=pytest.mark.slow) if name in SLOW else name
    for name, page in NAMED.items()
    if "```python" in page.read_text(encoding="utf-8") and name not in ELSEWHERE
]
RENDERED = {path.name for path in render_docs.TEMPLATES.glob("*.md")}
PLAIN = [name for name, page in NAMED.items() if page.parent == ROOT / "docs" and page.name not in RENDERED]
NOTEBOOKS = sorted((ROOT / "docs" / "notebooks").glob("*.py"))


def test_pages_are_what_their_templates_and_the_results_give():
    stale = [
        page.name
        for page, text in render_docs.pages(doc_values.collect_values()).items()
        if page.read_text(encoding="utf-8") != text
    ]
    assert stale == [], "run: python tools/render_docs.py"


def test_every_value_is_used():
    """A value that no page names was forgotten, or its sentence is gone."""
    templates = "".join(path.read_text(encoding="utf-8") for path in render_docs.TEMPLATES.glob("*.md"))
    used = {match.group(1, 2) for match in render_docs.PLACEHOLDER.finditer(templates)}
    known = {(topic, name) for topic, values in doc_values.collect_values().items() for name in values}
    assert known == used


@pytest.mark.parametrize(
    "line",
    [
        "It is 7 times as fast.",
        "| ResNet-50 | eager float16 | 6,456 | | 14 % |",
        "CIFAR-100 is another data set.",
        "It reaches [94.7 %](results.json).",
    ],
)
def test_a_number_of_the_template_itself_is_refused(line):
    with pytest.raises(ValueError, match="every number must come from a placeholder"):
        render_docs.render(f"# Page\n\n{line}\n", {})


@pytest.mark.parametrize("line", ["`rho=7`", "```\n7\n```", "[a7.json](a7.json)", "A float16 map of CIFAR-10."])
def test_code_links_and_names_may_hold_digits(line):
    assert line in render_docs.render(f"{line}\n", {})


def test_placeholders_are_filled_and_unknown_ones_refused():
    values = {"speed": {"rate": 15953.7, "table": "| a | 1 |"}}
    assert render_docs.render("At {{speed.rate:,.0f}} per second.", values) == "At 15,954 per second.\n"
    assert render_docs.render("| x | y |\n|---|---|\n{{speed.table}}", values).endswith("| a | 1 |\n")
    with pytest.raises(ValueError, match=r"speed\.rat\}\} must name a value"):
        render_docs.render("{{speed.rat}}", values)


def test_long_lines_are_wrapped_but_not_tables_and_code():
    word = ("word " * 60).strip()
    wrapped = render_docs.reflow(f"{word}\n\n- {word}\n\n| {word} |\n\n```\n{word}\n```\n").splitlines()
    assert [line for line in wrapped if len(line) > 120] == [f"| {word} |", word]
    items = wrapped[next(i for i, line in enumerate(wrapped) if line.startswith("- ")) :]
    assert items[1].startswith("  word"), "items of lists are indented"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: f"{page.parent.name}-{page.name}")
def test_links_lead_to_files(page):
    text = re.sub(r"```.*?```", "", page.read_text(encoding="utf-8"), flags=re.DOTALL)
    targets = [target for target in re.findall(r"\]\(([^)#\s]+)[^)]*\)", text) if "://" not in target]
    assert [target for target in targets if not (page.parent / target).exists()] == []


@pytest.mark.parametrize("page", EXAMPLES)
def test_the_examples_run_without_a_deprecation(page, tmp_path, pytestconfig):
    """In a process of their own: members that they register stay in the tables. It heeds pytest's own -W too."""
    text = (ROOT / page).read_text(encoding="utf-8")
    blocks = re.findall(r"```python\n(.*?)```", text, flags=re.DOTALL)
    assert len(blocks) == text.count("```python") > 0
    code = "\n".join([SETTING, *blocks])
    strict = ["-W", "error::DeprecationWarning", "-W", "error::UserWarning"]
    strict += [word for each in pytestconfig.getoption("pythonwarnings") or () for word in ("-W", each)]
    subprocess.run([sys.executable, *strict, "-c", code], check=True, timeout=600, cwd=tmp_path)


@pytest.mark.parametrize("name", PLAIN)
def test_a_page_without_a_template_holds_no_numbers_of_its_own(name):
    assert render_docs.find_stray_numbers(NAMED[name].read_text(encoding="utf-8"), render_docs.NAMES) == []


@pytest.mark.parametrize("script", NOTEBOOKS, ids=lambda path: path.stem)
def test_the_text_of_a_notebook_holds_no_numbers_of_its_own(script):
    cells = jupytext.read(script, fmt="py:percent").cells
    text = "\n\n".join(cell.source for cell in cells if cell.cell_type == "markdown")
    assert render_docs.find_stray_numbers(text, render_docs.NAMES) == []


@pytest.mark.slow
@pytest.mark.parametrize("script", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_is_a_script_too(script, tmp_path):
    needs = jupytext.read(script, fmt="py:percent").metadata.get("moreaugrad", {}).get("needs", ())
    for name in needs:
        pytest.importorskip(name, reason=f"needs {name}")
    environment = os.environ | {"MPLBACKEND": "agg"}
    subprocess.run([sys.executable, str(script)], check=True, timeout=600, cwd=tmp_path, env=environment)
    assert list(tmp_path.iterdir()) == []


def list_console_lines():
    """Every line of the pages that calls the program, as words."""
    for name, page in NAMED.items():
        for block in re.findall(r"```(?:console|shell)\n(.*?)```", page.read_text(encoding="utf-8"), flags=re.DOTALL):
            for line in re.sub(r"\\\n\s*", " ", block).splitlines():
                for part in re.split(r"[;|]|&&|\$\(", line.partition(" #")[0]):
                    if part.strip().startswith("moreaugrad "):
                        yield name, part.strip()


@pytest.mark.parametrize(("name", "line"), sorted(set(list_console_lines())))
def test_a_command_on_a_page_has_options_that_exist(name, line):
    """Parsed as the program would, without being run."""
    words = shlex.split(re.sub(r"\$\(\(.*?\)\)|\$\w+", "1", line))[1:]
    command = typer.main.get_command(app)
    context = click.Context(command)
    if words[0] not in command.list_commands(context):
        assert words[0].startswith("-"), line
        return
    found = command.get_command(context, words[0])
    assert found is not None
    found.make_context(words[0], words[1:], resilient_parsing=True)


def test_the_gallery_is_what_its_commands_make():
    assert gallery.find_faults() == []


def test_the_readme_is_short():
    assert len((ROOT / "README.md").read_text(encoding="utf-8").splitlines()) <= 150


@pytest.mark.parametrize("page", PAGES, ids=lambda page: f"{page.parent.name}-{page.name}")
def test_public_names_on_the_pages_exist(page):
    named = set(re.findall(r"\bmg\.([A-Za-z]\w*)", page.read_text(encoding="utf-8")))
    assert sorted(name for name in named if not hasattr(mg, name)) == []
