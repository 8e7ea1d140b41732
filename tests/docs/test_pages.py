"""The pages agree with the committed results, take every number from them, and link to files that exist."""

import re
import subprocess
import sys
from pathlib import Path

import doc_values
import pytest
import render_docs

import moreaugrad as mg

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
EXAMPLES = [  # pages whose examples load a real network are slow
    *("docs/extending.md", "docs/networks.md", "docs/attacks.md", "docs/robustness.md", "docs/interop.md"),
    "docs/bulk.md",
    *(pytest.param(page, marks=pytest.mark.slow) for page in ("README.md", "docs/certify.md", "docs/certificates.md")),
]


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
def test_the_examples_run_without_a_deprecation(page, tmp_path):
    """In a process of their own: members that they register stay in the tables."""
    text = (ROOT / page).read_text(encoding="utf-8")
    blocks = re.findall(r"```python\n(.*?)```", text, flags=re.DOTALL)
    assert len(blocks) == text.count("```python") > 0
    code = "\n".join([SETTING, *blocks])
    strict = ["-W", "error::DeprecationWarning", "-W", "error::UserWarning"]
    subprocess.run([sys.executable, *strict, "-c", code], check=True, timeout=600, cwd=tmp_path)


def test_every_page_with_examples_is_run():
    named = {each if isinstance(each, str) else each.values[0] for each in EXAMPLES}
    pages = {page.relative_to(ROOT).as_posix() for page in PAGES if "```python" in page.read_text(encoding="utf-8")}
    assert pages == named


def test_the_readme_is_short():
    assert len((ROOT / "README.md").read_text(encoding="utf-8").splitlines()) <= 150


@pytest.mark.parametrize("page", PAGES, ids=lambda page: f"{page.parent.name}-{page.name}")
def test_public_names_on_the_pages_exist(page):
    named = set(re.findall(r"\bmg\.([A-Za-z]\w*)", page.read_text(encoding="utf-8")))
    assert sorted(name for name in named if not hasattr(mg, name)) == []
