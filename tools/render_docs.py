"""Renders README.md and the pages of docs/ that hold measured numbers: python tools/render_docs.py [--check]

The templates are in docs/templates. `{{topic.name}}` or `{{topic.name:.2f}}` stands for one value of doc_values.py and
`{{topic.table}}` for a whole table. A template may not contain digits of its own outside code, links and names, so
every number on a page comes from a committed result or from the package.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))  # paper and benchmarks are no part of the package

from paper.report.markdown import find_stray_numbers, reflow  # noqa: E402

TEMPLATES = ROOT / "docs" / "templates"
PLACEHOLDER = re.compile(r"\{\{(\w+)\.(\w+)(?::([^}]+))?\}\}")
# digits that belong to a name, a unit or a definition
NAMES = (
    *("CIFAR-10", "ResNet-18", "ResNet-50", "EfficientNet-Lite0", "ViT-B/16", "H200"),
    *("float16", "float32", "TF32", "8-bit", "l2", "L1", "Apache-2.0", "1-Lipschitz"),
)

Values = Mapping[str, Mapping[str, Any]]


def render(template: str, values: Values) -> str:
    """The page of a template.

    Raises:
        ValueError: for a number that comes from nowhere, or a placeholder that names no value.
    """
    if stray := find_stray_numbers(PLACEHOLDER.sub(" ", template), NAMES):
        raise ValueError(f"every number must come from a placeholder, got {stray}; add a value to doc_values.py")
    return reflow(PLACEHOLDER.sub(lambda found: fill_in(found, values), template))


def fill_in(found: re.Match[str], values: Values) -> str:
    topic, name, spec = found.groups()
    try:
        value = values[topic][name]
    except KeyError:
        raise ValueError(f"{found[0]} must name a value of doc_values.py") from None
    return format(value, spec or "")


def pages(values: Values) -> dict[Path, str]:
    """The path and text of every rendered page."""
    found = {}
    for template in sorted(TEMPLATES.glob("*.md")):
        page = ROOT / template.name if template.name == "README.md" else ROOT / "docs" / template.name
        source = template.relative_to(ROOT).as_posix()
        note = f"<!-- Rendered from {source} by tools/render_docs.py: edit that file. -->\n\n"
        found[page] = note + render(template.read_text(encoding="utf-8"), values)
    return found


def main(arguments: list[str]) -> int:
    from doc_values import collect_values

    stale = []
    for page, text in pages(collect_values()).items():
        if not page.is_file() or page.read_text(encoding="utf-8") != text:
            stale.append(page.relative_to(ROOT).as_posix())
            if "--check" not in arguments:
                page.write_text(text, encoding="utf-8")
    sys.stdout.write("".join(f"{name}\n" for name in stale))
    return int(bool(stale) and "--check" in arguments)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
