"""Draws docs/speed.png from the stored results: quality against gradients, and gradients per second.

python -m benchmarks.plots
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure

from benchmarks.record import RESULTS

OUT = RESULTS.parent.parent / "docs" / "speed.png"
PUBLISHED = 19_200  # gradients of the published algorithm, whose result defines a gap of zero
BLUE, GREY = "#1f5fa8", "#9a9a9a"


def read_result(name: str) -> Any:
    return json.loads((RESULTS / f"{name}.json").read_text())


def main(out: Path = OUT) -> None:
    quality, throughput = read_result("quality"), read_result("throughput")
    figure = Figure(figsize=(10, 3.6), layout="constrained")
    left, right = figure.subplots(1, 2)
    rows = [row for row in quality["table"] if row["solver"] == "DualAveraging"]
    left.plot([row["gradients"] for row in rows], [100 * row["relative_gap"] for row in rows], "o-", color=BLUE)
    left.plot(PUBLISHED, 0, "s", color=GREY)
    left.annotate("published\nalgorithm", (PUBLISHED, 0), (-52, 8), textcoords="offset points", color=GREY)
    left.axhline(5, color=GREY, linewidth=0.8, linestyle=":")
    left.set(xscale="log", xlabel="gradients per image", ylabel="gap to the published result (%)", ylim=(-0.5, None))
    left.set_title(f"quality, {quality['photos']} photos", fontsize=10)
    ways = [row for row in throughput["table"] if row["model"] == "efficientnet_lite0"]
    rates = [row["gradients_per_second"] for row in reversed(ways)]
    bars = right.barh([row["way"] for row in reversed(ways)], rates, color=BLUE)
    right.bar_label(bars, labels=[f"{rate:,.0f}" for rate in rates], padding=3, fontsize=9)
    right.set(xlabel="gradients per second in a solve of 64 images", xlim=(0, 1.18 * max(rates)))
    right.set_title(f"EfficientNet-Lite0 at 224 px, {throughput['hardware']}", fontsize=10)
    for axes in (left, right):
        axes.spines[["top", "right"]].set_visible(False)
    figure.savefig(out, dpi=110)
    print("drawn", out.name)


if __name__ == "__main__":
    main()
