"""Draws the pictures of docs/sparsity.md: python tools/sparsity_pictures.py [--budget 800] [--out docs/figures]

Maps of EfficientNet-Lite0 for scikit-image's photo chelsea: single entries at several shares, and groups of several
kinds. Takes minutes on a CPU.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
import torch
from matplotlib.figure import Figure
from PIL import Image
from skimage.data import chelsea
from skimage.segmentation import slic

import moreaugrad as mg
from moreaugrad.plotting.pictures import scale_map

SHARES = (0.2, 0.1, 0.05, 0.02, 0.01)
OWN = 40  # segments of the label map that stands for a user's own
MOST_BYTES, QUALITIES = 120_000, range(90, 30, -5)


def main() -> None:
    asked = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    asked.add_argument("--budget", type=int, default=800, help="gradients of a map")
    asked.add_argument("--out", type=Path, default=Path("docs/figures"))
    args = asked.parse_args()
    args.out.mkdir(parents=True, exist_ok=True)
    model = mg.load_model("efficientnet_lite0", device="cpu")
    x = model.preprocess(Image.fromarray(chelsea()))[None]  # type: ignore[no-untyped-call]
    seen = ((x[0] - x.min()) / (x.max() - x.min())).permute(1, 2, 0).numpy()

    path = mg.SparseMoreauGrad(model, sparsity=list(SHARES), budget=args.budget).explain(x)
    tiles = {f"sparsity={share:g}": found for share, found in zip(SHARES, path, strict=True)}
    save(draw(seen, tiles), args.out / "sparsity.jpg")

    own = torch.as_tensor(slic(seen, n_segments=OWN, channel_axis=-1, start_label=0))
    kinds: dict[str, dict[str, Any]] = {
        "groups=16": {"groups": 16},
        "groups=7": {"groups": 7},
        'groups="superpixels"': {"groups": "superpixels"},
        "own labels": {"groups": own},
        'groups="channels"': {"groups": "channels", "sparsity": 1 / 3},
    }
    tiles = {
        name: mg.GroupSparseMoreauGrad(model, budget=args.budget, **options).explain(x)
        for name, options in kinds.items()
    }
    save(draw(seen, tiles), args.out / "groups.jpg")


def draw(seen: np.ndarray, tiles: Mapping[str, mg.Explanation]) -> Figure:
    """The photo and the maps, three in a row, each with the share of its entries that is not zero."""
    figure = Figure(figsize=(7.2, 5.2), dpi=100, layout="constrained")
    places = figure.subplots(2, 3).flat
    first = next(places)
    first.imshow(seen)
    first.set_title("photo\n ", fontsize=10)
    for axes, (name, found) in zip(places, tiles.items(), strict=True):
        axes.imshow(scale_map(found.map[0]).heat, cmap="inferno", vmin=0, vmax=1)
        axes.set_title(f"{name}\n{100 * float(found.kept):.3g} % of the entries", fontsize=10)
    for axes in figure.axes:
        axes.set_axis_off()
    return figure


def save(figure: Figure, path: Path) -> None:
    """As a JPEG, as good as its size allows."""
    figure.savefig(handle := BytesIO(), format="png")
    picture = Image.open(handle).convert("RGB")
    for quality in QUALITIES:
        picture.save(path, quality=quality, optimize=True)
        if path.stat().st_size <= MOST_BYTES:
            break


if __name__ == "__main__":
    main()
