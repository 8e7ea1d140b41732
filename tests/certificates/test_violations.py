"""The search for violations: a small one finds none, and one with false constants does."""

import json
import math
import sys
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from types import SimpleNamespace

import jaxtyping
import pytest
import torch

import moreaugrad as mg
from moreaugrad.certificates import theory as cert
from moreaugrad.envelope.groups import make_groups
from moreaugrad.envelope.priors_l1 import L1
from moreaugrad.models.classifier import Classifier
from moreaugrad.models.lipschitz import VIEW, LipschitzNetwork

ROOT = Path(__file__).parents[2]
PARTS = ("cases", "quadratics", "networks", "images", "attackers", "tally", "search")
SPENT = {"starts": 2, "points": 12, "steps": 2}
PRIORS = ("none", "l1", "group")
KINDS = ("convex", "softplus", "tanh", "centred", "two softplus", "two tanh")


@pytest.fixture(scope="module")
def fuzzer():
    """The parts of the fuzzer. Shapes are left to other tests: here checking them would take most of the time."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(jaxtyping.config, "jaxtyping_disable", True)
        patch.syspath_prepend(str(ROOT))  # the search stores its figures as the benchmarks do
        yield SimpleNamespace(**{name: import_module(f"certificate_fuzzer.{name}") for name in PARTS})


@pytest.fixture
def draw():
    """Seeded for each test, so that none depends on those that ran before it."""
    return torch.Generator().manual_seed(1)


def tiny():
    """A 1-Lipschitz network in little."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        network = LipschitzNetwork(widths=(6, 8), depth=1)
    return Classifier(network, VIEW, "tiny").double().eval().requires_grad_(False)


def scores(fuzzer, certified, other):
    """The rows of the attackers of one certified, by name: judged by its own certificate, and by another."""
    rows = ({}, {})
    tried = [("singular", solved) for solved in fuzzer.attackers.follow_singular_vectors(certified)]
    for name, solved in [*tried, *fuzzer.attackers.ascend(certified)]:
        for claim, into in zip((certified, replace(certified, certificate=other)), rows, strict=True):
            into.setdefault(name, fuzzer.tally.Row()).add(claim, solved)
    return rows


def certify_case(fuzzer, case, draw, **options):
    return fuzzer.attackers.CertifiedCase(
        case, fuzzer.search.certify_case(case), draw, **{"starts": 2, "steps": 3, **options}
    )


# ---- the search finds nothing where nothing is wrong ----


@pytest.mark.parametrize("prior", PRIORS)
def test_quadratics_keep_their_certificates_and_reach_the_bound(fuzzer, draw, prior, monkeypatch):
    monkeypatch.setattr(fuzzer.quadratics, "curvatures", lambda _: (0.7, 0.3, 4.0))  # soon solved
    search = fuzzer.search.ViolationSearch(draw, cases=1)
    for kind in fuzzer.quadratics.KINDS:
        search.attack(fuzzer.quadratics.make(kind, prior, draw, size=6), **SPENT)
    figures = search.figures()
    assert figures["attempts"] > 100
    assert figures["violations"] == 0
    assert figures["largest_share_of_the_bound_on_quadratics"] > 0.999
    assert search.off < 1e-9  # the map at x, known exactly
    assert figures["attempts_that_know_the_map"] > figures["attempts"] / 2


@pytest.mark.parametrize("kind", KINDS)
def test_networks_keep_their_certificates(fuzzer, draw, kind):
    search, prior = fuzzer.search.ViolationSearch(draw, cases=1), PRIORS[KINDS.index(kind) % 3]
    search.attack(fuzzer.networks.make(kind, prior, draw), **SPENT)
    assert search.count("violations") == 0
    assert search.count("unsolved") == 0
    assert search.count() > 40


def test_it_runs_and_stores_its_figures(fuzzer, tmp_path, monkeypatch):
    monkeypatch.setattr(fuzzer.images, "load", lambda device: (tiny(), "tiny"))
    monkeypatch.delenv("MOREAUGRAD_DATA", raising=False)
    monkeypatch.setattr(fuzzer.quadratics, "curvatures", lambda _: (0.7, 0.3, 4.0))
    given = {"device": "cpu", "out": tmp_path, "quadratic": 250, "network": 40, "cifar": 90}
    given |= {"starts": 1, "points": 10, "steps": 2}
    words = [word for name, value in given.items() for word in (f"--{name}", str(value))]
    monkeypatch.setattr(sys, "argv", ["certificate_fuzzer", *words])
    fuzzer.search.main()
    stored = json.loads((tmp_path / "violations_cpu.json").read_text())
    assert {"command", "date", "hardware", "versions"} <= set(stored)
    assert str(tmp_path) not in json.dumps(stored)
    assert (stored["violations"], stored["unsolved"]) == (0, 0)
    assert set(stored["attempts_by_family"]) == {"quadratic", "network", "cifar"}
    assert sum(row["attempts"] for row in stored["attackers"]) == stored["attempts"]
    attackers = {"sphere", "inside", "singular", "topk", "distance", "direction", "overlap", "vanish", "enter"}
    assert {row["attacker"] for row in stored["attackers"]} == attackers
    assert sum(row["reached"].get("overlap", 0) for row in stored["attackers"]) > 0
    images = [row for row in stored["kinds"] if row["family"] == "cifar"]
    assert {row["prior"] for row in images} == set(PRIORS)
    assert {row["kind"] for row in images} == {"1-Lipschitz", "1-Lipschitz, fixed noise"}


# ---- and finds it where something is ----


def sharp(fuzzer, draw, prior="l1", rho=1.0, lam=0.0, beta=30.0):
    """The sharp case of given constants."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(fuzzer.quadratics, "curvatures", lambda _: (rho, lam, beta))
        return fuzzer.quadratics.make("sharp" if prior != "none" else "isotropic", prior, draw, size=6)


@pytest.mark.parametrize(("prior", "lam", "beta"), [("l1", 0.0, 12.0), ("group", 0.2, 12.0)])
def test_the_published_constant_is_refuted(fuzzer, draw, prior, lam, beta):
    certified = certify_case(fuzzer, sharp(fuzzer, draw, prior, 1.0, lam, beta), draw)
    published = max(1.0, lam / (1 - lam))
    assert published < 0.9 * cert.lip_prox(1.0, lam, beta)
    right, rows = scores(fuzzer, certified, fuzzer.tally.restate(certified, published))
    assert sum(row.violations for row in right.values()) == 0
    for name in ("singular", "distance"):
        assert rows[name].violations > 0
        assert rows[name].broken["budget"] > 0
        assert rows[name].share > 1.1


@pytest.mark.parametrize("prior", PRIORS)
def test_a_bound_of_eight_tenths_is_caught_and_the_bound_itself_is_not(fuzzer, draw, prior):
    certified = certify_case(fuzzer, sharp(fuzzer, draw, prior, 0.7, 0.3, 4.0), draw)
    right, rows = scores(
        fuzzer, certified, fuzzer.tally.restate(certified, 0.8 * certified.certificate.constants.lipschitz)
    )
    assert sum(row.violations for row in right.values()) == 0
    assert max(row.share for row in right.values()) > 0.999
    assert rows["singular"].broken["budget"] > 0
    assert rows["distance"].broken["budget"] > 0


def aimed(fuzzer, draw, dual, eta, bend, epsilon, k):
    """bend * |y|^2/2 with a chosen dual gradient: the map goes wherever the input is pushed."""
    dual = torch.tensor([dual], dtype=torch.float64)
    threshold = fuzzer.cases.Threshold(torch.arange(dual.shape[1]), eta)
    rho, at = 1.0, torch.zeros_like(dual)
    score = fuzzer.quadratics.Quadratic(bend * torch.eye(dual.shape[1], dtype=torch.float64), dual[0])
    prior = "l1" if eta else "none"
    method = fuzzer.cases.method_of(score, rho, prior, threshold)
    lam, beta = max(0.0, -bend), max(0.0, bend)
    x = at + rho * threshold(dual)
    case = fuzzer.cases.Case("aimed", "aimed", prior, method, threshold, x, lam, beta, epsilon, k)
    return certify_case(fuzzer, case, draw, starts=4)


WEAK = [4.0, 3.0, 2.0, 1.95, -0.5, 0.2]  # the third and the fourth are 0.05 apart


AIMED = {  # the statements that an aim breaks; dual gradient, eta, bend, epsilon and k of a case in which it can
    "overlap": ({"overlap", "members"}, (WEAK, 0.0, 1.0, 0.074, 3)),  # 0.5 eps beats 0.05/sqrt(2), 0.4 eps does not
    "vanish": ({"support"}, ([3.0, 2.0, 1.1, 0.2], 1.0, -0.5, 0.11, 1)),  # eps beats 0.1
    "enter": ({"support"}, ([3.0, 2.0, 0.9, 0.2], 1.0, 2.0, 0.0555, 1)),  # 2 eps beats 0.1, 1.6 eps does not
    "distance": ({"budget"}, (WEAK, 0.0, 1.0, 0.2, 2)),
    "direction": ({"budget", "distance", "cosine"}, (WEAK, 0.0, 1.0, 0.2, 2)),
}


@pytest.mark.parametrize("aim", AIMED)
def test_each_aim_breaks_its_statements_when_constants_are_a_fifth_too_small(fuzzer, draw, aim):
    statements, told = AIMED[aim]
    certified = aimed(fuzzer, draw, *told)
    steep = cert.lip_dual(1.0, certified.case.lam, certified.case.beta)
    less = fuzzer.tally.restate(certified, 0.8 * certified.certificate.constants.lipschitz, 0.8 * steep)
    right, rows = scores(fuzzer, certified, less)
    assert right[aim].violations == 0
    reached = {"overlap": "overlap", "vanish": "survivors", "enter": "entrants"}
    assert aim not in reached or right[aim].reached[reached[aim]] > 0  # as much as the right constants allow
    assert statements <= set(rows[aim].broken)


def test_the_judge_sees_what_it_should(fuzzer, draw):
    """By hand: moved too far; not solved, so no attempt; broken by less than the map's own error."""
    certified = aimed(fuzzer, draw, WEAK, 0.0, 1.0, 0.01, 2)
    solved = certified.solve(certified.ball(certified.directions(3)))
    unit = torch.nn.functional.normalize(certified.directions(1))
    claim = certified.certificate
    far = claim.map + unit * claim.change.budget * torch.tensor([[1.001], [1.001], [1 + 1e-7]]).double()
    residual = torch.tensor([0.0, 1e-3, 9e-11], dtype=torch.float64)
    row = fuzzer.tally.Row()
    row.add(certified, replace(solved, maps=far, residual=residual))
    assert (row.attempts, row.unsolved, row.violations, row.explained) == (2, 1, 2, 0)
    assert row.broken["budget"] == 2
    row, near = fuzzer.tally.Row(), certified.certificate.map + unit * (certified.certificate.change.budget + 5e-11)
    row.add(certified, replace(solved, maps=near.expand(3, -1), residual=torch.full((3,), 9e-11).double()))
    assert (row.attempts, row.violations, row.explained) == (3, 0, 3)
    with pytest.raises(AssertionError):
        row.add(certified, replace(solved, x=solved.x + 1))


# ---- what the search rests on ----


def test_thresholds_are_those_of_the_priors(fuzzer, draw):
    dual, one = fuzzer.cases.normal(5, 12, draw=draw), torch.ones(5, dtype=torch.float64)
    labels = fuzzer.cases.units("group", 12, draw)
    for mine, prior in ((torch.arange(12), L1()), (labels, make_groups(labels, dual))):
        found = fuzzer.cases.Threshold(mine, 0.9)(dual)
        torch.testing.assert_close(found, prior.prox(dual, 0.9 * one), rtol=1e-12, atol=0)
        assert bool((found == 0).any())
    assert fuzzer.cases.Threshold(torch.arange(12), 0.0)(dual).equal(dual)


@pytest.mark.parametrize("kind", KINDS)
def test_curvatures_of_networks(fuzzer, draw, kind):
    """Second derivatives at random points lie in the bounds, and reach one of them where the units are centred."""
    for _ in range(3):
        case = fuzzer.networks.make(kind, "l1", draw)
        network = case.method.forward_func
        lam, beta = fuzzer.networks.bends(network)
        home = case.x - case.rho * case.map
        points = torch.cat([home, home + 2 * fuzzer.cases.normal(20, case.x.shape[1], draw=draw)])
        hessians = torch.func.vmap(torch.func.hessian(lambda y, net=network: net(y[None])[0, 0]))(points)
        low, high = torch.linalg.eigvalsh(hessians)[:, [0, -1]].T
        assert low.min() >= -lam - 1e-12
        assert high.max() <= beta + 1e-12
        if kind == "centred":
            assert low[0] <= -0.999 * lam or high[0] >= 0.999 * beta


@pytest.mark.parametrize("kind", ["random", "isotropic", "sharp"])
def test_spectra_of_quadratics(fuzzer, draw, kind):
    for prior in PRIORS:
        for _ in range(10):
            case = fuzzer.quadratics.make(kind, prior, draw)
            values = torch.linalg.eigvalsh(case.method.forward_func.hessian)
            scale = 1e-9 * (case.lam + abs(case.beta))
            assert values[0] >= -case.lam - scale
            assert values[-1] <= case.beta + scale


@pytest.mark.parametrize("prior", PRIORS)
def test_what_is_certified_follows_from_its_constants(fuzzer, draw, prior):
    """A second way to the certificate, from the constants of the theory alone."""
    case = fuzzer.quadratics.make("random", prior, draw, size=8)
    certified = certify_case(fuzzer, case, draw)
    found, again = certified.certificate, fuzzer.tally.restate(certified)
    assert found.constants.lipschitz == pytest.approx(case.lipschitz, rel=1e-12)
    assert found.change.budget == pytest.approx(case.lipschitz * found.epsilon, rel=1e-6)
    for name, value in found.record().items():
        assert again.record()[name] == (pytest.approx(value, rel=1e-9) if isinstance(value, float) else value), name
    assert again.topk.members.flatten().tolist() == found.topk.members.flatten().tolist()


def test_images_have_the_constants_of_the_layers(fuzzer, draw):
    network = tiny()
    what, images = fuzzer.images.pictures(draw)
    found = fuzzer.images.image_cases(network, images, draw)
    case = next(found)
    assert what in ("CIFAR-10 test set", "pieces of a photo")
    assert case.lam == case.beta == pytest.approx(4 / tiny().network.stage1[-1].tau)  # two stages of two
    (exact,) = mg.certify(case.method, case.x, case.target, case.epsilon, assume=mg.Assumptions(curvature="exact"))
    assert exact.constants.lipschitz == pytest.approx(case.lipschitz)
    assert math.isfinite(exact.change.budget)
