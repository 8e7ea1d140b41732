"""Draws the still pictures of docs/how-it-works.md and docs/known.md: python tools/figure_pictures.py [--out FOLDER]

The first are what Chromium shows of the interactive figures, without their sliders: for readers on GitHub, on paper and
without scripts. All are drawn from committed results, and take seconds.
"""

from __future__ import annotations

import argparse
import json
import shutil
from io import BytesIO
from pathlib import Path
from tempfile import TemporaryDirectory

from matplotlib.figure import Figure
from PIL import Image
from playwright.sync_api import sync_playwright

ROOT = Path(__file__).parents[1]
SCRIPTS = ROOT / "docs" / "_static" / "figures"
RESULTS = ROOT / "benchmarks" / "results"
NAMES = ("sigma", "rho", "eta", "statistic")
WIDTH, DENSITY, COLOURS = 720, 1.5, 160
QUALITIES = {"fast": "#9ca3af", "balanced": "#0a4bff", "best": "#c2410c"}
THEME = """
body {
  margin: 0; padding: 8px; font-family: sans-serif; line-height: 1.4;
  --color-background-primary: #fff; --color-background-border: #eeebee; --color-brand-primary: #0a4bff;
  --color-foreground-primary: #000; --color-foreground-secondary: #5a5c63; --color-foreground-muted: #6b6f76;
}
.figure-live { border: 0 !important; padding: 0 !important; }
.figure-live .figure-slider, .figure-live .figure-choice { display: none !important; }
"""


def main() -> None:
    asked = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    asked.add_argument("--out", type=Path, default=ROOT / "docs" / "figures")
    out = asked.parse_args().out
    out.mkdir(parents=True, exist_ok=True)
    photograph_figures(out)
    draw_seeds().savefig(out / "known.png")


def photograph_figures(out: Path) -> None:
    with TemporaryDirectory() as folder, sync_playwright() as tool:
        home = Path(folder)
        for each in SCRIPTS.iterdir():
            shutil.copy(each, home)
        data = (RESULTS / "figures_cpu.json").read_text(encoding="utf-8")
        (home / "data.js").write_text(f"window.moreaugradFigures = {data};", encoding="utf-8")
        scripts = "".join(f'<script defer src="{name}.js"></script>' for name in ("data", "draw", *NAMES))
        places = "".join(f'<div data-figure="{name}"></div>' for name in NAMES)
        head = f'<meta charset="utf-8"><link rel="stylesheet" href="figures.css"><style>{THEME}</style>{scripts}'
        (home / "index.html").write_text(f"<!doctype html><head>{head}</head><body>{places}</body>", encoding="utf-8")
        browser = tool.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox", "--disable-gpu"])
        page = browser.new_page(viewport={"width": WIDTH + 16, "height": 900}, device_scale_factor=DENSITY)
        page.goto((home / "index.html").as_uri())
        for name in NAMES:
            shot = Image.open(BytesIO(page.locator(f"[data-figure={name}]").screenshot())).convert("RGB")
            shot.quantize(COLOURS, dither=Image.Dither.NONE).save(out / f"{name}.png", optimize=True)
        browser.close()


def draw_seeds() -> Figure:
    """What the maps of two seeds say of themselves, and how alike they are."""
    rows = json.loads((RESULTS / "seeds_cpu.json").read_text(encoding="utf-8"))["rows"]
    figure = Figure(figsize=(7.2, 4.2), dpi=110, layout="constrained")
    axes = figure.subplots()
    errors = [i / 100 for i in range(66)]
    axes.plot(errors, [1 - each**2 for each in errors], color="black", linewidth=1, label="1 - relative_error ** 2")
    for quality, colour in QUALITIES.items():
        some = [row for row in rows if row["quality"] == quality]
        own = [sum(row["relative_error"]) / 2 for row in some]
        cosines = [row["cosine"] for row in some]
        axes.scatter(own, cosines, s=16, color=colour, alpha=0.8, label=f'budget="{quality}"')
    axes.set(xlabel="relative error that the maps report", ylabel="cosine of two seeds", xlim=(0, 0.65), ylim=(0.6, 1))
    axes.grid(alpha=0.25)
    axes.legend(frameon=False, loc="lower left")
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
    return figure


if __name__ == "__main__":
    main()
