"""The values of the page on which method to take, from the tables of paper/results and the costs on a CPU.

A part of doc_values.py, which names the topics.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from study_values import OURS, PLAIN, RANKED, RESULTS, SOME_SIZE, SPARSE, accuracy, fair, goal

import moreaugrad as mg
from moreaugrad.studies.plan import STRONGEST
from paper import names
from paper.data.records import number
from paper.report.markdown import Row, format_difference, format_interval, format_percent, make_table
from paper.report.summaries import CHANCE

COSTS = Path(__file__).parents[1] / "benchmarks" / "results" / "cost_cpu.json"
GROUPS, SIMPLE, ADDITIVE, COARSE, RANDOM = (
    *("group_sparse_moreau", "gradient", "integrated_gradients", "gradcam", "random"),
)
TWO = ("cifar10", "imagenet")
SIZES = ("1", "10")  # a small attack and a large one
TIMED = (SIMPLE, ADDITIVE, "deeplift", PLAIN, RANKED, COARSE, SPARSE, "relex", "fgvis")
SHORT = {"imagenet": "photos", "cifar10": "cifar", "tiny_imagenet": "tiny"}
# Sparse MoreauGrad without an inner problem: SmoothGrad and a soft threshold
THRESHOLDED = {"method": "statistics", "noise": "0.1", "rho": "0", "statistic": "mean", "share": "0.1"}

Values = dict[str, Any]


def choose() -> Values:
    """What the studies measured of each method, and what it costs."""
    seconds = measure_costs()
    return {
        **{f"table_{short}": compare_methods(dataset) for dataset, short in SHORT.items()},
        **{f"images_{short}": accuracy(OURS, dataset, "insertion")["n"] for dataset, short in SHORT.items()},
        "attacked_cifar": fair(OURS, "cifar10", "1")["n"],
        "paired": compare_with_smoothgrad(),
        "kept": format_percent(number(accuracy(SPARSE, "imagenet", "nonzero_share")["mean"])),
        **{f"{name}_insertion": explain(name, "insertion") for name in (PLAIN, SPARSE, ADDITIVE, COARSE)},
        **{f"{name}_deletion": explain(name, "deletion") for name in (PLAIN, SPARSE, OURS, RANKED, COARSE)},
        **{f"{name}_energy": locate(name, "energy_in_box") for name in (PLAIN, GROUPS, RANDOM)},
        **{f"{name}_pointing": format_percent(locate(name, "pointing_game")) for name in (PLAIN, OURS, COARSE)},
        **{f"{name}_moved": move(name, "cifar10") for name in (PLAIN, RANKED, OURS)},
        **{f"{name}_moved_photos": move(name, "imagenet") for name in (SIMPLE, ADDITIVE)},
        **{f"{name}_seconds": seconds[name] for name in TIMED},
        "samples": mg.SmoothGrad(len).noise.samples,
        "hardware": json.loads(COSTS.read_text(encoding="utf-8"))["hardware"],
        "frozen": number(fair(OURS, "cifar10", "1", "frozen")["mean"]),
        **{
            f"robust_{SHORT[name]}": format_interval(goal(name, measure="ratio", epsilon=SOME_SIZE[name]))
            for name in TWO
        },
        "robust_deletion": format_interval(goal("imagenet", measure="deletion"), spec=".3f"),
        "thresholded": compare_thresholded(),
        **{f"far_{name}": count_far(name) for name in (OURS, PLAIN)},
    }


def explain(method: str, metric: str) -> float:
    return number(accuracy(method, "imagenet", metric)["mean"])


def locate(method: str, metric: str) -> float:
    return number(accuracy(method, "tiny_imagenet", metric)["mean"])


def move(method: str, dataset: str) -> float:
    """The distance that the strongest attack of norm 1 reaches."""
    return number(fair(method, dataset, "1")["mean"])


def measure_costs() -> dict[str, float]:
    """Seconds of one photo; methods with a budget at quality fast."""
    found = json.loads(COSTS.read_text(encoding="utf-8"))["table"]
    return {row["method"]: row["seconds"] for row in found if row["images"] == 1}


def find_pair(dataset: str, epsilon: str, metric: str) -> Row:
    """MoreauGrad less SmoothGrad under attack."""
    where = {"dataset": dataset, "epsilon": epsilon, "metric": metric, "method": OURS, "other": PLAIN}
    return RESULTS.one("paired.csv", where)


def compare_methods(dataset: str) -> str:
    """Faithfulness, robustness and sparsity of each method on one data set."""
    located = ("pointing_game", "energy_in_box") if dataset == "tiny_imagenet" else ()
    rows = []
    for method in names.ACCURACY_METHODS:
        explains = [format_interval(accuracy(method, dataset, each)) for each in ("insertion", "deletion", *located)]
        kept = format_percent(number(accuracy(method, dataset, "nonzero_share")["mean"]))
        attacked = bool(RESULTS.select("fair.csv", {"dataset": dataset, "method": method, "mode": STRONGEST}))
        moved = [""] * (len(SIZES) + 1)
        if attacked:
            moved = [format_interval(fair(method, dataset, size)) for size in SIZES]
            moved.append(f"{number(fair(method, dataset, '0', CHANCE)['mean']):.2f}")
        rows.append([names.method(method), *explains, kept, *moved])
    head = ["method", "insertion ↑", "deletion ↓", *(f"{names.metric(each)} ↑" for each in located), "entries kept"]
    return make_table([*head, *(f"moved, norm {size} ↓" for size in SIZES), "another image"], rows)


def compare_with_smoothgrad() -> str:
    """MoreauGrad less SmoothGrad under attack, image by image."""
    rows = []
    for dataset in names.DATASETS:
        for size in SIZES:
            line = find_pair(dataset, size, "normalised_distance")
            rows.append(
                [names.dataset(dataset), size, format_difference(line), format_percent(number(line["positive"]))]
            )
    return make_table(["data set", "norm", "distance, MoreauGrad less SmoothGrad", "MoreauGrad moves farther on"], rows)


def compare_thresholded() -> str:
    """SmoothGrad with a soft threshold against Sparse MoreauGrad, image by image."""
    rows = []
    for dataset, size in SOME_SIZE.items():
        where = {"dataset": dataset, "over": "all", "other": SPARSE} | THRESHOLDED
        ratio = RESULTS.one("frontier_goal.csv", where | {"measure": "ratio", "epsilon": size})
        changes = [RESULTS.one("frontier_goal.csv", where | {"measure": each}) for each in ("insertion", "deletion")]
        cells = [f"{format_difference(line)} ({line['n']} images)" for line in changes]
        rows.append([names.dataset(dataset), f"{format_interval(ratio)} ({ratio['n']} images)", *cells])
    return make_table(["data set", "movement over Sparse MoreauGrad's", "insertion", "deletion"], rows)


def count_far(method: str) -> str:
    """On how many photos two seeds' maps differ by more than twice the median."""
    line = RESULTS.one("fair_floors.csv", {"dataset": "imagenet", "method": method})
    return f"{number(line['far']):.0f} of {number(line['n']):.0f}"
