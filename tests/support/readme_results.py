"""What the numbers of the README are computed from: committed results of the benchmarks, and the package itself."""

import csv
import json
import re
from functools import cache

import paper_path

import moreaugrad as mg
from benchmarks import quality
from moreaugrad.methods import QUALITY
from moreaugrad.models import embedded

RESULTS = paper_path.ROOT / "benchmarks/results"
WORDS = ("no", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve")
WORDS += ("thirteen", "fourteen", "fifteen", "sixteen")
FRACTIONS = {"a quarter": 1 / 4, "a third": 1 / 3, "a half": 1 / 2, "two thirds": 2 / 3}
MODES = ("frozen", "unrolled", "implicit", "covariance", "strongest")
MODELS = {
    "efficientnet_lite0": "EfficientNet-Lite0",
    "timm/resnet50": "ResNet-50",
    "timm/vit_base_patch16_224": "ViT-B/16",
}


@cache
def result(name):
    return json.loads((RESULTS / name).with_suffix(".json").read_text(encoding="utf-8"))


def rows(name, **wanted):
    return [row for row in result(name)["table"] if wanted.items() <= row.items()]


@cache
def moved(dataset, mode):
    """Norm of the change -> median, low and high end of the distance between maps."""
    with (RESULTS / f"modes_{dataset}/table.csv").open(encoding="utf-8", newline="") as file:
        told = [row for row in csv.DictReader(file) if (row["mode"], row["over"]) == (mode, "valid")]
    told = [row for row in told if row["metric"] == "normalised_distance"]
    return {float(row["epsilon"]): tuple(float(row[end]) for end in ("median", "low", "high")) for row in told}


def attack_setting():
    studies = [result(f"modes_{name}/study")["configuration"] for name in ("cifar10", "imagenet")]
    terms = ("budget", "attack_budget")
    (eta,) = {each["study"]["methods"]["sparse_moreau"]["eta"] for each in studies}
    (steps,) = {each["study"]["attacks"]["topk"]["steps"] for each in studies}
    ((judged, spent),) = {tuple(each["study"][name] for name in terms) for each in studies}
    counts = [each["images"]["count"] for each in studies]
    return (*counts, mg.SparseMoreauGrad.rho, eta, WORDS[steps], spent, judged)


def attack_rows():
    for name, shown in (("cifar10", "CIFAR-10"), ("imagenet", "ImageNet")):
        for norm in moved(name, "strongest"):
            yield (shown, norm, *(value for mode in MODES for value in moved(name, mode)[norm]))


def seen_by_the_published_attack():
    """Its share of the strongest attack at the two smallest norms of each data set, as fractions in words."""
    shares = [
        moved(name, "frozen")[norm][0] / moved(name, "strongest")[norm][0]
        for name in ("cifar10", "imagenet")
        for norm in sorted(moved(name, "strongest"))[:2]
    ]
    return tuple(min(FRACTIONS, key=lambda word: abs(FRACTIONS[word] - end)) for end in (min(shares), max(shares)))


def derivative():
    (peak,) = {row["peak_bytes"] for row in rows("derivative", mode="implicit")}
    steps = sorted({row["solver_steps"] for row in result("derivative")["table"]})
    cosines = {
        mode: [value for row in rows("derivative", mode=mode) for value in row["cosine_with_reference"]]
        for mode in MODES[:-1]
    }
    ends = [end(cosines[mode]) for mode in ("implicit", "unrolled") for end in (min, max)]
    nothing = max(abs(value) for mode in ("frozen", "covariance") for value in cosines[mode])
    return (peak / 1e9, WORDS[result("derivative")["images"]], *steps, *ends, round(nothing, 1))


def certificate_row(row, label):
    found = [row["at"][f"{share:g}"] for share in result("certificates_lipschitz")["shares"]]
    cells = [value for at in found for value in (100 * at["not_vacuous"], at["overlap"], at["cosine"])]
    return (row["sigma"], label, 100 * row["noisy_accuracy"], *cells)


def certificate_rows():
    width = re.search(r"--width (\d+)", result("train_noisy_resnet18")["command"])[1]
    for row in result("certificates_lipschitz")["table"]:
        yield certificate_row(row, f"`{row['network']}`, gradients")
    for row in result("certificates_scores")["table"]:
        across, down = re.search(r"(\d+)x(\d+) grid", row["case"]).groups()
        yield certificate_row(row, f"ResNet-18 of width {width}, scores, {across} x {down} grid")


def vote_rows():
    for votes in rows("certificates_cpu", case="sparsified smoothgrad"):
        (ours,) = rows("certificates_cpu", case="lipschitz", sigma=votes["sigma"])
        yield (votes["sigma"], *(at["overlap"] for row in (votes, ours) for at in row["at"].values()))


def only(name, key):
    """The value that all rows of a table have."""
    (value,) = {row[key] for row in result(name)["table"]}
    return value


def search():
    found = [result(name) for name in ("violations_cpu", "violations_cifar_cpu")]
    attempts, led, broken = (
        sum(each[name] for each in found) for name in ("attempts", "attempts_that_know_the_map", "violations")
    )
    return round(attempts, -4), "more" if led > attempts / 2 else "less", "none" if broken == 0 else broken


def lipschitz_accuracies():
    shipped = [each for each in result("train_lipschitz")["networks"] if "not shipped" not in each["weights"]]
    accuracies = [100 * each["epochs"][-1]["test_accuracy"] for each in shipped]
    return (WORDS[len(shipped) - 1], *accuracies, result("train_lipschitz")["test_images"])


def mask_rows():
    for rest, shown in (("blur", "a blur of the image"), ("mean colour", "the mean colour")):
        told = [rows("mask_network", rest=rest, method=name)[0] for name in ("mask_network", "gradcam", "random")]
        yield (shown, *(row[metric] for metric in ("deletion", "insertion") for row in told))


def cifar_training():
    found = result("train_cifar10")
    (accuracy,) = {found["test_accuracy_of_the_shipped_file"], found["test_accuracy_float32"]}
    return len(found["epochs"]), WORDS[round(found["seconds"] / 60)], 100 * accuracy, found["test_images"]


def tiny_training():
    found, classes = result("train_tiny_imagenet"), len(embedded.TINY_IMAGENET.split())
    accuracy, each = 100 * found["test_accuracy_as_stored"], found["train_images"] // classes
    return accuracy, len(found["epochs"]), each, WORDS[round(found["seconds"] / 60)]


def quality_setting():
    """Of the objective and of the published algorithm, as the benchmark states them."""
    told = " ".join(quality.__doc__.split())
    rho, eta, noise = re.search(r"rho (\S+), eta (\S+), relative noise (\S+),", told).groups()
    steps, samples = re.search(r"(\d+) steps of (\d+) samples", told).groups()
    found = result("quality")
    assert float(eta) == quality.ETA
    where = (found["hardware"], found["precision"])
    return found["photos"], rho, eta, noise, found["fresh_samples"], int(steps) * int(samples), *where


def quality_rows():
    for row in result("quality")["table"]:
        label = f"{row['gradients']}" + (" (`balanced`)" if row["gradients"] == QUALITY["balanced"] else "")
        yield label, 100 * row["relative_gap"], 100 * row["share_nonzero"], row["seed_to_seed_cosine"]


def throughput_rows():
    for row in result("throughput")["table"]:
        way = row["way"].replace("tf32", "TF32 (default)")
        seconds = f"{row['seconds_per_image']:.3f} " if row["budget"] == QUALITY["balanced"] else ""
        yield MODELS[row["model"]], way, row["gradients_per_second"], seconds, 100 * row["share_of_bound"]


def seconds_of_compiling():
    """The shortest and the longest first call of a network that is compiled."""
    told = [row["first_call_seconds"] for row in result("throughput")["table"] if row["way"].startswith("compiled")]
    return min(told), max(told)


def speed_of_float16():
    eager, compiled, default = (
        rows("throughput", model="efficientnet_lite0", way=way)[0]["gradients_per_second"]
        for way in ("eager float16", "compiled float16", "eager tf32")
    )
    lost = [100 * rows("precision", precision=name)[0]["share_of_seed_distance"] for name in ("float16", "tf32")]
    return eager / default, compiled / default, result("precision")["photos"], *lost


def waiting():
    fast, balanced = (rows("waiting_cpu", quality=name)[0]["seconds"] for name in ("fast", "balanced"))
    cores = int(re.search(r"(\d+) cores", result("waiting_cpu")["hardware"])[1])
    return WORDS[cores], sum(fast) / len(fast), min(balanced), max(balanced)


def captum_cpu():
    found = result("baselines_cpu")
    seconds = found["seconds"]
    best = min(value for name, value in seconds.items() if name.startswith("captum"))
    return found["samples"], seconds["moreaugrad float32"], best, seconds["captum 64 at a time"], 64


def captum_gpu():
    faster = result("baselines")["times_faster_than_captums_best"]
    return tuple(faster[f"moreaugrad {way}"] for way in ("tf32", "float16", "compiled float16"))


def scaling():
    counts = [row["images"] for row in result("scaling")["images"]]
    return min(counts), max(counts), 100 * (result("scaling")["largest_over_smallest_cost"] - 1)
