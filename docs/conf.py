"""How `make docs` builds the site: Sphinx, MyST notebooks, furo. Neither building nor reading it needs a network."""

from __future__ import annotations

import json
import os
import re
import sys
from importlib.metadata import version as find_version
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE / "_extensions"))

import api_pages  # noqa: E402
import notebooks  # noqa: E402

project, author, copyright = "moreaugrad", "The moreaugrad developers", "2026, the moreaugrad developers"
release = version = find_version("moreaugrad")
extensions = [
    *("myst_nb", "sphinx.ext.autodoc", "sphinx.ext.autosummary", "sphinx.ext.napoleon", "sphinx.ext.viewcode"),
    *("sphinx_copybutton", "sphinx_llms_txt", "sphinx-mathjax-offline"),
]
exclude_patterns = ["conf.py", "_extensions", "templates", "notebooks/stored", "_build"]
templates_path, html_static_path = ["_templates"], ["_static"]
nitpicky = False
suppress_warnings = ["mystnb.unknown_mime_type"]

html_theme, html_title = "furo", "moreaugrad"
html_css_files = ["site.css"]
html_show_sourcelink, html_copy_source = False, True  # llms.txt is made of the sources
html_theme_options = {"navigation_with_keys": True}
pygments_style, pygments_dark_style = "friendly", "github-dark"
copybutton_exclude = ".linenos, .gp, .go"
# relative, wherever the site is
llms_txt_uri_template = "_sources/{docname}{suffix}{sourcelink_suffix}"
llms_txt_summary = (
    "Sparse and robust saliency maps for image classifiers: MoreauGrad, with its error, attacks and certificates."
)

myst_enable_extensions = ["dollarmath", "amsmath", "colon_fence", "deflist"]
myst_heading_anchors = 4

# Notebooks are scripts, executed once and kept until they change. NOTEBOOKS=off shows them without their outputs.
nb_custom_formats = {".py": "notebooks.read"}
nb_execution_mode = "off" if os.environ.get("NOTEBOOKS") == "off" else "cache"
nb_execution_cache_path = str(HERE.parent / "build" / "notebooks-cache")
nb_execution_timeout, nb_execution_raise_on_error, nb_execution_show_tb = 300, True, True  # names the cell
nb_merge_streams = True

autosummary_generate = autosummary_imported_members = True
autodoc_typehints, autodoc_typehints_format = "signature", "short"
autodoc_default_options = {"members": True, "show-inheritance": True, "member-order": "bysource"}
autodoc_type_aliases = {
    name: name
    for name in ("Images", "PerImage", "Maps", "Flags", "Counts", "Labels", "Target", "Output", "ForwardFunc")
}
python_maximum_signature_line_length = 88
napoleon_use_ivar, napoleon_attr_annotations = True, False  # "n *shape" would be read as markup
default_role = "code"

OUTSIDE = {  # pages of the site that are files of the repository
    "changelog": "CHANGELOG.md",
    "contributing": "CONTRIBUTING.md",
    "paper-tables": "paper/README.md",
    "security": "SECURITY.md",
}


def escape_plain_text(app: Any, what: str, name: str, obj: Any, options: Any, lines: list[str]) -> None:
    """Docstrings are plain text with `code`: what reStructuredText would read as markup elsewhere is escaped."""
    for number, line in enumerate(lines):
        parts = re.split(r"(`[^`]*`)", line)
        lines[number] = "".join(
            part if place % 2 else re.sub(r"([|*\\]|_(?=\W|$))", r"\\\1", part) for place, part in enumerate(parts)
        )


def tidy_signature(
    app: Any, what: str, name: str, obj: Any, options: Any, signature: str | None, returns: str | None
) -> tuple[str | None, str | None]:
    """Names of types as they are written in the source, and defaults that Python cannot print as dots."""

    def tidy(text: str | None) -> str | None:
        text = text and re.sub(r"TypeAliasForwardRef\('(\w+)'\)", r"\1", text)
        text = text and re.sub(r"InitVar\[((?:[^\[\]]|\[[^\]]*\])*)\]", r"\1", text)
        return text and re.sub(r"<factory>|<[\w .]+ object at 0x[0-9a-f]+>", "...", text)

    return tidy(signature), tidy(returns)


def read_from_repository(app: Any, name: str, source: list[str]) -> None:
    """Pages that are files of the repository, and links to such files as readers of the repository follow them."""
    if name in OUTSIDE:
        path = HERE.parent / OUTSIDE[name]
        place = os.path.relpath(path.parent, HERE)

        def move(found: re.Match[str]) -> str:
            return f"]({os.path.normpath(f'{place}/{found[1]}')}"

        source[0] = re.sub(r"\]\((?!\w+:|#)([^)\s#]+)", move, path.read_text(encoding="utf-8"))
    source[0] = source[0].replace("```console\n", "```sh\n")  # commands without a prompt: not what a program prints
    here = Path(name).parent.as_posix()
    source[0] = re.sub(  # folders are no pages
        r"\[([^\]]*)\]\((\.\./[^)\s#]+)\)",
        lambda found: found[1 if (HERE / here / found[2]).is_dir() else 0],
        source[0],
    )
    for page, file in OUTSIDE.items():
        source[0] = source[0].replace(
            f"]({os.path.relpath(file, f'docs/{here}')}", f"]({os.path.relpath(page, here)}.md"
        )


def write_figure_data(app: Any) -> None:
    """The numbers of the figures, as a script: a page that is opened from disk may not fetch a file."""
    stored = HERE.parent / "benchmarks" / "results" / "figures_cpu.json"
    found = json.dumps(json.loads(stored.read_text(encoding="utf-8")), separators=(",", ":"))
    target = HERE / "_static" / "figures" / "data.js"
    text = f"window.moreaugradFigures = {found};\n"
    if not target.is_file() or target.read_text(encoding="utf-8") != text:
        target.write_text(text, encoding="utf-8")


def add_figures(app: Any, name: str, template: str, context: dict[str, Any], doctree: Any) -> None:
    """Scripts and styles of the figures, on the page that has them."""
    if name == "how-it-works":
        app.add_css_file("figures/figures.css")
        for script in ("data", "draw", "sigma", "rho", "eta", "statistic"):
            app.add_js_file(f"figures/{script}.js", loading_method="defer")


def setup(app: Any) -> None:
    notebooks.check_stored(HERE / "notebooks")
    app.connect("config-inited", api_pages.write)  # before Sphinx looks for pages
    app.connect("builder-inited", write_figure_data)
    app.connect("html-page-context", add_figures)
    app.connect("source-read", read_from_repository)
    app.connect("autodoc-process-docstring", escape_plain_text, priority=100)
    app.connect("autodoc-process-signature", tidy_signature)
