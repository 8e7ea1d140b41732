"""The values of the pages on how well maps are known and on sparsity.

A part of doc_values.py, which names the topics.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from paper import names
from paper.data.records import number
from paper.report.markdown import Results, format_difference, format_interval, format_percent, make_table

ROOT = Path(__file__).parents[1]
RESULTS = Results(ROOT / "paper" / "results")
MEASURED = ROOT / "benchmarks" / "results"
ALL = {"over": "all"}
THRESHOLDED = {"method": "statistics", "noise": "0.1", "rho": "0", "statistic": "mean", "other": "sparse_moreau"} | ALL

Values = dict[str, Any]


def figures() -> Values:
    """How well the maps of the figures are known, by their noise."""
    found = json.loads((MEASURED / "figures_cpu.json").read_text(encoding="utf-8"))
    cells = [
        [f"`{row['noise_level']:g}`", format_percent(row["relative_error"])]
        for row in found["sigma"]["levels"]
        if row["noise_level"]
    ]
    return {"budget": found["budget"], "table": make_table(["`noise_level`", "relative error"], cells)}


def sparse_maps() -> Values:
    """What zeros cost in faithfulness: beside SmoothGrad, and beside SmoothGrad with a threshold."""
    lines = []
    for dataset in names.DATASETS:
        for method in ("sparse_moreau", "group_sparse_moreau"):
            where = {"dataset": dataset, "method": method} | ALL
            kept = number(RESULTS.one("accuracy.csv", where | {"metric": "nonzero_share"})["mean"])
            pairs = [
                RESULTS.one("accuracy_paired.csv", where | {"other": "smoothgrad", "metric": metric})
                for metric in ("insertion", "deletion", "deletion_blur")
            ]
            cells = [format_difference(line) for line in pairs]
            lines.append([names.dataset(dataset), names.method(method), pairs[0]["n"], format_percent(kept), *cells])
    head = ["data set", "map", "images", "entries kept", "insertion", "deletion, mean colour", "deletion, blur"]
    control = []
    for dataset in names.DATASETS:
        where = THRESHOLDED | {"dataset": dataset}
        pairs = [RESULTS.one("frontier_goal.csv", where | {"measure": each}) for each in ("insertion", "deletion")]
        control.append([names.dataset(dataset), pairs[0]["n"], *(format_difference(line) for line in pairs)])
    boxes = {
        name: format_interval(RESULTS.one("accuracy.csv", _in_box(method)))
        for name, method in (("sparse", "sparse_moreau"), ("groups", "group_sparse_moreau"), ("dense", "smoothgrad"))
    }
    asked = json.loads((MEASURED / "sparsity_cpu.json").read_text(encoding="utf-8"))
    (entries,) = (row for row in asked["table"] if row["method"] == "SparseMoreauGrad")
    return {
        "photos": asked["photos"],
        "percent": entries["asked_percent"],
        "pixels": entries["pixels_kept_percent"],
        "least_eta": entries["eta_smallest"],
        "most_eta": entries["eta_largest"],
        "change": max(entries["change_with_same_eta_other_seed_points"]),
        "table": make_table(head, lines),
        "control": make_table(["data set", "images", "insertion", "deletion, mean colour"], control),
        **boxes,
    }


def _in_box(method: str) -> dict[str, str]:
    return {"dataset": "tiny_imagenet", "method": method, "metric": "energy_in_box"} | ALL
