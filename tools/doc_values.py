"""The values that the templates of the documentation name, by topic.

Every value is computed from a committed result (benchmarks/results) or read off the package, its metadata or its
defaults. A topic is a function that returns a dictionary; a value named `table` holds the rows of a Markdown table.
"""

from __future__ import annotations

import csv
import inspect
import json
import re
import signal
import tomllib
from collections.abc import Iterable
from dataclasses import fields
from functools import cache
from pathlib import Path
from typing import Any

from choose_values import choose
from map_values import figures, sparse_maps
from reliability_values import determinism, failures, fuzz, kills, leaks, threads
from study_values import metrics, reproduction, robustness

import moreaugrad as mg
from benchmarks import quality as quality_benchmark
from benchmarks import seeds as seeds_benchmark
from moreaugrad.methods import DEFAULT_PRESET, PRESETS, QUALITY
from moreaugrad.wording import KNOWN

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "benchmarks" / "results"
MODES = ("frozen", "unrolled", "implicit", "covariance", "strongest")
DATA_SETS = {"cifar10": "CIFAR-10", "imagenet": "ImageNet"}
MODELS = {
    "efficientnet_lite0": "EfficientNet-Lite0",
    "timm/resnet50": "ResNet-50",
    "timm/vit_base_patch16_224": "ViT-B/16",
}
IMAGENET = 1_281_167  # training images
FEW, MANY = 8, 64  # GPUs
FRACTIONS = {"a quarter": 1 / 4, "a third": 1 / 3, "a half": 1 / 2, "two thirds": 2 / 3}

Values = dict[str, Any]


def collect_values() -> dict[str, Values]:
    maps = (project, sparsity, seeds, figures, sparse_maps, budgets, presets, modes, derivative, training, masks)
    proofs = (certificates, votes, voted, search)
    speed = (options, precision, quality, throughput, cpu, captum)
    studies = (metrics, robustness, reproduction, choose)
    trust = (fuzz, failures, kills, threads, determinism, leaks)
    return {topic.__name__: topic() for topic in (*maps, *proofs, *speed, *studies, *trust, bulk, cost, page)}


@cache
def read(name: str) -> Any:
    return json.loads((RESULTS / f"{name}.json").read_text(encoding="utf-8"))


def select(name: str, **wanted: Any) -> list[Any]:
    """The rows of a result's table that have these values."""
    return [row for row in read(name)["table"] if wanted.items() <= row.items()]


def common(name: str, key: str) -> Any:
    """The value that all rows of a result's table share."""
    (value,) = {row[key] for row in read(name)["table"]}
    return value


def rows(cells: Iterable[Iterable[str]]) -> str:
    """Rows of a Markdown table."""
    return "\n".join(re.sub(" +", " ", f"| {' | '.join(row)} |") for row in cells)


def default(method: type, name: str) -> Any:
    """The default of an option."""
    (found,) = (field.default for field in fields(method) if field.name == name)
    return QUALITY.get(found, found) if isinstance(found, str) else found


def project() -> Values:
    facts = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    citation = (ROOT / "CITATION.cff").read_text(encoding="utf-8")
    (year,) = re.findall(r"year: (\d+)", citation)
    return {"python": facts["requires-python"].removeprefix(">="), "license": facts["license"], "year": year}


def sparsity() -> Values:
    return {"percent": common("sparsity_cpu", "asked_percent")}


def seeds() -> Values:
    found = [row for row in read("seeds_cpu")["table"] if row["quality"] in QUALITY]
    cells = [
        (
            f"`{row['quality']}`",
            f"{QUALITY[row['quality']]:,}",
            f"{row['maps'] // 2}",
            f"{row['median_relative_error']:.2f}",
            f"{row['mean_cosine']:.2f}",
            f"{row['converged']} of {row['maps']} maps",
            f"{row['converged_but_far']}",
        )
        for row in found
    ]
    typical = next(row["median_relative_error"] for row in found if row["quality"] == "balanced")
    shared = [row["overlap"] for row in read("seeds_cpu")["rows"] if row["quality"] == "balanced"]
    return {
        "example": typical,
        "shared": sum(shared) / len(shared),
        "limit": KNOWN,
        "far": seeds_benchmark.FAR,
        "table": rows(cells),
    }


def budgets() -> Values:
    own = {"relex": mg.Relex, "fgvis": mg.FGVis, "perturbation": mg.MeaningfulPerturbation}
    return {**QUALITY, "rho": default(mg.MoreauGrad, "rho"), **{key: default(own[key], "budget") for key in own}}


def presets() -> Values:
    """The options of each preset."""
    rows = [
        f"| `{name}` | " + " | ".join(f"`{key}={value!r}`" for key, value in preset.items()) + " |"
        for name, preset in PRESETS.items()
    ]
    return {"table": "\n".join(rows), "default": DEFAULT_PRESET}


def modes() -> Values:
    """How far attacks by each derivative move sparse maps."""
    studies = [read(f"modes_{name}/study")["configuration"] for name in DATA_SETS]
    shared = {
        "eta": {each["study"]["methods"]["sparse_moreau"]["eta"] for each in studies},
        "steps": {each["study"]["attacks"]["topk"]["steps"] for each in studies},
        "attack_budget": {each["study"]["attack_budget"] for each in studies},
        "budget": {each["study"]["budget"] for each in studies},
    }
    counts = {name: each["images"]["count"] for name, each in zip(DATA_SETS, studies, strict=True)}
    floors = {f"floor_{name}": distances(name, "floor")[0][0] for name in DATA_SETS}
    least, most = shares_of_published_attack()
    return {
        **{key: value for key, (value,) in shared.items()},
        **counts,
        **floors,
        "rho": default(mg.SparseMoreauGrad, "rho"),
        "confidence": 100 * inspect.signature(mg.summary).parameters["confidence"].default,
        "least_seen": least,
        "most_seen": most,
        "table": rows(mode_rows()),
    }


@cache
def distances(data_set: str, mode: str) -> dict[float, tuple[float, ...]]:
    """Norm of the change -> median, low and high end of the distance between maps."""
    wanted = {"mode": mode, "over": "valid", "metric": "normalised_distance"}
    with (RESULTS / f"modes_{data_set}/table.csv").open(encoding="utf-8", newline="") as file:
        found = [row for row in csv.DictReader(file) if wanted.items() <= row.items()]
    return {float(row["epsilon"]): tuple(float(row[end]) for end in ("median", "low", "high")) for row in found}


def mode_rows() -> Iterable[list[str]]:
    for name, shown in DATA_SETS.items():
        for norm in distances(name, "strongest"):
            found = [distances(name, mode)[norm] for mode in MODES]
            yield [shown, f"{norm:g}", *(f"{median:.2f} [{low:.2f}, {high:.2f}]" for median, low, high in found)]


def shares_of_published_attack() -> tuple[str, str]:
    """Its share of the strongest attack's distance at the two smallest norms of each data set, as fractions."""
    shares = [
        distances(name, "frozen")[norm][0] / distances(name, "strongest")[norm][0]
        for name in DATA_SETS
        for norm in sorted(distances(name, "strongest"))[:2]
    ]
    nearest = [min(FRACTIONS, key=lambda word: abs(FRACTIONS[word] - end)) for end in (min(shares), max(shares))]
    return nearest[0], nearest[1]


def derivative() -> Values:
    """Memory and direction of the derivative of a solved map."""
    (peak,) = {row["peak_bytes"] for row in select("derivative", mode="implicit")}
    few, many = sorted({row["solver_steps"] for row in read("derivative")["table"]})
    cosines = {
        mode: [value for row in select("derivative", mode=mode) for value in row["cosine_with_reference"]]
        for mode in MODES[:-1]
    }
    none = max(abs(value) for mode in ("frozen", "covariance") for value in cosines[mode])
    ends = {f"{mode}_{end.__name__}": end(cosines[mode]) for mode in ("implicit", "unrolled") for end in (min, max)}
    return {
        "gigabytes": peak / 1e9, "images": read("derivative")["images"], "few": few, "many": many,
        "none": round(none, 1), **ends,
    }  # fmt: skip


def certificates() -> Values:
    """Certified quantities of CIFAR-10 images."""
    lipschitz, scores = read("certificates_lipschitz"), read("certificates_scores")
    shares = lipschitz["shares"]
    assert shares == scores["shares"]
    wrong = re.search(r"at most (\S+) % too small.* at most \S+ to (\S+) too", scores["note"])
    assert wrong is not None
    return {
        "images": common("certificates_lipschitz", "images"),
        "smallest": min(shares),
        "largest": max(shares),
        "alpha": lipschitz["alpha"],
        "gradients": common("certificates_lipschitz", "samples"),
        "scores": common("certificates_scores", "samples"),
        "constant_error": wrong[1],
        "cosine_error": wrong[2],
        "head": " | ".join(f"{share} sigma" for share in shares),
        "table": rows(certificate_rows()),
    }


def certificate_rows() -> Iterable[list[str]]:
    (width,) = re.findall(r"--width (\d+)", read("train_noisy_resnet18")["command"])
    for row in read("certificates_lipschitz")["table"]:
        yield certificate_row(row, f"`{row['network']}`, gradients")
    for row in sorted(read("certificates_scores")["table"], key=lambda row: row["sigma"]):
        ((across, down),) = re.findall(r"(\d+)x(\d+) grid", row["case"])
        yield certificate_row(row, f"ResNet-18 of width {width}, scores, {across} x {down} grid")


def certificate_row(row: Any, label: str) -> list[str]:
    found = [row["at"][f"{share:g}"] for share in read("certificates_lipschitz")["shares"]]
    cells = [f"{100 * at['not_vacuous']:.0f} %, {at['overlap']:.2f}, {at['cosine']:.3f}" for at in found]
    return [f"{row['sigma']:g}", label, f"{100 * row['noisy_accuracy']:.0f} %", *cells]


def votes() -> Values:
    """Certified top pixels of Sparsified SmoothGrad beside those of MoreauGrad."""
    cells = []
    for row in select("certificates_cpu", case="sparsified smoothgrad"):
        (ours,) = select("certificates_cpu", case="lipschitz", sigma=row["sigma"])
        overlaps = [" / ".join(f"{at['overlap']:.2f}" for at in each["at"].values()) for each in (row, ours)]
        cells.append([f"{row['sigma']:g}", *overlaps])
    return {
        "images": common("certificates_cpu", "images"),
        "samples": common("certificates_cpu", "samples"),
        "table": rows(cells),
    }


VOTED = {  # columns of the table of votes: the map, and which of its numbers
    "Sparsified SmoothGrad, pixels": ("Sparsified SmoothGrad", "overlap"),
    "pixels": ("pixels", "overlap"),
    "entries": ("entries", "overlap"),
    "support": ("entries, 5 %", "stay"),
    "cosine": ("entries, 5 %", "cosine"),
    "groups": ("8 x 8 groups, tau 15 %", "overlap"),
    "support of groups": ("8 x 8 groups, tau 15 %, 15 %", "stay"),
}


COARSE, FINE = "8 x 8 groups, tau 15 %, 15 %", "16 x 16 groups, tau 15 %, 15 %"
VOTED_CIFAR = ("lipschitz_25", "lipschitz_50", "lipschitz_100", "resnet18_25", "resnet18_noise25")
VOTED_PHOTOS = ("photos_25", "photos_50")


def voted() -> Values:
    """What votes certify, and attacks on it."""
    tried, (first, *_), (photo, *_) = read("vote_violations_cpu"), stored(VOTED_CIFAR), stored(VOTED_PHOTOS)
    active = {row["map"]: row.get("active") for row in photo["table"]}
    total = {row["map"]: row["total"] for row in photo["table"]}
    return {
        "shares": " / ".join(f"{share:g}" for share in first["shares"]),
        "alpha": first["alpha"],
        "head": " | ".join(VOTED),
        "rule": "|".join(["---"] * (3 + len(VOTED))),
        "cifar": rows(voted_row(each) for each in stored(VOTED_CIFAR)),
        "photos": rows(photo_row(each) for each in stored(VOTED_PHOTOS)),
        "kept": re.findall(r"(\d+) %$", COARSE)[0],
        "top": f"{round(total['entries'] / 10):,}",
        "coarse": active[COARSE],
        "fine": active[FINE],
        "attempts": tried["search"]["attempts"],
        "broken": tried["search"]["violations"] or "none",
        "networks": tried["cifar"]["attempts"],
        "networks_broken": tried["cifar"]["violations"] or "none",
        "coverage": min(row["coverage"] for row in tried["coverage"] if row["alpha"] == first["alpha"]),
        "repetitions": tried["coverage"][0]["repetitions"],
    }


def stored(cases: Iterable[str]) -> list[Any]:
    """The results of those cases that were measured."""
    names = [f"vote_certificates_{each}_cpu" for each in cases]
    return [read(name) for name in names if (RESULTS / f"{name}.json").is_file()]


def voted_row(found: Any) -> list[str]:
    table = {row["map"]: row["at"] for row in found["table"]}
    cells = []
    for name, key in VOTED.values():
        values = [table[name][f"{share:g}"][key] for share in found["shares"]]
        cells.append(" / ".join(f"{value:.{3 if key == 'cosine' else 2}f}" for value in values))
    gradients = " or ".join(f"{each:,}" for each in found["samples"])
    noisy = ", trained under noise" if "noise" in found["case"] else ""
    return [f"`{found['network']}`{noisy}", f"{found['sigma']:g}", f"{found['images']} by {gradients}", *cells]


def photo_row(found: Any) -> list[str]:
    """How many single entries and groups surely stay."""
    table = {row["map"]: row["at"] for row in found["table"]}

    def cell(name: str, key: str, digits: int) -> str:
        return " / ".join(f"{table[name][f'{share:g}'][key]:,.{digits}f}" for share in found["shares"])

    gradients = " or ".join(f"{each:,}" for each in found["samples"])
    entries = cell("entries, 10 %", "staying", 0), cell("entries, 10 %", "stay", 2)
    groups = cell(COARSE, "staying", 1), cell(FINE, "staying", 1)
    return [f"{found['sigma']:g}", f"{found['images']} by {gradients}", *entries, *groups]


def search() -> Values:
    """The search for violated certificates."""
    found = [read(name) for name in ("violations_cpu", "violations_cifar_cpu")]
    attempts, informed, broken = (
        sum(each[name] for each in found) for name in ("attempts", "attempts_that_know_the_map", "violations")
    )
    return {
        "attempts": round(attempts, -4),
        "half": "more" if informed > attempts / 2 else "less",
        "broken": "none" if broken == 0 else broken,
    }


def training() -> Values:
    lipschitz, cifar, tiny = (read(f"train_{name}") for name in ("lipschitz", "cifar10", "tiny_imagenet"))
    shipped = [each for each in lipschitz["networks"] if "not shipped" not in each["weights"]]
    accuracies = [f"{100 * each['epochs'][-1]['test_accuracy']:.0f} %" for each in shipped]
    (accuracy,) = {cifar["test_accuracy_of_the_shipped_file"], cifar["test_accuracy_float32"]}
    (each,) = re.findall(r"(\d+) of the \d+ training images of each class", tiny["note"])
    return {
        "lipschitz": f"{', '.join(accuracies[:-1])} and {accuracies[-1]}",
        "lipschitz_images": lipschitz["test_images"],
        "cifar": 100 * accuracy,
        "cifar_images": cifar["test_images"],
        "cifar_epochs": len(cifar["epochs"]),
        "cifar_minutes": round(cifar["seconds"] / 60),
        "tiny_untrained": 100 * tiny["test_accuracy_without_training"],
        "tiny_images": tiny["test_images"],
        "tiny": 100 * tiny["test_accuracy_as_stored"],
        "tiny_epochs": len(tiny["epochs"]),
        "tiny_each": each,
        "tiny_minutes": round(tiny["seconds"] / 60),
    }


def masks() -> Values:
    """A mask network beside Grad-CAM."""
    cells = []
    for rest, shown in (("blur", "a blur of the image"), ("mean colour", "the mean colour")):
        found = [select("mask_network", rest=rest, method=name)[0] for name in ("mask_network", "gradcam", "random")]
        cells.append([shown, *(", ".join(f"{row[key]:.2f}" for row in found) for key in ("deletion", "insertion"))])
    return {"images": read("mask_network")["images"], "table": rows(cells)}


def options() -> Values:
    """What the options that decide about speed cost."""
    first = [row["first_call_seconds"] for row in read("throughput")["table"] if row["way"].startswith("compiled")]
    path = read("path")
    return {
        "points": len(path["table"]),
        "maps": round(path["cost_in_gradients"]),
        "seconds": path["cost_in_seconds"],
        "compile_least": min(first),
        "compile_most": max(first),
    }


def precision() -> Values:
    eager, compiled, usual = (
        select("throughput", model="efficientnet_lite0", way=way)[0]["gradients_per_second"]
        for way in ("eager float16", "compiled float16", "eager tf32")
    )
    lost = {
        name: 100 * select("precision", precision=name)[0]["share_of_seed_distance"] for name in ("float16", "tf32")
    }
    return {"eager": eager / usual, "compiled": compiled / usual, "photos": read("precision")["photos"], **lost}


def quality() -> Values:
    found, benchmark = read("quality"), quality_benchmark
    cells = []
    for row in found["table"]:
        label = f"{row['gradients']}" + (" (`balanced`)" if row["gradients"] == QUALITY["balanced"] else "")
        shares = [f"{100 * row[key]:.{digits}f} %" for key, digits in (("relative_gap", 1), ("share_nonzero", 0))]
        cells.append([label, *shares, f"{row['seed_to_seed_cosine']:.2f}"])
    return {
        "photos": found["photos"], "rho": benchmark.RHO, "eta": benchmark.ETA, "noise": benchmark.NOISE_LEVEL,
        "fresh": found["fresh_samples"], "published": benchmark.PUBLISHED_STEPS * benchmark.PUBLISHED_SAMPLES,
        "hardware": found["hardware"], "precision": found["precision"], "table": rows(cells),
    }  # fmt: skip


def throughput() -> Values:
    found, cells = read("throughput"), []
    for row in found["table"]:
        way = row["way"].replace("tf32", "TF32 (default)")
        seconds = f"{row['seconds_per_image']:.3f}" if row["budget"] == QUALITY["balanced"] else ""
        rate, share = f"{row['gradients_per_second']:,.0f}", f"{100 * row['share_of_bound']:.0f} %"
        cells.append([MODELS[row["model"]], way, rate, seconds, share])
    counts = [row["images"] for row in read("scaling")["images"]]
    return {
        "images": found["images"],
        "hardware": found["hardware"],
        "few": min(counts),
        "many": max(counts),
        "spread": 100 * (read("scaling")["largest_over_smallest_cost"] - 1),
        "table": rows(cells),
    }


def cpu() -> Values:
    """Waiting time and memory on a CPU."""
    fast, balanced = (select("waiting_cpu", quality=name)[0]["seconds"] for name in ("fast", "balanced"))
    (cores,) = re.findall(r"(\d+) cores", read("waiting_cpu")["hardware"])
    few, many = sorted({row["images"] for row in read("cost_cpu")["table"]})
    return {
        "cores": cores,
        "fast": sum(fast) / len(fast),
        "balanced_least": min(balanced),
        "balanced_most": max(balanced),
        "gigabytes": select("memory_cpu", rows=0)[0]["peak_bytes"] / 2**30,
        "few": few,
        "many": many,
    }


def captum() -> Values:
    """SmoothGrad beside Captum's NoiseTunnel."""
    found, faster = read("baselines_cpu"), read("baselines")["times_faster_than_captums_best"]
    seconds = found["seconds"]
    return {
        "samples": found["samples"],
        "ours": seconds["moreaugrad float32"],
        "best": min(value for name, value in seconds.items() if name.startswith("captum")),
        "chunked": seconds["captum 64 at a time"],
        "tf32": faster["moreaugrad tf32"],
        "float16": faster["moreaugrad float16"],
        "compiled": faster["moreaugrad compiled float16"],
    }


def bulk() -> Values:
    """Rates, sizes and kills of jobs on whole data sets."""
    found, kills, gpu = read("bulk_cpu"), read("bulk_kills_cpu"), read("bulk_gpu")
    stored, query, engines = found["storage"], found["query"], [kills[name] for name in ("local", "ray")]
    small, photos = found["cifar10"], found["photos"]
    cells = [
        (
            f"{line['images']:,} {name}",
            f"`{line['engine']}`",
            f"{line['workers']}",
            f"{line['images_per_second']:.2f}",
            f"{line['times_one_worker']:.2f}",
            f"{line['overhead_ms_per_image']:.1f} ms",
            f"{line['idle_ms_per_image']:.1f} ms",
            f"{line['seconds_to_first_worker']:.0f} s",
        )
        for name, lines in (("CIFAR-10 images, 1-Lipschitz network", small), ("photos, EfficientNet-Lite0", photos))
        for line in lines
    ]
    return {
        "kept_percent": 100 * stored["kept"],
        "kilobytes": 1000 * stored["exact"]["megabytes"] / stored["maps"],
        "half_kilobytes": 1000 * stored["half"]["megabytes"] / stored["maps"],
        "maps": stored["maps"],
        "milliseconds": stored["exact"]["milliseconds_of_one"]["median"],
        "query_seconds": query["seconds_first"],
        "query_rows": query["rows"],
        "query_files": query["files"],
        "signal": int(signal.SIGKILL),
        "kills": sum(each["kills"][what] for each in engines for what in ("driver", "worker")),
        "ray_kills": sum(kills["ray"]["kills"][what] for what in ("driver", "worker")),
        **{name: sum(each[name] for each in engines) for name in ("lost", "doubled", "different", "jobs")},
        "hardware": found["hardware"].partition(",")[0],
        "cores": found["hardware"].partition(",")[2].split()[0],
        "gpu": gpu["hardware"],
        "gpu_images": gpu["images"],
        "gpu_rate": gpu["bulk"]["images_per_second"],
        "gpu_share": 100 * gpu["ratio"],
        "gpu_waiting": gpu["bulk"]["seconds_waiting"],
        "gpu_writing": gpu["bulk"]["seconds_writing"],
        "table": rows(cells),
    }


def page() -> Values:
    """What visitors of the page wait for, and what its server takes."""
    from moreaugrad.app.jobs import MOST_WAITING
    from moreaugrad.app.photos import MOST_BYTES, MOST_PIXELS

    found = read("page_cpu")
    alone, crowd, odd = found["page"], found["visitors"], found["uploads"]
    assert crowd["own_maps"] == crowd["compared"]
    assert odd["alive"]
    return {
        "waiting": MOST_WAITING,
        "upload_megabytes": MOST_BYTES / 1e6,
        "upload_megapixels": MOST_PIXELS / 1e6,
        "hardware": found["hardware"].partition(",")[0],
        "cores": found["hardware"].partition(",")[2].split()[0],
        "first_start": alone["seconds_at_the_first_start"],
        "first_map": alone["seconds_from_command_to_first_map"],
        "ready": alone["seconds_until_ready"],
        "explanation": alone["explanation"]["seconds"],
        "silence": alone["explanation"]["longest_silence"],
        "slider": alone["slider_ms"]["median"],
        "stop": alone["seconds_to_stop"],
        "closed": alone["seconds_until_idle_after_a_closed_tab"],
        "visitors": crowd["visitors"],
        "minutes": crowd["seconds"] / 60,
        "maps": crowd["maps"],
        "problems": sum(crowd["problems"].values()),
        "growth": 100 * crowd["megabytes"]["growth"],
        "uploads": odd["uploads"],
        "slowest": odd["slowest_seconds"],
        "gigabytes": odd["most_megabytes"] / 1000,
    }


def cost() -> Values:
    """What the training images of ImageNet cost, by the measured rates of one GPU."""
    stored, found = read("bulk_cpu")["storage"], read("throughput")
    size, half = (IMAGENET * stored[name]["megabytes"] / stored["maps"] / 1000 for name in ("exact", "half"))
    cells = []
    for line in found["table"]:
        if line["way"] != "compiled float16":
            continue
        for quality in ("fast", "balanced"):
            hours = IMAGENET * QUALITY[quality] / line["gradients_per_second"] / 3600
            times = [f"{hours:,.1f}", *(f"{hours / gpus:.1f} h" for gpus in (FEW, MANY))]
            cells.append((MODELS[line["model"]], f"`{quality}`", *times, f"{size:.0f} GB", f"{half:.0f} GB"))
    return {"images": IMAGENET, "hardware": found["hardware"], "few": FEW, "many": MANY, "table": rows(cells)}
