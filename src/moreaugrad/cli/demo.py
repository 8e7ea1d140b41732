"""The demonstration: a cat that comes with scikit-image, four methods, pictures in a folder."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from moreaugrad.api import ExplainBatch
from moreaugrad.cli import report
from moreaugrad.cli.jobs import DONE, load, prepare, side_by_side
from moreaugrad.cli.request import Request
from moreaugrad.cli.terminal import Terminal
from moreaugrad.data.images import read_image
from moreaugrad.types import Item

# together about 700 gradients: well under a minute on two cores
SHOWN: dict[str, dict[str, Any]] = {
    "gradient": {},
    "moreau": {"budget": 192},
    "sparse_moreau": {"budget": 288, "sparsity": 0.05},
    "group_sparse_moreau": {"budget": 192, "sparsity": 0.15},
}


def run_demo(out: Path, terminal: Terminal) -> int:
    """A picture and a map per method, and one of all of them."""
    from skimage.data import chelsea

    terminal.hear_warnings()
    prepare(out, (), ())
    classifier = load(Request(), terminal)
    photo = chelsea()  # type: ignore[no-untyped-call]
    records = []
    for name, options in SHOWN.items():
        batch = ExplainBatch(classifier, name, options)
        with terminal.bar(name) as watch:
            (record,) = batch([Item(f"chelsea_{name}", read_image(photo))], watch)
        if record.explanation is None:
            raise RuntimeError(record.error)
        report.write(record, out)
        report.append(report.as_json(record, "skimage.data.chelsea", batch), out)
        terminal.say(f"{name}: {report.headline(record)} -> {out / record.key}.png")
        records.append(record)
    side_by_side(records, list(SHOWN), f"scikit-image's chelsea: {records[0].label}", out / "chelsea_compare.png")
    terminal.say(f"all side by side -> {out / 'chelsea_compare.png'}")
    return DONE
