"""Writes the pages of the API from the public names: a new name appears on them by itself."""

from __future__ import annotations

import inspect
import re
from pathlib import Path
from typing import Any

import moreaugrad
from moreaugrad.registry import Table

# The title of a page, what it is about, and the folders or modules of the package whose names it shows.
PAGES = {
    "explaining": ("Explaining", "From pictures or tensors to explanations.", ("api", "results")),
    "methods": ("Methods", "Every method has the same two calls, `attribute` and `explain`.", ("methods",)),
    "envelope": (
        "Parts of MoreauGrad",
        "Priors, solvers, derivatives of a solution, smoothing and statistics.",
        ("envelope", "types", "model.smoothing", "model.statistics", "model.STATISTICS"),
    ),
    "attacks": ("Attacks", "Changes of an image that move its map, or its class.", ("attacks",)),
    "metrics": ("Metrics", "One number for each image.", ("metrics",)),
    "certificates": (
        "Certificates",
        "What surely stays of a map.",
        ("certificates", "model.bounded", "model.lipschitz_bounds"),
    ),
    "models": ("Models and data", "Networks by name, their preprocessing, images.", ("models", "model", "data")),
    "bulk": ("Whole data sets", "Thousands of images, and what they give.", ("bulk_jobs",)),
    "studies": ("Studies", "Methods compared under attack.", ("studies",)),
    "interop": ("Other libraries", "Captum, Quantus, Lightning, Hugging Face's Trainer.", ("interop",)),
    "extending": ("Extending", "Members of your own.", ("registry",)),
}


def write(app: Any, config: Any) -> None:
    """`config-inited`: docs/api/*.md, and the page that lists them."""
    folder = Path(app.srcdir) / "api"
    folder.mkdir(exist_ok=True)
    pages = {f"{name}.md": _page(title, about, _names_of(places)) for name, (title, about, places) in PAGES.items()}
    missing = set(public_names()) - {name for each in PAGES.values() for name in _names_of(each[2])}
    if missing:
        raise ValueError(f"every public name must have a page of the API, got none for {sorted(missing)}; see PAGES")
    lines = [f"- [{title}]({name}.md): {about}" for name, (title, about, _) in PAGES.items()]
    tree = "\n".join(PAGES)
    pages["index.md"] = (
        "# API\n\nEvery public name, `import moreaugrad as mg`, with its arguments and an example that runs.\n\n"
        + "\n".join(lines)
        + f"\n\n```{{toctree}}\n:hidden:\n\n{tree}\n```\n"
    )
    for name, text in pages.items():
        path = folder / name
        if not path.is_file() or path.read_text(encoding="utf-8") != text:  # what has not changed is not built again
            path.write_text(text, encoding="utf-8")


def public_names() -> dict[str, str]:
    """The module that each public name comes from, by the package's stub."""
    stub = Path(moreaugrad.__file__).with_suffix(".pyi").read_text(encoding="utf-8")
    return {name: module for module, name in re.findall(r"^from \.([\w.]*) import \w+ as (\w+)$", stub, re.M)}


def _names_of(places: tuple[str, ...]) -> list[str]:
    """The public names whose nearest place, in any page, is one of these."""
    every = [place for _, _, some in PAGES.values() for place in some]

    def nearest(path: str) -> str:
        return max((place for place in every if f"{path}.".startswith(f"{place}.")), key=len, default="")

    return [name for name, module in public_names().items() if nearest(f"{module}.{name}") in places]


def _page(title: str, about: str, names: list[str]) -> str:
    tables = [name for name in names if isinstance(getattr(moreaugrad, name), Table)]
    others = [name for name in names if name not in tables]
    kinds = {
        "Classes": [name for name in others if inspect.isclass(getattr(moreaugrad, name))],
        "Functions": [name for name in others if not inspect.isclass(getattr(moreaugrad, name))],
    }
    text = f"# {title}\n\n{about}\n"
    for kind, some in kinds.items():
        if some:
            listed = "\n".join(f"   moreaugrad.{name}" for name in some)
            options = "   :toctree: generated\n   :nosignatures:"
            text += f"\n## {kind}\n\n```{{eval-rst}}\n.. autosummary::\n{options}\n\n{listed}\n```\n"
    for name in tables:
        text += f"\n## `{name}`\n\n```{{eval-rst}}\n.. autodata:: moreaugrad.{name}\n   :no-value:\n```\n"
    return text
