"""The values of the pages on metrics, robustness studies and the paper, from the tables of paper/results.

A part of doc_values.py, which names the topics.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import moreaugrad as mg
from moreaugrad.studies.plan import FLOOR, STRONGEST
from paper import names
from paper.data.records import number
from paper.report import tables
from paper.report.attenuation import FULL
from paper.report.markdown import Results, Row, format_difference, format_interval, format_percent, make_table
from paper.report.summaries import CHANCE, DISTANCE, curve

FOLDER = Path(__file__).parents[1] / "paper" / "results"
RESULTS = Results(FOLDER)
OURS, SPARSE, PLAIN, RANKED = "moreau", "sparse_moreau", "smoothgrad", "sparsified_smoothgrad"
ROBUST = {"method": "statistics", "noise": "0.2", "rho": "0", "statistic": "rms"}  # the preset "robust"
SOME_SIZE = {"cifar10": "1", "tiny_imagenet": "1.71429", "imagenet": "1.71429"}  # attacks of the frontier

Values = dict[str, Any]

FORMULAS = {  # in one line, and what it is for; a metric without a line is listed by its summary alone
    "normalised_distance": (
        r"$\lVert a/\lVert a\rVert-b/\lVert b\rVert\rVert=\sqrt{2-2\cos(a,b)}$",
        "the change of the whole map, whatever its scale; the default of studies",
    ),
    "topk_intersection": (
        r"$\lvert T_k(a)\cap T_k(b)\rvert/k$",
        "where only the most salient entries are read; `k` is a share, a number, or 40 % of the non-zeros of `a`",
    ),
    "ssim": (
        r"mean over windows of $\frac{(2\mu_a\mu_b+c_1)(2\sigma_{ab}+c_2)}"
        r"{(\mu_a^2+\mu_b^2+c_1)(\sigma_a^2+\sigma_b^2+c_2)}$",
        "maps as people see them; `raw=True` compares unscaled maps, where small ones always look alike",
    ),
    "cosine": (
        r"$\langle a,b\rangle/(\lVert a\rVert\lVert b\rVert)$",
        "the same information as the distance, as an angle",
    ),
    "pearson": (r"$\cos(a-\bar a, b-\bar b)$", "maps that share a large constant part"),
    "spearman": (
        r"$\mathrm{pearson}(\mathrm{rank}(a), \mathrm{rank}(b))$",
        "where only the order of the entries counts",
    ),
    "kl_divergence": (
        r"$\sum_i p_i\ln(p_i/q_i)$, $p=\lvert a\rvert/\sum\lvert a\rvert$, $q$ alike of $b$",
        "dense maps as distributions; infinite for most sparse maps",
    ),
    "centre_shift": (
        r"$\lVert C(a)-C(b)\rVert$, $C=\sum_u u \lvert a_u\rvert/\sum_u\lvert a_u\rvert$",
        "where the place of the map matters more than its entries; in pixels",
    ),
    "nonzero_share": (
        r"share of entries with $\lvert v_i\rvert>\mathrm{tol}\cdot\max_j\lvert v_j\rvert$",
        "maps with exact zeros; `tol=1e-3` for others",
    ),
    "gini": (
        r"$\sum_k(2k-n-1) \lvert v\rvert_{(k)}/(n\sum\lvert v\rvert)$",
        "how unequal the entries are, of maps without zeros too",
    ),
    "hoyer": (
        r"$(\sqrt n-\lVert v\rVert_1/\lVert v\rVert_2)/(\sqrt n-1)$",
        "the same by norms; 1 for a single entry",
    ),
    "active_groups": (
        "share of groups that hold such an entry",
        "group-sparse maps: how many cells or superpixels are left",
    ),
    "insertion": (
        r"$\int_0^1 p_c(x_t) \mathrm{d}t$, the top share $t$ of the pixels on a blurred image",
        "whether the map finds pixels that suffice for the class",
    ),
    "deletion": (
        r"$\int_0^1 p_c(x_t) \mathrm{d}t$, the top share $t$ of the pixels replaced",
        'whether the map finds pixels that the class needs; try `baseline="blur"` too',
    ),
    "pointing_game": (
        r"1 if the pixel of $\max_u\lvert v_u\rvert$ is on the object or close to it, else 0",
        "coarse: where the map peaks",
    ),
    "energy_in_box": (
        r"$\sum_{u\in\text{object}}\lvert v_u\rvert/\sum_u\lvert v_u\rvert$",
        "how much of the map is on the object; compare with the area of the box",
    ),
    "local_lipschitz": (
        r"$\max_d\lVert I(x+d)-I(x)\rVert/\lVert d\rVert$ over random $d$ of one length",
        "sensitivity without an attack; a lower bound",
    ),
    "sanity_check": (
        r"a metric of $I_\theta(x)$ and $I_{\theta'}(x)$, all weights $\theta'$ random",
        "whether the map depends on what the network has learnt",
    ),
    "model_randomisation": ("the same after each layer, from the output on", "which layers the map depends on"),
}


def metrics() -> Values:
    """The metrics by what they are called with: formula, range, direction and use."""
    found: dict[str, list[list[str]]] = {}
    for name, entry in mg.METRICS.items():
        if entry.member is not None:
            continue  # registered from outside
        formula, use = FORMULAS.get(name, (entry.summary, ""))
        low, high = (f"{end:g}" for end in entry.range)
        limits = f"{low} or more" if high == "inf" else f"{low} to {high}"
        found.setdefault(entry.needs, []).append([f"`{name}`", formula, limits, entry.direction or "", use])
    head = ["metric", "formula", "range", "better", "use it for"]
    return {needs: make_table(head, rows) for needs, rows in found.items()}


def fair(method: str, dataset: str, epsilon: str, mode: str = STRONGEST, metric: str = DISTANCE) -> Row:
    """One line of the fair test."""
    where = {"dataset": dataset, "method": method, "epsilon": epsilon, "mode": mode, "metric": metric}
    return RESULTS.one("fair.csv", where)


def distances(dataset: str) -> str:
    """How far the strongest attack moves maps, by method and norm; what two seeds do and another image is, last."""
    lines = [line for line in RESULTS.lines("fair.csv") if line["dataset"] == dataset]
    sizes = sorted({number(line["epsilon"]) for line in lines if line["mode"] == STRONGEST})
    rows = []
    for method in names.METHODS:
        at = {number(line["epsilon"]): format_interval(line) for line in curve(lines, dataset, method, DISTANCE)}
        if at:
            levels = (f"{number(fair(method, dataset, '0', mode)['mean']):.2f}" for mode in (FLOOR, CHANCE))
            rows.append([names.method(method), *(at[size] for size in sizes), *levels])
    return make_table(["distance", *(f"norm {size:g}" for size in sizes), "two seeds", "another image"], rows)


def at_two_norms() -> str:
    """The mean distance at a small and at a large norm on every data set."""
    places = [(dataset, size) for dataset in names.DATASETS for size in ("1", "10")]
    known = [name for name in names.METHODS if RESULTS.select("fair.csv", {"method": name})]
    rows = [[names.method(name), *(f"{number(fair(name, *at)['mean']):.2f}" for at in places)] for name in known]
    return make_table(["distance", *(f"{names.dataset(dataset)}, norm {size}" for dataset, size in places)], rows)


def sparse_and_robust() -> str:
    """The preset "robust" beside the published sparse map, at every size of the attack."""
    rows = []
    for dataset in names.DATASETS:
        where = {"dataset": dataset, "share": "0.1"}
        explains = [goal(dataset, measure=measure) for measure in ("insertion", "deletion")]
        changes = [f"{format_difference(line)} ({line['n']} images)" for line in explains]
        for line in RESULTS.select("frontier.csv", where | ROBUST):
            size = line["epsilon"]
            other = RESULTS.one("frontier.csv", where | {"method": SPARSE, "epsilon": size})
            moved = [format_interval(each, "moved") for each in (line, other)]
            ratio = format_interval(goal(dataset, measure="ratio", epsilon=size))
            rows.append([names.dataset(dataset), line["n"], f"{number(size):.2g}", *moved, ratio, *changes])
            changes = ["", ""]  # of clean maps, the same at every size
    head = ["data set", "images", "norm", "moved, `robust`", "moved, `published`", "ratio", "insertion", "deletion"]
    return make_table(head, rows)


def goal(dataset: str, other: str = SPARSE, **where: str) -> Row:
    """The preset "robust" against a published map."""
    return RESULTS.one("frontier_goal.csv", {"dataset": dataset, "over": "all", "other": other} | ROBUST | where)


def far_apart() -> str:
    """On how many images two seeds differ by more than twice the median, by method."""
    rows = []
    for dataset in names.DATASETS:
        some = RESULTS.select("fair_floors.csv", {"dataset": dataset})
        cells = {line["method"]: f"{number(line['far']):.0f} of {number(line['n']):.0f}" for line in some}
        rows.append([names.dataset(dataset), *(cells[name] for name in (PLAIN, RANKED, OURS, SPARSE))])
    return make_table(["data set", *map(names.method, (PLAIN, RANKED, OURS, SPARSE))], rows)


def converted() -> str:
    """Distances in the paper's units, at the authors' budget, beside the published ones."""
    rows = []
    for dataset, protocol, size in (
        ("imagenet", "curve", "as they are"),
        ("tiny_imagenet", "curve", "as they are"),
        ("tiny_imagenet", "enlarged", "as of images enlarged to photos"),
    ):
        where = {"dataset": dataset, "protocol": protocol, "method": OURS, "mode": STRONGEST, "metric": FULL}
        for line in RESULTS.select("units.csv", where):
            found = [names.dataset(dataset), size, f"{number(line['epsilon']):g}", format_interval(line)]
            rows.append([*found, f"{number(line['published']):.2f}", line["counted"]])
    return make_table(["data set", "norms", "norm", "here", "published", "images"], rows)


def explained() -> str:
    """MoreauGrad and its sparse map minus SmoothGrad, image by image."""
    rows = []
    for dataset in names.DATASETS:
        for method in (OURS, SPARSE, RANKED):
            where = {"dataset": dataset, "method": method, "other": PLAIN, "over": "all"}
            lines = {line["metric"]: line for line in RESULTS.select("accuracy_paired.csv", where)}
            cells = (format_difference(lines[name]) for name in ("insertion", "deletion", "deletion_blur"))
            kept = accuracy(method, dataset, "nonzero_share")
            rows.append([names.dataset(dataset), names.method(method), format_percent(number(kept["mean"])), *cells])
    head = [
        "data set",
        "method, less SmoothGrad",
        "entries kept",
        "insertion",
        "deletion, mean colour",
        "deletion, blur",
    ]
    return make_table(head, rows)


def accuracy(method: str, dataset: str, metric: str) -> Row:
    return RESULTS.one("accuracy.csv", {"dataset": dataset, "method": method, "metric": metric, "over": "all"})


def of_theory(name: str, case: str) -> float:
    return number(RESULTS.one("theory.csv", {"name": name, "case": case})["value"])


def images(file: str, **where: str) -> str:
    """The number of images of each data set, as a list in words."""
    counts = {
        dataset: {line["n"] for line in RESULTS.select(file, {"dataset": dataset} | where)}
        for dataset in names.DATASETS
    }
    return ", ".join(f"{n} of {names.dataset(dataset)}" for dataset, (n,) in counts.items())


def robustness() -> Values:
    """What the studies of the paper show, in a few numbers."""
    some = {name: goal(name, measure="ratio", epsilon=size) for name, size in SOME_SIZE.items()}
    return {
        **{f"ratio_{name}": format_interval(line) for name, line in some.items()},
        **{f"few_{name}": line["n"] for name, line in some.items()},
        "images": images("fair.csv", method=OURS, mode=STRONGEST, metric=DISTANCE, epsilon="3"),
        "table": at_two_norms(),
    }


def reproduction() -> Values:
    """The numbers of the page on the paper."""
    study = json.loads((FOLDER / "studies/fair_cifar10_1/study.json").read_text(encoding="utf-8"))
    plan = study["configuration"]["study"]
    conversion = {line["name"]: number(line["value"]) for line in RESULTS.lines("conversion.csv")}
    first = {
        f"{name}_{mode}": number(fair(method, "cifar10", "1", mode)["mean"])
        for name, method, mode in (
            ("moreau", OURS, "frozen"),
            ("moreau", OURS, STRONGEST),
            ("smoothgrad", PLAIN, "exact"),
            ("smoothgrad", PLAIN, STRONGEST),
            ("sparsified", RANKED, STRONGEST),
        )
    }
    agree = {
        f"cifar10_{method}": format_interval(
            RESULTS.one(
                "robustness.csv",
                {"dataset": "cifar10", "method": method, "mode": STRONGEST, "epsilon": "3", "metric": DISTANCE},
            )
        )
        for method in (OURS, SPARSE, RANKED)
    }
    printed = {(line["method"], line["dataset"]): line for line in RESULTS.lines("jumps.csv") if line["epsilon"] == "3"}
    return {
        **first,
        **agree,
        **{f"printed_{method}": number(printed[method, "cifar10"]["published"]) for method in (OURS, SPARSE)},
        **{name: conversion[name] for name in ("std", "std_paper", "norm_back", "rho_back")},
        **{f"published_{name}": tables.published(RESULTS, name).split("\n\n")[0] for name in names.DATASETS},
        **{f"fair_{name}": distances(name) for name in names.DATASETS},
        "published_images": images("robustness.csv", method=OURS, mode=STRONGEST, metric=DISTANCE, epsilon="10"),
        "fair_images": images("fair.csv", method=OURS, mode=STRONGEST, metric=DISTANCE, epsilon="3"),
        "accuracy_images": images("accuracy.csv", method=OURS, metric="insertion", over="all"),
        "budget": plan["budget"],
        "attack_budget": plan["attack_budget"],
        "steps": plan["attacks"]["topk"]["steps"],
        "frontier": sparse_and_robust(),
        "explained": explained(),
        "converted": converted(),
        "seeds": far_apart(),
        "counterexample": of_theory("counterexample_ratio", "sparse"),
        "stated": of_theory("lipschitz_stated", "counterexample"),
        "loose_cifar10": of_theory("curvature_loose_by", "cifar10"),
        "loose_imagenet": of_theory("curvature_loose_by", "imagenet"),
        "curvature": of_theory("curvature_sharp", "any"),
        "thumb_cifar10": of_theory("rule_of_thumb", "cifar10"),
        "thumb_imagenet": of_theory("rule_of_thumb", "imagenet"),
        "sparse_energy": number(accuracy(SPARSE, "tiny_imagenet", "energy_in_box")["mean"]),
        "smoothgrad_energy": number(accuracy(PLAIN, "tiny_imagenet", "energy_in_box")["mean"]),
    }
