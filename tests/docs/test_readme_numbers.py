"""Every number of the README follows from a committed result or from the package, and none stands there untested.

A claim is a piece of the README with a format field for each of its numbers, and a function that finds the numbers.
What a piece holds besides its fields covers nothing.
"""

import inspect
import re
import tomllib
from string import Formatter

import paper_path
import pytest
import readme_results as results
from readme_results import WORDS, only, result

import moreaugrad as mg
from moreaugrad.methods import METHODS, QUALITY
from moreaugrad.methods.integrated import RULES
from moreaugrad.methods.normgrad.normgrad import VARIANTS
from moreaugrad.model.prepared import MANY
from moreaugrad.models import embedded

README = (paper_path.ROOT / "README.md").read_text(encoding="utf-8")
PROJECT = tomllib.loads((paper_path.ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
CITATION = (paper_path.ROOT / "CITATION.cff").read_text(encoding="utf-8")

# Names, units and definitions: their digits were not measured.
DEFINED = (
    r"\bCIFAR-10\b|\bResNet-18\b|\bResNet-50\b|\bEfficientNet-Lite0\b|\bH200\b",
    r"\bb?float16\b|\bfloat32\b|\bTF32\b|\b8-bit\b|\bl2\b",
    r"pixels 0\.\.1|1/\(1 - theta\)|with stride 2|on\s+64 x 64 pictures",
    r"exit code is 0 when all images were explained, 1 when some failed, 2 when nothing was done",
)

# Said, but in no committed file, or otherwise there: to be measured or taken back. Nothing is to be added here.
NOT_YET: tuple[str, ...] = ()  # pieces of the text whose numbers no committed file has

CELLS = " | ".join(["{:.0f} %, {:.2f}, {:.3f}"] * 4)
MOVED = " | ".join(["{:.2f} [{:.2f}, {:.2f}]"] * 5)
FOUR = " / ".join(["{:.2f}"] * 4)

CLAIMS = {  # a piece of the text -> its numbers
    "exactly sparse ({:.0f} % of the entries": lambda: (only("sparsity_cpu", "asked_percent"),),
    "Python {} or newer": lambda: (PROJECT["requires-python"].removeprefix(">="),),
    "from a baseline, {} rules": lambda: (WORDS[len(RULES)],),
    "| {} variants, one layer or several |": lambda: (WORDS[len(VARIANTS)],),
    "A cat and {} maps of it": lambda: (WORDS[sum("trained" not in each.flags for each in METHODS.values())],),
    "({} image and {}, with memory": lambda: (
        WORDS[count] for count in sorted({row["images"] for row in result("cost_cpu")["table"]})
    ),
    "everything included: {:,} (`fast`), {:,} (`balanced`, the default of the MoreauGrad family), {:,} (`best`)": (
        lambda: (QUALITY["fast"], mg.MoreauGrad.budget, QUALITY["best"])
    ),
    "RelEx {:,}, FGVis {:,}, meaningful perturbation {:,}": (
        lambda: (mg.Relex.budget, mg.FGVis.budget, mg.MeaningfulPerturbation.budget)
    ),
    "With rho = {:g} some photos": lambda: (mg.MoreauGrad.rho,),
    "{} CIFAR-10 test images on the shipped ResNet-18 and {} ImageNet photos on EfficientNet-Lite0, rho {:g}, "
    "eta {:g}, {} steps with {:,} gradients a map, judged with {:,} fresh ones": results.attack_setting,
    "with its {:.0f} % interval": (lambda: (100 * inspect.signature(mg.summary).parameters["confidence"].default,)),
    "moves them by {:.2f} (CIFAR-10) and {:.2f} (ImageNet)": (
        lambda: [results.moved(name, "floor")[0][0] for name in ("cifar10", "imagenet")]
    ),
    "attack sees {} to {} of what is there": results.seen_by_the_published_attack,
    "takes the same {:.1f} GB for {} photos after {} solver steps as after {}, and points where a far more exact one "
    "does (cosine {:.2f} to {:.2f}; unrolled {:.2f} to {:.2f}; frozen and covariance about {:.0f}": results.derivative,
    "How much that is on {} CIFAR-10 test images, for changes of {} to {} of the noise (sigma in pixels 0..1, "
    "alpha {:g};": lambda: (
        only("certificates_lipschitz", "images"),
        *(end(result("certificates_lipschitz")["shares"]) for end in (min, max)),
        result("certificates_lipschitz")["alpha"],
    ),
    "| {} sigma | {} sigma | {} sigma | {} sigma |": lambda: result("certificates_scores")["shares"],
    "({:,} gradients an image)": lambda: (only("certificates_lipschitz", "samples"),),
    "({:,} scores; made with a Lipschitz constant of grids that was up to {} % too small, so its cosines are up to {} "
    "too high at {} sigma)": lambda: (
        only("certificates_scores", "samples"),
        *re.search(
            r"at most (\S+) % too small.* at most \S+ to (\S+) too", result("certificates_scores")["note"]
        ).groups(),
        max(result("certificates_scores")["shares"]),
    ),
    "On the first {} of these images with {:,} samples each": (
        lambda: (only("certificates_cpu", "images"), only("certificates_cpu", "samples"))
    ),
    "about {:,} attempts (quadratic scores, small smooth networks and this network, {} than half of them led by the "
    "map's derivative), {} broke a certificate": results.search,
    "and its {} siblings are the third command's networks: {:.0f} %, {:.0f} % and {:.0f} % of {:,} test images": (
        results.lipschitz_accuracies
    ),
    "network after {} epochs, {} minutes on an H200 (its first layer rescaled to another normalisation of the input, "
    "the same function): {:.1f} % of {:,} test images, in half precision as in float32": results.cifar_training,
    "Grad-CAM on {:,} held-out images": lambda: (result("mask_network")["images"],),
    "Tiny-ImageNet's {} classes, on 64 x 64 pictures enlarged to {}: {:.1f} % of {:,} validation images": lambda: (
        len(embedded.TINY_IMAGENET.split()),
        embedded.SIZE,
        100 * result("train_tiny_imagenet")["test_accuracy_without_training"],
        result("train_tiny_imagenet")["test_images"],
    ),
    "{:.1f} % after {} epochs of {} images per class, {} minutes on an H200": results.tiny_training,
    "error of its map is {:.0f} % of the map": (
        lambda: (100 * float(re.search(r"^\| `relative_error=(\S+)`", README, re.MULTILINE)[1]),)
    ),
    "{} points cost the gradients of {} maps": (
        lambda: (WORDS[len(result("path")["table"])], WORDS[round(result("path")["cost_in_gradients"])])
    ),
    "maps, in seconds {:.1f}, and": lambda: (result("path")["cost_in_seconds"],),
    "({:.0f} to {:.0f} s once": results.seconds_of_compiling,
    "only for {:,} images and more": lambda: (MANY,),
    "float16 is {:.1f} times as fast ({:.1f} times compiled), but on photos that have several solutions it may find "
    "another one: over {} photos it moved maps by {:.0f} % of what another seed moves them, TF32 by {:.0f} %": (
        results.speed_of_float16
    ),
    "Sparse maps of {} ImageNet photos, EfficientNet-Lite0, rho {}, eta {}, noise level {}. The relative gap compares "
    "the objective on {:,} fresh noise samples with what the published algorithm reaches with {:,} gradients "
    "([quality.json](benchmarks/results/quality.json), {}, {})": results.quality_setting,
    "([throughput.json](benchmarks/results/throughput.json), {}):": lambda: (result("throughput")["hardware"],),
    "inside a solve of {} images at {} px": lambda: (result("throughput")["images"], embedded.VIEW.size[0]),
    "From {:,} to {:,} images the cost of one stays within {:.0f} %": results.scaling,
    "On {} CPU cores one photo takes {:.1f} s (`fast`) or {:.0f} to {:.0f} s (`balanced`)": results.waiting,
    "the process {:.1f} GiB at its peak": lambda: (results.rows("memory_cpu", rows=0)[0]["peak_bytes"] / 2**30,),
    "SmoothGrad with {} samples takes {:.1f} s there; Captum's NoiseTunnel takes {:.1f} s at its best "
    "`nt_samples_batch_size` and {:.0f} s with {} samples at a time": results.captum_cpu,
    "SmoothGrad is {:.1f} times as fast as Captum at its best in TF32, {:.1f} times in float16 and {:.1f} times "
    "compiled": results.captum_gpu,
    "{}. If you use it": lambda: (PROJECT["license"],),
    "via Moreau Envelope*, {}": lambda: re.search(r"year: (\d+)", CITATION).groups(),
}
TABLES = {  # a row -> the numbers of each
    "| {} | {:g} | " + MOVED + " |": results.attack_rows,
    "| {:g} | {} | {:.0f} % | " + CELLS + " |": results.certificate_rows,
    "{:g}: " + FOUR + " against " + FOUR: results.vote_rows,
    "| {} | {:.2f}, {:.2f}, {:.2f} | {:.2f}, {:.2f}, {:.2f} |": results.mask_rows,
    "| {} | {:.1f} % | {:.0f} % | {:.2f} |": results.quality_rows,
    "| {} | {} | {:,.0f} | {}| {:.0f} % |": results.throughput_rows,
}

NUMBER = r"\S*\d\S*"
TIME = rf"\b(half\s+)?(an?|{'|'.join(WORDS)})\s+(second|minute|hour)s?\b"


def blanked(text, *patterns):
    """The text with spaces for what the patterns find, so that places stay what they are."""
    for pattern in patterns:
        text = re.sub(pattern, lambda match: re.sub(r"\S", " ", match[0]), text, flags=re.MULTILINE | re.DOTALL)
    return text


def loose(piece):
    """The pattern of a piece that lines may break anywhere."""
    return re.sub(r"(\\ |\s)+", r"\\s+", re.escape(piece))


def prose(text):
    """Without blocks of code, and without the section on the paper, whose numbers are those of its own page."""
    return blanked(text, r"^```.*?^```$", r"^## The paper$.*?(?=^## )")


def places(piece, values, text):
    """Where the fields of a piece stand in a text, for each place in which it has these values."""
    values, pattern = iter(values), ""
    for literal, name, form, _ in Formatter().parse(piece):
        pattern += loose(literal)
        if name is not None:
            pattern += rf"(?<![\d.,])({loose(format(next(values), form))})(?!\d|[.,]\d)"
    assert not list(values), f"more values than fields: {piece}"
    return [[match.span(group + 1) for group in range(match.re.groups)] for match in re.finditer(pattern, text)]


def claims():
    yield from ((piece, find()) for piece, find in CLAIMS.items())
    yield from ((piece, row) for piece, find in TABLES.items() for row in find())


def untested(text):
    """Line and number of all that no claim covers."""
    rest = prose(text)
    for piece, values in claims():
        for start, end in (span for place in places(piece, values, prose(text)) for span in place):
            rest = rest[:start] + " " * (end - start) + rest[end:]
    rest = blanked(rest, r"`[^`]+`", r"!?\[[^\]]*\]\([^)]*\)", *DEFINED, *map(loose, NOT_YET))
    left = re.finditer(f"{NUMBER}|{TIME}", rest)
    return [(text.count("\n", 0, match.start()) + 1, match[0]) for match in left]


def agree(piece, values):
    told = piece.format(*values)
    assert len(places(piece, values, prose(README))) == 1, f"the results say (once, in README.md): {told}"


@pytest.mark.parametrize("piece", CLAIMS)
def test_the_text_says_what_the_results_say(piece):
    agree(piece, tuple(CLAIMS[piece]()))


@pytest.mark.parametrize("piece", TABLES)
def test_the_tables_say_what_the_results_say(piece):
    for values in TABLES[piece]():
        agree(piece, values)


def test_no_number_stands_untested():
    assert untested(README) == []


def test_what_is_excused_still_stands_there():
    for pattern in (each for line in DEFINED for each in line.split("|")):
        assert re.search(pattern, prose(README)), f"take it out of DEFINED: {pattern}"
    for piece in NOT_YET:
        assert len(places(piece, (), prose(README))) == 1, f"take it out of NOT_YET: {piece}"


@pytest.mark.parametrize(
    ("line", "number"),
    [
        ("It is 7 times as fast.", "7"),
        ("| ResNet-50 | eager float16 | 6,456 | | 14 % |", "6,456"),  # one more than there is
        ("CIFAR-100 is another set.", "CIFAR-100"),
        ("Training takes five minutes.", "five minutes"),
    ],
)
def test_a_number_that_is_added_is_found(line, number):
    last = README.count("\n") + 1
    assert (last, number) in untested(f"{README}{line}\n")


@pytest.mark.parametrize("line", ["`rho=7`", "```\n7\n```", "[7](seven7.json)", "A float16 map of CIFAR-10."])
def test_code_links_and_names_may_hold_digits(line):
    assert untested(f"{README}{line}\n") == []
