"""`moreaugrad certify`: files, words, exit codes; the command is `certify` and nothing else, and promises are kept."""

import json
import math
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from flat_certify import certify
from PIL import Image

import moreaugrad as mg
from moreaugrad.certificates.assumptions import KnownScore
from moreaugrad.certificates.certificate import Certificate, TopKGuarantee
from moreaugrad.certificates.theory import err_stein, gradient_cap
from moreaugrad.cli import certify_report, report
from moreaugrad.cli.certify import CertifyOptions, Trial, collect_facts, forecast_vacuous, open_case
from moreaugrad.cli.certify_report import find_places, find_radius, make_curve
from moreaugrad.models import load_model
from moreaugrad.plotting import certificate as certified

SOURCE = '''
import numpy as np
import torch
from torch import nn


class Net(nn.Sequential):
    """Three classes of pictures of 12 x 12, x = (picture - 0.5) / 0.25; layers with known constants."""

    labels = ("cat", "dog", "bird")

    def __init__(self):
        generator = torch.Generator().manual_seed(3)
        super().__init__(nn.Flatten(), nn.Linear(432, 16), nn.Softplus(beta=0.1), nn.Linear(16, 3))
        for parameter in self.parameters():
            parameter.data = torch.randn(parameter.shape, generator=generator) / parameter.shape[-1] ** 0.5
        place = torch.arange(432) % 144 // 12
        self[1].weight.data *= torch.where(place < 6, 1.0, 0.1)  # a map with clear ranks

    def preprocess(self, picture):
        pixels = np.asarray(picture.resize((12, 12)), dtype=np.float32) / 255
        return torch.tensor((pixels - 0.5) / 0.25).permute(2, 0, 1)


class Hidden(nn.Module):
    """The same, in a form of which nothing is known."""

    def __init__(self):
        super().__init__()
        self.inner = Net()
        self.preprocess = self.inner.preprocess

    def forward(self, x):
        return self.inner(x)


class Convex(Net):
    """Logits that are convex in the input."""

    def __init__(self):
        super().__init__()
        self[3].weight.data.abs_()


class Corner(nn.Module):
    """Two classes, distinguished by the upper left quarter, and hardly by the rest."""

    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.full((3, 12, 12), 0.01))
        self.weight.data[:, :6, :6] = 0.5
        self.preprocess = Net().preprocess

    def forward(self, x):
        score = (self.weight * x).flatten(1).sum(1)
        return torch.stack([score, torch.zeros_like(score)], 1)
'''
NET, HIDDEN = ["--model", "own_certified:Net"], ["--model", "own_certified:Hidden"]
QUICK = ["--samples", "200", "--attack-steps", "0"]
RANGE = {"bounds": (-90.0, 80.0), "recipe": "range"}


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A folder with the user's networks and a picture."""
    (tmp_path / "own_certified.py").write_text(SOURCE)
    pixels = np.random.default_rng(0).integers(0, 256, (12, 10, 3), dtype=np.uint8)
    Image.fromarray(pixels).save(tmp_path / "a.png")
    monkeypatch.chdir(tmp_path)
    yield tmp_path
    sys.modules.pop("own_certified", None)


@pytest.fixture
def unpainted(monkeypatch):
    """Pictures take most of the time, and are drawn elsewhere."""
    monkeypatch.setattr(report.pictures, "write", lambda figure, path: None)
    monkeypatch.setattr(certify_report, "draw", lambda known, **shown: None)


def read_json():
    def refuse(word):
        raise AssertionError(f"{word} is no JSON")

    return json.loads(Path("certificates/a_certificate.json").read_text(), parse_constant=refuse)


def of_python(model="Net"):
    classifier = load_model(f"own_certified:{model}")
    return classifier, classifier.preprocess(Image.open("a.png").convert("RGB"))[None]


def test_a_picture_and_all_that_is_known(folder, run):
    code, out, err = run("certify", "a.png", *NET, "--epsilon", "0.3", "--no-noise", "--attack-steps", "2")
    assert (code, err) == (0, "")
    found = read_json()
    one = found["certificate"]
    assert found["words"] in out
    assert (one["recipe"], found["score"], one["epsilon"], one["alpha"]) == ("smooth", "logit", 0.3, 0)
    assert found["vacuous"] is False
    assert "VACUOUS" not in out
    assert found["label"] in out
    assert 0 < len(found["members"]) <= one["overlap"] <= one["k"] == len(found["top"]) == 14
    assert set(found["members"]) <= set(found["top"])
    assert all(unit < 72 for unit in found["top"])  # the upper half of the picture
    line = dict(zip(found["curve"]["epsilon"], found["curve"]["overlap"], strict=True))
    assert list(line.values()) == sorted(line.values(), reverse=True)
    assert line[0.3] == one["overlap"] < line[0.0]
    assert max(line) == pytest.approx(0.9)
    assert found["options"]["method"]["rho"] == one["rho"] == pytest.approx(0.5 / one["lam"])
    assert found["options"]["certify"]["rho"] == "certified"
    assert found["versions"]["moreaugrad"]
    with Image.open("certificates/a_certificate.png") as picture:
        assert picture.size[0] > 2 * picture.size[1]
    assert not list(Path("certificates").glob(".*"))
    assert [each["kind"] in ("topk", "random") for each in found["trials"]] == [True] * 3
    for each, epsilon in zip(found["trials"], (0.3, 0.6, 0.9), strict=True):
        assert each["epsilon"] == pytest.approx(epsilon)
        assert 0 < each["length"] <= epsilon * (1 + 1e-6)
        assert each["overlap"] >= each["promised"]  # nothing is random here, so no exception is allowed
    assert found["trials"][0]["promised"] == one["overlap"]


@pytest.mark.parametrize(
    ("typed", "method", "terms"),
    [
        ([], ("moreau", {}), {"recipe": "lipschitz"}),
        (["--method", "sparse_moreau", "--eta", "0.01", "--k", "5"], ("sparse_moreau", {"eta": 0.01}), {"k": 5}),
        (["--sigma", "0.5", "--theta", "0.2", "--alpha", "0.05"], ("moreau", {}), {"theta": 0.2, "alpha": 0.05}),
        (["--score", "prob", "--recipe", "range", "--rho", "0.001"], ("moreau", {}), {"recipe": "range", "rho": 0.001}),
        (["--recipe", "local", "--grid", "4", "--units", "entries"], ("moreau", {}), {"grid": 4, "units": "entries"}),
        (["--clip=-3,4", "--grid", "2"], ("moreau", {}), {"grid": 2}),
        (["--votes", "--grid", "3"], ("moreau", {}), {"grid": 3}),
        (["--centred", "--grid", "2", "--score", "prob"], ("moreau", {}), {"grid": 2, "centred": True}),
        (["--score", "logit", "--lipschitz", "9"], ("moreau", {}), {"lipschitz": 9.0}),
        (["--score", "logit", "--bounds=-90,80", "--recipe", "range"], ("moreau", {}), RANGE),
        (["--no-noise", "--curvature", "exact"], ("moreau", {}), {"curvature": "exact"}),
        (["--no-noise", "--score", "logit", "--curvature", "9,7"], ("moreau", {}), {"curvature": (9.0, 7.0)}),
        (
            ["--method", "group_sparse_moreau", "--groups", "3", "--sparsity", "0.5"],
            ("group_sparse_moreau", {"groups": 3, "sparsity": 0.5}),
            {},
        ),
        (["--set", "budget=80", "--target", "bird", "--no-noise"], ("moreau", {"budget": 80}), {}),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_the_command_is_certify(folder, run, unpainted, typed, method, terms):
    """Every option reaches the function that it names: the same seed gives the same numbers."""
    code, _, err = run("certify", "a.png", *NET, *QUICK, "--epsilon", "0.02", "--seed", "7", *typed)
    assert code == 0, err
    classifier, x = of_python()
    sigma = None if "--no-noise" in typed else 0.5 if "--sigma" in typed else 0.25
    score = "prob" if {"prob", "local"} & set(typed) else "logit"
    network = mg.Clipped(classifier, -3, 4) if "--clip=-3,4" in typed else classifier
    network = mg.Votes(classifier) if "--votes" in typed else network
    smoothing = None if sigma is None else mg.Smoothing(sigma=sigma)
    made = mg.METHODS[method[0]](network, score=score, smoothing=smoothing, **method[1])
    target = 2 if "bird" in typed else None
    options = {"samples": 200, "rho": "certified", "seed": 7} | terms
    (expected,) = certify(made, x, target, 0.02, **options)
    found = read_json()
    record = report.strict(expected.record())
    for name, value in found["certificate"].items():
        assert value == (pytest.approx(record[name], rel=1e-6) if isinstance(value, float) else record[name]), name
    assert found["vacuous"] == expected.vacuous
    assert found["target"] == expected.target
    assert found["map_shape"] == list(expected.map.shape)
    assert found["members"] == expected.topk.members.nonzero().flatten().tolist()


def test_what_is_known_of_the_network_decides_the_score(folder, run, unpainted):
    kinds = {}
    for name, typed in {
        "layers": NET,
        "unknown": HIDDEN,
        "range": [*NET, "--recipe", "range"],
        "convex": ["--model", "own_certified:Convex", "--no-noise", "--convex", "--score", "logit"],
    }.items():
        assert run("certify", "a.png", *typed, *QUICK, "--epsilon", "0.01")[0] == 0
        found = read_json()
        kinds[name] = found["score"], found["certificate"]["recipe"], found["options"]["certify"]["rho"]
    assert kinds == {
        "layers": ("logit", "lipschitz", "certified"),
        "unknown": ("prob", "local", "certified"),
        "range": ("prob", "range", "certified"),
        "convex": ("logit", "convex", None),  # for which every rho is certified
    }


def test_pixels_change_the_units_and_nothing_else(folder, run, unpainted):
    """x is pixels over 0.25: lengths are four times shorter, gradients four times longer, and as many units stay."""
    found = {}
    for typed in (["--epsilon", "0.04"], ["--epsilon", "0.01", "--pixels"]):
        assert run("certify", "a.png", *NET, *QUICK, "--no-noise", *typed)[0] == 0
        found["--pixels" in typed] = read_json()
    inner, outer = (found[each]["certificate"] for each in (False, True))
    assert outer["norm"] == pytest.approx(4 * inner["norm"], rel=1e-4)
    assert outer["lam"] == pytest.approx(16 * inner["lam"], rel=1e-4)
    assert outer["rho"] == pytest.approx(inner["rho"] / 16, rel=1e-4)
    assert outer["lipschitz"] == pytest.approx(16 * inner["lipschitz"], rel=1e-4)
    assert inner["overlap"] > 0
    for name in ("half", "one"):  # but for the error of the solver, which has units of its own
        assert found[True]["radii"][name] == pytest.approx(found[False]["radii"][name] / 4, rel=0.03)


def test_ranks(folder, run):
    typed = ["--method", "sparsified_smoothgrad", "--set", "tau=0.3", "--samples", "3000"]
    code, out, _ = run("certify", "a.png", *HIDDEN, *typed, "--epsilon", "0.01", "--attack-steps", "1")
    assert code == 0
    found = read_json()
    assert (found["certificate"]["recipe"], found["members"], found["certificate"]["rho"]) == ("ranks", None, None)
    assert 0 < found["certificate"]["overlap"] <= 14
    assert found["options"]["method"]["tau"] == 0.3
    assert found["trials"][0]["kind"] == "new noise"
    assert len(found["trials"]) == 4
    assert "on new noise" in out


@pytest.mark.parametrize("method", ["sparse_moreau", "group_sparse_moreau"])
def test_votes_of_a_network_of_which_nothing_is_known(folder, run, unpainted, method):
    typed = f"--method {method} --statistic votes --samples 1000 --attack-steps 1 --epsilon 0.05 --set tau=0.3".split()
    typed += ["--groups", "4", "--k", "4"] if method.startswith("group") else []
    code, _, _ = run("certify", "a.png", *HIDDEN, *typed, "--eta", "0.5")
    found = read_json()
    one = found["certificate"]
    assert code == 0
    assert (one["recipe"], one["rho"], found["vacuous"]) == ("votes", None, False)
    assert one["active"] >= one["survivors"] > 0
    assert one["units"] == ("groups" if method.startswith("group") else "pixels")
    assert f"{one['survivors']} of {one['active']} non-zeros stay" in found["words"]
    assert all(each["overlap"] >= each["promised"] for each in found["trials"])
    assert [each["epsilon"] for each in found["trials"]] == pytest.approx([0, 0.05, 0.1, 0.15])


@pytest.mark.parametrize("votes", [[], ["--votes"], ["--centred"]], ids=["prob", "votes", "centred"])
def test_a_grid_is_tried_with_what_was_frozen(folder, run, unpainted, votes):
    Image.new("RGB", (12, 12), (127, 127, 127)).save("a.png")
    typed = ["--method", "group_sparse_moreau", "--groups", "2", "--grid", "2", "--sparsity", "0.25", *votes]
    typed += ["--model", "own_certified:Corner", "--samples", "8000", "--k", "1", "--theta", "0.1", "--seed", "3"]
    code, _, err = run("certify", "a.png", *typed, "--epsilon", "0.001", "--attack-steps", "1")
    assert (code, err) == (0, "")
    found = read_json()
    assert found["map_shape"] == [3, 2, 2]
    assert (found["top"], found["members"], found["certificate"]["overlap"]) == ([0], [0], 1)
    assert [each["overlap"] for each in found["trials"]] == [1] * 4
    assert found["options"]["method"]["eta"] > 0


def test_a_certificate_that_promises_nothing_says_so(folder, run):
    code, out, err = run("certify", "a.png", *HIDDEN, "--samples", "100", "--epsilon", "0.1")
    assert code == 0
    assert "VACUOUS: this promises nothing" in out
    assert "No change is so small that one of the top 14 pixels surely stays" in out
    found = read_json()
    assert (found["vacuous"], found["trials"], found["certificate"]["overlap"]) == (True, [], 0)
    assert found["radii"] == {"all": None, "half": None, "one": None}
    assert set(found["curve"]["overlap"]) == {0}
    assert err == f"warning: {found['foreseen']}\n"
    assert "--grid 6" in err


def test_a_photo_before_the_default_network_is_vacuous(folder, run):
    pixels = np.random.default_rng(1).integers(0, 256, (40, 50, 3), dtype=np.uint8)
    Image.fromarray(pixels).resize((300, 240)).save("a.png")
    code, out, err = run("certify", "a.png", "--epsilon", "0.5", "--samples", "64")
    assert code == 0
    assert "VACUOUS" in out
    assert "--grid 8 asks for 192 numbers" in err
    assert "150,528 numbers" in err
    assert read_json()["trials"] == []


def test_quiet_is_quiet(folder, run):
    assert run("certify", "a.png", *HIDDEN, *QUICK, "--epsilon", "0.01", "--quiet") == (0, "", "")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--epsilon", "-1"], "epsilon must be a finite number >= 0"),
        (["--alpha", "0"], "alpha must be in (0, 1)"),
        (["--set", "noise_level=0.1"], "noise must have a fixed sigma"),
        (["--set", "rho=2"], "give --rho"),
        (["--set", "taau=2"], "an option of moreau must be one of"),
        (["--sigma", "0"], "--sigma must be a positive number"),
        (["--sigma", "1", "--no-noise"], "--sigma and --no-noise exclude each other"),
        (["--score", "logit"], "needs a score with a known range"),
        (["--no-noise"], "needs bounds of the second derivatives"),
        (["--recipe", "ranges"], "Did you mean 'range'"),
        (["--rho", "sure"], "--rho must be a number or certified"),
        (["--rho", "0"], "rho must be a positive"),
        (["--grid", "5"], "grid must divide the height and width"),
        (["--lipschitz", "steep"], "--lipschitz must be a number or exact"),
        (["--lipschitz", "exact"], "must"),
        (["--lipschitz", "2"], "--lipschitz holds for one kind of score"),
        (["--convex", "--no-noise"], "--convex holds for one kind of score"),
        (["--bounds", "3"], "--bounds must be two numbers with a comma"),
        (["--bounds", "3,1", "--score", "logit"], "low and high must be finite with low < high"),
        (["--clip", "3,1"], "low and high must be finite with low < high"),
        (["--clip", "1,3", "--votes"], "--clip and --votes exclude each other"),
        (["--centred", "--lipschitz", "2", "--score", "logit"], "--centred has a range of its own"),
        (["--clip", "1,3", "--score", "prob"], "--clip makes logits with a range"),
        (["--curvature", "1,x", "--no-noise"], "--curvature must be a number, LAM,BETA or exact"),
        (["--method", "gradient"], "whose maps have certificates, got 'gradient'"),
        (["--method", "sparse_moreu"], "Did you mean 'sparse_moreau'"),
        (["--method", "sparsified_smoothgrad", "--grid", "4"], "--grid must be left out with sparsified_smoothgrad"),
        (["--method", "sparsified_smoothgrad", "--no-noise"], "smoothing must"),
        (["--statistic", "votes", "--bounds", "0,1", "--score", "prob"], "--bounds must be left out with --statistic"),
        (["--statistic", "votes", "--samples", "20"], "samples must be at least"),
        (["--statistic", "votes", "--no-noise"], "smoothing"),
        (["--statistic", "rms"], "--statistic must be mean or votes"),
        (["--k", "0"], "k must be at least 1"),
        (["--compared", "computed", "--seed", "3"], "leave seed out"),
        (["--attack-steps", "-1"], "attack_steps must be at least 0"),
        (["--target", "7"], "target must be below 3"),
        (["--sparsity", "0.1"], "eta and sparsity need a prior"),
        (["--out", "a.png"], "--out must be a folder"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_what_cannot_be_certified_is_one_line_and_exit_code_2(folder, run, arguments, words):
    code, out, err = run("certify", "a.png", *HIDDEN, *QUICK, "--epsilon", "0.01", *arguments)
    assert (code, out) == (2, "")
    *heard, error = err.splitlines()
    assert error.startswith("error: ")
    assert words in error
    assert all(line.startswith("warning: this certificate will be vacuous") for line in heard)
    assert not list(folder.glob("certificates/*"))


def test_epsilon_is_required(folder, run):
    code, _, err = run("certify", "a.png", *NET)
    assert code == 2
    assert "--epsilon" in err


# parts


def stepping(ends, asked):
    """A certificate by which unit number i stays up to ends[i]."""

    def at(epsilon):
        overlap = sum(epsilon <= end for end in ends)
        return Certificate(
            recipe="smooth", assumption="", compared="ideal", epsilon=epsilon, alpha=0.0, map=torch.ones(1),
            topk=TopKGuarantee(k=len(ends), overlap=overlap), restate=at,
        )  # fmt: skip

    return at(asked)


@pytest.mark.parametrize("asked", [0.0, 1e-5, 0.3, 7.0, 1e4])
def test_radii_are_where_the_promise_ends(asked):
    ends = [0.5, 0.02, 3.0, 0.1, 0.02]
    found = make_curve(stepping(ends, asked))
    for name, end in {"all": 0.02, "half": 0.1, "one": 3.0}.items():
        assert end * (1 - 1.01e-3) <= found.radii[name] <= end
    assert found.logarithmic == (asked == 1e4)
    for epsilon, overlap in zip(found.epsilons, found.overlaps, strict=True):
        assert overlap == sum(epsilon <= end for end in ends)
    assert asked in found.epsilons
    assert found.epsilons[-1] == pytest.approx(3 * asked or 1.2 * 3.0, rel=2e-3)


def test_radii_of_promises_without_end_or_beginning():
    assert find_radius(stepping([math.inf, 1.0], 0.1), 1) == math.inf
    assert find_radius(stepping([-1.0, 1.0], 0.1), 2) is None
    assert find_radius(stepping([0.0, 1.0], 0.1), 2) == 0


@pytest.mark.parametrize(("recipe", "grid"), [("range", None), ("local", 8), ("local", 4)])
def test_the_samples_that_are_named_lift_the_warning(recipe, grid):
    x, known = torch.zeros(1, 3, 224, 224), KnownScore((0.0, 2.0))

    def words(samples):
        return forecast_vacuous(x, recipe, known, CertifyOptions(0.1, grid=grid, samples=samples))

    few = words(20)
    assert ("--grid 8" in few) == (grid is None)
    needed = int(few.split("more than ")[1].replace(",", ""))
    assert words(needed) is None
    size = 3 * (grid or 224) ** 2
    assert err_stein(size, round(0.9 * needed), 0.001, 0.25, 2.0) > gradient_cap(0.0, 2.0, 0.25)


def test_nothing_is_foreseen_where_sampling_is_not_the_limit():
    typed = CertifyOptions(0.1, samples=4)
    assert forecast_vacuous(torch.zeros(1, 3, 8, 8), "lipschitz", KnownScore(lipschitz=1.0), typed) is None


@pytest.fixture
def certified_case(folder):
    """The case of a command line, and its certificate."""

    def make(method="moreau", options=None, **typed):
        classifier, x = of_python()
        typed = CertifyOptions(0.01, method, samples=200, attack_steps=0, **typed)
        case = open_case(classifier, x, None, typed, options or {})
        (certificate,) = certify(case.method, x, case.target, typed.epsilon, **case.terms)
        return case, certificate

    return make


def test_places_of_units(certified_case):
    _, found = certified_case()
    chosen = torch.zeros(144, dtype=torch.bool)
    chosen[[0, 13]] = True
    mask = find_places(found, chosen)
    assert [tuple(each) for each in np.argwhere(mask)] == [(0, 0), (1, 1)]
    _, entries = certified_case(units="entries")
    chosen = torch.zeros(432, dtype=torch.bool)
    chosen[[144, 288 + 13]] = True  # of the second and of the third channel
    assert (find_places(entries, chosen) == mask).all()
    _, groups = certified_case("group_sparse_moreau", {"groups": 3})
    assert groups.topk.units == "groups"
    chosen = torch.zeros(9, dtype=torch.bool)
    chosen[5] = True
    expected = np.zeros((12, 12), bool)
    expected[4:8, 8:12] = True
    assert (find_places(groups, chosen) == expected).all()


@pytest.mark.parametrize(
    ("places", "borders"), [([(1, 1)], 4), ([(1, 1), (1, 2)], 6), ([(0, 0), (2, 3)], 8), ([], 0)], ids=str
)
def test_outlines_are_the_borders_of_regions(places, borders):
    from matplotlib.figure import Figure

    mask = np.zeros((3, 4), bool)
    for place in places:
        mask[place] = True
    axes = Figure().subplots()
    certified._outline(axes, mask, "red", 1.0, 1.0)
    (lines,) = axes.collections
    segments = lines.get_segments()
    assert len(segments) == borders
    for row, column in places:  # each place has its own corners among the ends
        corners = {(column + dx, row + dy) for dx in (-0.5, 0.5) for dy in (-0.5, 0.5)}
        assert corners <= {tuple(end) for segment in segments for end in segment.tolist()}


@pytest.mark.parametrize("compared", ["ideal", "computed"])
def test_fewer_than_promised_is_reported(certified_case, compared):
    case, found = certified_case(compared=compared)

    def describe(overlap):
        trials = (Trial("topk", 0.01, 0.01, overlap, 3),)
        return certify_report.describe({"key": "a"} | collect_facts(case, found, trials, {}), found)

    words = "--compared computed allows" if compared == "ideal" else "may happen with probability 0.002"
    assert words in describe(2)[-1]
    assert "Fewer stayed" not in "".join(describe(3))


def test_nothing_is_left_behind(certified_case):
    before = torch.random.get_rng_state()
    certified_case()
    assert torch.equal(before, torch.random.get_rng_state())
