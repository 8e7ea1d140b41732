"""Certificates of maps: against exact solutions, closed forms and attacks; refusals; nothing left behind."""

import copy
import math
from dataclasses import replace

import pytest
import torch
from flat_certify import certify
from torch import nn

import moreaugrad as mg
from moreaugrad.certificates import theory
from moreaugrad.certificates.assumptions import CertifyOptions, KnownScore
from moreaugrad.certificates.evidence import Evidence, Plan
from moreaugrad.certificates.measurement import Measurement, Subspace
from moreaugrad.envelope.priors import Zero
from moreaugrad.model.bounded import Bounded, Odds, log_odds
from moreaugrad.model.lipschitz_bounds import lipschitz_bounds


class Quadratic(nn.Module):
    """x'Hx/2 + b'x, as the only output of its kind; the second is its negative."""

    def __init__(self, low, high, size=6, seed=0):
        super().__init__()
        torch.manual_seed(seed)
        basis = torch.linalg.qr(torch.randn(size, size, dtype=torch.float64))[0]
        self.H = basis @ torch.diag(torch.linspace(low, high, size, dtype=torch.float64)) @ basis.T
        self.b = torch.randn(size, dtype=torch.float64)
        self.eval()

    def forward(self, x):
        flat = x.flatten(1)
        value = (flat @ self.H * flat).sum(1) / 2 + flat @ self.b
        return torch.stack([value, -value], 1)


class HalfSpace(Bounded):
    """1 where <v, x> > 0: under noise its average is Phi(<v, x>/sigma), with |v| = 1."""

    def __init__(self, v):
        super().__init__(torch.nn.Identity())
        self.v = v / v.norm()
        self.eval()

    def forward(self, x):
        inside = (x.flatten(1) @ self.v > 0).to(x.dtype)
        return torch.stack([inside, 1 - inside], 1)


class Ridge(nn.Module):
    """sqrt(1 + <v, x>^2), |v| = 1: slope below 1."""

    def __init__(self, v):
        super().__init__()
        self.v = v / v.norm()
        self.eval()

    def forward(self, x):
        t = x.flatten(1) @ self.v
        return torch.stack([(1 + t * t).sqrt(), t], 1)


def tanh_network(size=6, classes=3, seed=0):
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(size, 12), nn.Tanh(), nn.Linear(12, classes)).double().eval()


def points(count, size=6, seed=1):
    return torch.randn(count, size, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def within(x, epsilon, count=24, seed=3):
    """Changed inputs on the sphere."""
    random = torch.Generator().manual_seed(seed)
    way = torch.randn(count, *x.shape, dtype=x.dtype, generator=random)
    return x + epsilon * way / way.flatten(1).norm(dim=1).view(-1, *[1] * x.ndim)


SURE = {"recipe": "smooth", "epsilon": 0.05}


@pytest.mark.parametrize("kind", ["plain", "sparse", "group"])
def test_exact_certificates_hold_for_quadratic_scores(kind):
    lam, beta, rho = 0.4, 3.0, 1.0
    network, x = Quadratic(-lam, beta), points(1)
    made = {
        "plain": lambda: mg.MoreauGrad(network, rho=rho, smoothing=None),
        "sparse": lambda: mg.SparseMoreauGrad(network, rho=rho, eta=0.3, smoothing=None),
        "group": lambda: mg.GroupSparseMoreauGrad(
            network, rho=rho, eta=0.4, groups=torch.tensor([0, 0, 1, 1, 2, 2]), smoothing=None
        ),
    }[kind]()
    (found,) = certify(made, x, 0, curvature=(lam, beta), k=2, **SURE)
    sharp = theory.lip_vanilla if kind == "plain" else theory.lip_prox
    assert found.constants.lipschitz == pytest.approx(sharp(rho, lam, beta))
    assert found.change.budget == pytest.approx(found.constants.lipschitz * 0.05, rel=1e-6)
    maps = found.method.attribute(within(x[0], 0.05), 0)
    assert [found.violations(each) for each in maps] == [()] * len(maps)
    assert found.at(0.0).change.budget < 1e-6
    assert found.at(0.0).topk.overlap == found.topk.k


def test_the_plain_certificate_is_reached_along_the_steepest_direction():
    lam, beta, rho = 0.5, 2.0, 1.0
    network, x = Quadratic(-lam, beta), points(1)
    (found,) = certify(mg.MoreauGrad(network, rho=rho, smoothing=None), x, 0, curvature=(lam, beta), **SURE)
    values, vectors = torch.linalg.eigh(network.H)
    moved = found.method.attribute(x + 0.05 * vectors[:, values.argmin()], 0) - found.map
    assert float(moved.norm()) == pytest.approx(found.change.budget, rel=1e-6)


@pytest.mark.parametrize("sparse", [False, True])
def test_exact_constants_of_a_network_are_never_broken(sparse):
    network, x = tanh_network(), points(3)
    options = {"rho": 0.2, "smoothing": None}
    method = mg.SparseMoreauGrad(network, eta=0.05, **options) if sparse else mg.MoreauGrad(network, **options)
    for one, found in zip(x, certify(method, x, epsilon=0.05, curvature="exact", k=2), strict=True):
        maps = found.method.attribute(within(one, 0.05), found.target)
        assert [found.violations(each) for each in maps] == [()] * len(maps)


def test_convex_scores_need_no_more_than_convexity():
    network, x = Quadratic(0.0, 50.0), points(1)
    method = mg.MoreauGrad(network, rho=0.5, smoothing=None)
    (found,) = certify(method, x, 0, convex=True, epsilon=0.01)
    assert found.recipe == "convex"
    assert found.constants.lipschitz == pytest.approx(1 / 0.5)
    maps = found.method.attribute(within(x[0], 0.01), 0)
    assert all(found.violations(each) == () for each in maps)


@pytest.mark.parametrize("recipe", ["range", "local"])
def test_scores_alone_give_the_gradient_of_a_half_space(recipe):
    v = torch.tensor([3.0, 1.0, 0.5, 0.0, 0.0, 2.0])
    network, sigma = HalfSpace(v), 0.5
    x = 0.1 * (v / v.norm())[None]
    method = mg.MoreauGrad(network, smoothing=mg.Smoothing(sigma=sigma))
    options = {"recipe": recipe, "rho": "certified", "theta": 0.1, "samples": 60_000, "seed": 5}
    (found,) = certify(method, x, 0, epsilon=0.01, k=2, **options)
    ideal = _half_space_map(0.1, sigma, found.constants.rho) * (v / v.norm())
    assert float((found.map.float() - ideal).norm()) <= found.accuracy.error
    assert found.constants.lam <= theory.lam_range(0, 1, sigma) * (1 + 1e-12)
    assert not found.vacuous
    for at in (0.09, 0.11):  # the ideal maps at the ends of the ball
        assert found.violations((_half_space_map(at, sigma, found.constants.rho) * (v / v.norm())).double()) == ()


def _half_space_map(at, sigma, rho):
    """-d/rho at the root of phi((at + d)/sigma)/sigma + d/rho = 0."""
    low, high = -1.0, 0.0
    for _ in range(200):
        middle = (low + high) / 2
        slope = math.exp(-(((at + middle) / sigma) ** 2) / 2) / math.sqrt(2 * math.pi) / sigma + middle / rho
        low, high = (middle, high) if slope < 0 else (low, middle)
    return -(low + high) / 2 / rho


def test_a_lipschitz_score_is_certified_by_mean_gradients():
    v = torch.tensor([1.0, 2.0, 0.0, -1.0, 0.5, 0.0])
    x, sigma = 2 * (v / v.norm())[None], 0.4
    method = mg.MoreauGrad(Ridge(v), smoothing=mg.Smoothing(sigma=sigma))
    options = {"lipschitz": 1.0, "rho": "certified", "theta": 0.2, "samples": 20_000, "seed": 5}
    (found,) = certify(method, x, 0, epsilon=0.02, k=2, **options)
    assert found.recipe == "lipschitz"
    assert found.constants.lam < theory.lam_lipschitz(1.0, sigma)  # the gradient is long there
    ideal = _ridge_map(2.0, sigma, found.constants.rho) * (v / v.norm())
    assert float((found.map.float() - ideal).norm()) <= found.accuracy.error
    for at in (1.98, 2.02):
        assert found.violations((_ridge_map(at, sigma, found.constants.rho) * (v / v.norm())).double()) == ()


def _ridge_map(at, sigma, rho):
    nodes = torch.linspace(-8, 8, 4001, dtype=torch.float64)
    weights = torch.exp(-(nodes**2) / 2)
    weights /= weights.sum()

    def slope(t):
        s = t + sigma * nodes
        return float((weights * s / (1 + s * s).sqrt()).sum())

    d = 0.0
    for _ in range(500):
        d = -rho * slope(at + d)
    return -d / rho


def test_what_was_chosen_at_the_input_is_frozen():
    network, x = tanh_network(), points(2)
    method = mg.SparseMoreauGrad(network, sparsity=0.5, rho=0.2, smoothing=None)
    found = certify(method, x, epsilon=0.01, curvature="exact")
    wanted = method.explain(x, torch.tensor([each.target for each in found])).eta
    for each, eta in zip(found, wanted, strict=True):
        assert each.method.sparsity is None
        assert each.method.eta == pytest.approx(float(eta))


@pytest.mark.parametrize("seed", [None, 3])
def test_frozen_noise_is_the_same_at_every_input(seed):
    network, x = tanh_network(), points(1)
    noise = mg.Smoothing(sigma=1.0, samples=2, fixed=True)
    method = mg.SparseMoreauGrad(network, eta=0.02, rho=0.2, smoothing=noise, seed=seed)
    (found,) = certify(method, x, 0, epsilon=0.05, curvature="exact", k=2)
    assert found.violations(found.method.attribute(x, 0)[0]) == ()
    assert all(found.violations(each) == () for each in found.method.attribute(within(x[0], 0.05), 0))


def test_superpixels_are_frozen():
    torch.manual_seed(0)
    network = nn.Sequential(nn.Flatten(), nn.Linear(3 * 16 * 16, 8), nn.Tanh(), nn.Linear(8, 2)).double().eval()
    x = torch.rand(1, 3, 16, 16, dtype=torch.float64)
    method = mg.GroupSparseMoreauGrad(network, groups="superpixels", rho=0.1, eta=1e-3, smoothing=None)
    (found,) = certify(method, x, 0, epsilon=0.05, curvature="exact")
    assert torch.equal(found.method.groups, mg.Group("superpixels").for_batch(x).labels[0])
    assert found.topk.units == "groups"
    maps = found.method.attribute(within(x[0], 0.05), 0)
    assert [found.violations(each, error=1e-7 * found.change.norm) for each in maps] == [()] * len(maps)


def test_other_epsilons_agree_with_certificates_of_their_own():
    network, x = tanh_network(), points(1)
    method = mg.SparseMoreauGrad(network, eta=0.05, rho=0.2, smoothing=None)
    (first,) = certify(method, x, 0, epsilon=0.05, curvature="exact")
    (second,) = certify(method, x, 0, epsilon=0.2, curvature="exact")
    again = first.at(0.2)
    assert {**again.record(), "residual": 0} == pytest.approx({**second.record(), "residual": 0})
    shares = [first.at(e).topk.overlap for e in (0, 0.01, 0.1, 1.0, 10.0)]
    assert shares == sorted(shares, reverse=True)


def test_grids_keep_lengths_and_project():
    grid, x = Subspace((3, 8, 8), 4), torch.randn(2, 3, 8, 8, dtype=torch.float64)
    q = torch.randn(2, 3, 4, 4, dtype=torch.float64)
    torch.testing.assert_close(grid.project(grid.embed(q)), q)
    assert float(grid.embed(q).norm()) == pytest.approx(float(q.norm()))
    torch.testing.assert_close((grid.project(x) * q).sum(), (x * grid.embed(q)).sum())
    assert Subspace((3, 8, 8)).size == 192
    assert grid.size == 48


def test_a_grid_certificate_is_that_of_the_restricted_map():
    v = torch.ones(3, 4, 4)
    v[:, :2] = 3.0
    network, sigma = HalfSpace(v.flatten()), 0.5
    method = mg.MoreauGrad(network, smoothing=mg.Smoothing(sigma=sigma))
    x = torch.zeros(1, 3, 4, 4)
    (found,) = certify(
        method, x, 0, epsilon=0.01, grid=2, rho="certified", theta=0.05, samples=60_000, seed=7, recipe="range"
    )
    unit = (v / v.norm())[None]
    length = _half_space_map(0.0, sigma, found.constants.rho)
    ideal = Subspace((3, 4, 4), 2).project(unit) * length  # v lies in the patterns
    assert found.map.shape == (3, 2, 2)
    assert float((found.map - ideal[0]).norm()) <= found.accuracy.error


def test_a_grid_is_a_prior_and_has_the_constant_of_one():
    rho, q = 2.5, torch.zeros(1, 1, 2, 2, dtype=torch.float64)
    eta = torch.zeros(1, dtype=torch.float64)
    measured = Measurement(Zero(), eta, q, 0.0, 0.0, 0.0, mg.MoreauGrad(torch.nn.Identity(), rho=rho), (0.05, 0.05))
    options = [CertifyOptions(problem=mg.CertifiedProblem(grid=grid)) for grid in (2, None)]
    plans = [Plan(None, 0, "local", KnownScore((0.0, 1.0)), 1.0, each) for each in options]
    on_grid, whole = (Evidence(plan, measured).bound_near(0.01) for plan in plans)
    lam, beta = on_grid.lam, on_grid.beta
    assert on_grid.lip == theory.lip_prox(rho, lam, beta) > theory.lip_vanilla(rho, lam, beta) == whole.lip


def test_odds_are_those_of_the_probabilities():
    logits = torch.randn(5, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    p = logits.softmax(1)
    torch.testing.assert_close(log_odds(logits), (p / (1 - p)).log())
    module = Odds(nn.Identity(), 0.3, 2.0)
    torch.testing.assert_close(module(logits), 1 / (1 + torch.exp(-(log_odds(logits) - 0.3) / 2)))


def test_centred_odds_are_near_one_half_and_frozen():
    torch.manual_seed(0)
    network = nn.Sequential(nn.Linear(6, 12), nn.Tanh(), nn.Linear(12, 3)).eval()
    with torch.no_grad():
        network[2].weight *= 20  # probabilities near 0 and 1
    x = points(1).float()
    method = mg.MoreauGrad(network, smoothing=mg.Smoothing(sigma=0.5))
    (found,) = certify(method, x, epsilon=0.01, centred=True, rho="certified", samples=20_000, seed=1)
    assert isinstance(found.method.forward_func, Odds)
    noisy = x + 0.5 * torch.randn(4000, 6, generator=torch.Generator().manual_seed(9))
    with torch.no_grad():
        assert float(found.method.forward_func(noisy)[:, found.target].median()) == pytest.approx(0.5, abs=0.05)


def test_the_ranks_of_sparsified_smoothgrad_in_the_same_words():
    torch.manual_seed(0)
    network = nn.Sequential(nn.Flatten(), nn.Linear(3 * 8 * 8, 16), nn.Softplus(), nn.Linear(16, 4)).eval()
    x = torch.rand(1, 3, 8, 8)
    method = mg.SparsifiedSmoothGrad(network, smoothing=mg.Smoothing(sigma=0.5))
    (found,) = certify(method, x, 0, epsilon=0.01, samples=8000, k=5, seed=3)
    proof = theory.topk_certificate(found.map.mean(0), 5, 0.5, 4000, 0.001)
    assert [found.at(e).topk.overlap for e in (0, 0.01, 0.1, 1.0)] == [proof.overlap(e) for e in (0, 0.01, 0.1, 1.0)]
    assert found.topk.overlap > 0
    many = replace(method, smoothing=mg.Smoothing(sigma=0.5, samples=8000), seed=9)
    for each in many.attribute(within(x[0], 0.01, count=4), 0):
        assert found.overlap_with(each) >= found.topk.overlap
    (wide,) = certify(replace(method, variant="scaled"), x, 0, epsilon=1e6, samples=100, k=60)
    assert wide.topk.overlap == 2 * 60 - 64  # by counting alone, which is no promise
    assert wide.vacuous


@pytest.mark.slow
@pytest.mark.parametrize("recipe", ["range", "local", "lipschitz"])
def test_coverage_of_the_sampled_statements(recipe):
    """At alpha 0.05, over 1,000 repetitions, statements fail no more often than a binomial limit allows.

    All of a certificate at once: the error of the map, and every promise at the ends of the ball, where the ideal map
    is known in closed form.
    """
    v = torch.tensor([1.0, 0.5, 0.0, 2.0])
    v = v / v.norm()
    network, ideal = (Ridge(v), _ridge_map) if recipe == "lipschitz" else (HalfSpace(v), _half_space_map)
    at, sigma, rho, epsilon = 0.5, 0.5, 0.02, 0.01
    truth = {end: ideal(end, sigma, rho) * v.double() for end in (at - epsilon, at, at + epsilon)}
    method = mg.MoreauGrad(network, rho=rho, smoothing=mg.Smoothing(sigma=sigma))
    options = {
        "recipe": recipe,
        "samples": 400,
        "alpha": 0.05,
        "k": 2,
        "lipschitz": 1.0 if recipe == "lipschitz" else None,
    }
    failures = 0
    for seed in range(1, 1001):
        (found,) = certify(method, at * v[None], 0, epsilon=epsilon, seed=seed, **options)
        wrong = float((found.map - truth[at]).norm()) > found.accuracy.error
        failures += wrong or any(found.violations(truth[end]) for end in (at - epsilon, at + epsilon))
    assert failures <= 1000 * 0.05 + 3 * math.sqrt(1000 * 0.05 * 0.95)


def test_the_paragraph_is_honest():
    network, x = tanh_network(), points(1)
    method = mg.SparseMoreauGrad(network, eta=0.05, rho=0.2, smoothing=None)
    (found,) = certify(method, x, 0, epsilon=0.01, curvature="exact", k=2)
    assert "Surely, in exact arithmetic" in str(found)
    assert "VACUOUS" not in str(found)
    assert found.at(5.0).vacuous
    assert "VACUOUS" in str(found.at(5.0))
    assert "VACUOUS" in repr(found.at(5.0))
    assert f"at least {found.topk.overlap} of the top 2" in repr(found)
    assert "tensor" not in repr(found)


def _bad(**options):
    given = {
        "network": tanh_network(),
        "x": points(1),
        "smoothing": mg.Smoothing(sigma=0.5),
        "rho": 0.01,
        "score": "prob",
    }
    given |= options
    method = mg.MoreauGrad(given["network"], rho=given["rho"], smoothing=given["smoothing"], score=given["score"])
    rest = {key: value for key, value in options.items() if key not in ("network", "smoothing", "rho", "score", "x")}
    return certify(method, given["x"], 0, **({"epsilon": 0.1, "samples": 100} | rest))


@pytest.mark.parametrize(
    ("options", "error", "words"),
    [
        ({"rho": 5.0, "recipe": "range"}, ValueError, "rho \\* lam must be below 1.*take rho below"),
        ({"smoothing": mg.Smoothing(noise_level=0.1)}, ValueError, "sigma must be a fixed number.*Smoothing\\(sigma"),
        (
            {"score": "logit", "recipe": "lipschitz", "network": nn.Sequential(nn.LayerNorm(6)).double().eval()},
            TypeError,
            "lipschitz must be a known number.*exact",
        ),
        ({"score": "logit", "recipe": "range"}, ValueError, "needs a score with a known range.*mg.Clipped"),
        ({"score": "logit", "network": nn.Sequential(nn.LayerNorm(6)).double().eval()}, ValueError, "known range"),
        ({"alpha": 1.0}, ValueError, "alpha must be in \\(0, 1\\)"),
        ({"alpha": 0.0}, ValueError, "alpha must be in \\(0, 1\\)"),
        ({"epsilon": -0.1}, ValueError, "epsilon must be a finite number >= 0"),
        ({"epsilon": math.nan}, ValueError, "epsilon"),
        ({"bounds": (1.0, 0.0)}, ValueError, "low < high"),
        ({"bounds": 3.0}, TypeError, "bounds must be \\(low, high\\)"),
        ({"smoothing": mg.Smoothing(sigma=0.5, fixed=True), "recipe": "range"}, ValueError, "fresh noise, got fixed"),
        ({"smoothing": None, "recipe": "local"}, ValueError, "got no noise"),
        ({"recipe": "smooth", "curvature": 1.0}, ValueError, "computed exactly, got fresh noise"),
        (
            {"smoothing": None, "network": nn.Sequential(nn.ReLU(), nn.Linear(6, 3)).double().eval(), "score": "logit"},
            ValueError,
            "needs bounds of the second derivatives",
        ),
        ({"seed": 0}, ValueError, "seed must not be the method's own"),
        ({"seed": 3, "compared": "computed"}, ValueError, "an attacker may adapt"),
        ({"compared": "both"}, ValueError, "compared"),
        ({"recipe": "magic"}, ValueError, "recipe"),
        ({"rho": 0.01, "grid": 2}, ValueError, "grid must divide"),
        ({"lipschitz": "precise"}, ValueError, "lipschitz must be a number or 'exact'"),
        ({"samples": 1}, ValueError, "samples"),
        ({"score": "logit", "lipschitz": 50.0, "samples": 8}, ValueError, "samples must be at least 64"),
        ({"smoothing": None, "recipe": "convex", "score": "logit", "curvature": 0.5}, ValueError, "give convex=True"),
        ({"centred": True, "score": "logit", "lipschitz": 1.0}, ValueError, "centred=True has a score of its own"),
        ({"smoothing": None, "convex": True}, ValueError, "a score with a range cannot be convex"),
        ({"x": points(1).half()}, TypeError, "float32 or float64"),
        ({"x": points(0)}, TypeError, "x must be one tensor"),
        ({"units": "groups"}, ValueError, "units must be groups for methods with groups"),
        ({"units": "pixels"}, ValueError, "pixels for images"),
        ({"curvature": (1.0, 2.0, 3.0)}, TypeError, "curvature must be a number or"),
        ({"convex": "no"}, TypeError, "convex must be True"),
        ({"seed": "a"}, TypeError, "seed"),
        ({"alpha": 0.7, "compared": "computed"}, ValueError, "alpha must be below 0.5"),
        ({"k": 7}, ValueError, "k must be at most"),
    ],
)
def test_what_is_not_sound_is_refused(options, error, words):
    with pytest.raises(error, match=words):
        _bad(**options)


def test_statements_that_are_seen_to_be_wrong_are_refused():
    network = tanh_network()
    noise = mg.Smoothing(sigma=0.5)
    steep = mg.MoreauGrad(network, smoothing=noise)
    with pytest.raises(ValueError, match="lipschitz must bound every gradient"):
        certify(steep, points(1), 0, epsilon=0.1, lipschitz=1e-3, rho="certified", samples=100)
    with pytest.raises(ValueError, match="bounds must hold every score"):
        certify(steep, points(1), 0, epsilon=0.1, bounds=(0.0, 1e-3), rho="certified", samples=100)


def test_nothing_is_left_behind():
    network, x = tanh_network().float(), points(1).float().requires_grad_()
    before = {name: value.clone() for name, value in network.state_dict().items()}
    state = torch.get_rng_state()
    certify(mg.MoreauGrad(network, score="prob", smoothing=mg.Smoothing(sigma=0.5)), x, 0, rho="certified", samples=64)
    assert torch.equal(state, torch.get_rng_state())
    assert all(torch.equal(value, before[name]) for name, value in network.state_dict().items())
    assert x.grad is None
    assert all(each.grad is None for each in network.parameters())


def test_seeds_repeat_and_fresh_noise_differs():
    network, x = tanh_network().float(), points(1).float()
    method = mg.MoreauGrad(network, score="prob", smoothing=mg.Smoothing(sigma=0.5))
    one, two, three = (certify(method, x, 0, rho="certified", samples=200, seed=seed)[0].map for seed in (4, 4, None))
    assert torch.equal(one, two)
    assert not torch.equal(one, three)


def test_an_input_alone_and_in_a_batch_has_the_same_exact_certificate():
    network, x = tanh_network(), points(3)
    method = mg.SparseMoreauGrad(network, eta=0.05, rho=0.2, smoothing=None)
    together = certify(method, x, epsilon=0.02, curvature="exact")
    alone = [certify(method, each[None], epsilon=0.02, curvature="exact")[0] for each in x]
    for a, b in zip(together, alone, strict=True):
        torch.testing.assert_close(a.map, b.map, rtol=0, atol=1e-10)
        counts = [(each.topk.overlap, each.support.survivors, each.support.entrants) for each in (a, b)]
        assert counts[0] == counts[1]


def test_methods_without_a_certificate_are_refused():
    with pytest.raises(TypeError, match="certify must be given one of MoreauGrad, SparsifiedSmoothGrad"):
        certify(mg.SmoothGrad(tanh_network()), points(1), 0)
    with pytest.raises(ValueError, match="one by one"):
        certify(mg.SparseMoreauGrad(tanh_network(), eta=[0.1, 0.2], smoothing=None), points(1), 0)


def test_members_stay_whatever_is_done_within_the_budget():
    sizes, budget = torch.tensor([5.0, 4.0, 3.0, 2.5, 2.0, 1.0, 0.5, 0.0]).double(), 0.6
    stay = theory.topk_members(sizes, 3, budget)
    assert stay.tolist() == [True, True, False, False, False, False, False, False]
    assert int(stay.sum()) <= theory.topk_overlap(sizes, 3, budget)
    cost = (4.0 - 2.5) / math.sqrt(2)  # of the cheapest change that drives the second out
    assert theory.topk_members(sizes, 3, cost * (1 - 1e-6)).tolist()[1]
    assert not theory.topk_members(sizes, 3, cost * (1 + 1e-6)).tolist()[1]
    moved = sizes.clone()
    moved[1], moved[3] = 3.25 - 1e-6, 3.25 + 1e-6  # and it is the one that does, with the third above both
    moved[2] = 3.3
    assert 1 not in moved.topk(3).indices.tolist()


@pytest.mark.parametrize("kind", ["activation", "layer"])
def test_a_layer_that_is_used_twice_counts_twice(kind):
    torch.manual_seed(0)
    act, mix = nn.Tanh(), nn.Linear(6, 6)
    first = mix if kind == "layer" else nn.Linear(6, 6)
    network = (
        nn.Sequential(first, act, mix, act if kind == "activation" else nn.Tanh(), nn.Linear(6, 2)).double().eval()
    )
    copied = nn.Sequential(*(copy.deepcopy(each) for each in network))
    assert lipschitz_bounds(network, of=0) == lipschitz_bounds(copied, of=0)


def test_hooks_and_patched_layers_have_no_constants():
    network = tanh_network()
    handle = network[2].register_forward_hook(lambda module, given, output: 50 * output)
    with pytest.raises(TypeError, match="hooks or a forward of its own"):
        lipschitz_bounds(network, of=0)
    handle.remove()
    network[2].forward = lambda x: x[:, :3] * 50
    with pytest.raises(TypeError, match="hooks or a forward of its own"):
        lipschitz_bounds(network, of=0)


def test_constants_of_a_network_are_not_used_in_a_coarse_precision():
    network, x = tanh_network().float(), points(1).float()
    method = mg.SparseMoreauGrad(network, eta=0.02, rho=0.2, smoothing=None, precision="bfloat16")
    (found,) = certify(method, x, 0, epsilon=0.0, curvature="exact")
    assert found.method.precision == "float32"
    exact = mg.SparseMoreauGrad(copy.deepcopy(network).double(), eta=0.02, rho=0.2, smoothing=None)
    assert float((exact.attribute(x.double(), 0)[0] - found.map).norm()) < 1e-5 * found.change.norm


@pytest.mark.parametrize("compared", ["ideal", "computed"])
def test_sparse_maps_under_noise_keep_what_is_promised(compared):
    """A ridge: what the ideal map is at any input is known exactly."""
    v = torch.tensor([1.0, 2.0, 0.3, -1.0, 0.5, 0.0])
    v = v / v.norm()
    noise = mg.Smoothing(sigma=0.4)
    method = mg.SparseMoreauGrad(Ridge(v), eta=0.1, smoothing=noise)
    options = {"lipschitz": 1.0, "rho": "certified", "theta": 0.2, "samples": 20_000, "compared": compared, "k": 3}
    (found,) = certify(method, 2 * v[None], 0, epsilon=0.05, **options)
    assert found.alpha == pytest.approx(0.001 if compared == "ideal" else 0.002)
    assert found.support.entrants is not None
    terms = options | {"rho": None, "compared": "ideal"}
    for at in (1.95, 2.05):
        (other,) = certify(found.method, at * v[None], 0, epsilon=0.0, **terms)
        assert found.violations(other.map, error=0.0 if compared == "computed" else other.accuracy.error) == ()


def test_the_certified_rho_of_a_method():
    method = mg.MoreauGrad(tanh_network(), rho="certified", score="prob", smoothing=mg.Smoothing(sigma=0.5))
    assert method.rho == pytest.approx(0.5 / theory.lam_range(0, 1, 0.5))
    clipped = mg.Clipped(tanh_network(), -2.0, 2.0).eval()
    method = mg.SparseMoreauGrad(clipped, rho="certified", smoothing=mg.Smoothing(sigma=0.5))
    assert method.rho == pytest.approx(0.5 / theory.lam_range(-2, 2, 0.5))
    with pytest.raises(ValueError, match=r"no range.*score='prob'"):
        mg.MoreauGrad(tanh_network(), rho="certified", smoothing=mg.Smoothing(sigma=0.5))
    with pytest.raises(ValueError, match="no fresh noise of a fixed sigma"):
        mg.MoreauGrad(tanh_network(), rho="certified", score="prob")
    with pytest.raises(TypeError, match="rho must be a number, got 'best'"):
        mg.MoreauGrad(tanh_network(), rho="best", score="prob")
    fixed = mg.Smoothing(sigma=0.5, fixed=True)
    with pytest.raises(ValueError, match="no fresh noise"):
        mg.MoreauGrad(tanh_network(), rho="certified", score="prob", smoothing=fixed)


def test_classes_are_numbers_one_for_each_image():
    method = mg.MoreauGrad(tanh_network(), rho=0.2, smoothing=None)
    found = certify(method, points(3), torch.tensor([2]), curvature="exact")
    assert [each.target for each in found] == [2, 2, 2]
    for bad in ((1, 2), [0.5], "cat"):
        with pytest.raises(TypeError, match="target"):
            certify(method, points(1), bad, curvature="exact")


def test_the_ranks_take_no_other_options():
    method = mg.SparsifiedSmoothGrad(tanh_network().float(), smoothing=mg.Smoothing(sigma=0.5))
    with pytest.raises(ValueError, match="recipe, rho must be left out"):
        certify(method, points(1).float(), 0, recipe="local", rho=1.0)


def test_former_keywords_work_and_name_their_groups():
    method, x = mg.MoreauGrad(tanh_network(), rho=0.2, smoothing=None), points(1)
    with pytest.warns(
        DeprecationWarning, match=r"assume=mg.Assumptions\(curvature=.*report=mg.ReportOptions\(k="
    ) as heard:
        (former,) = mg.certify(method, x, 0, 0.01, curvature="exact", k=2)
    assert len(heard) == 1
    (now,) = mg.certify(method, x, 0, 0.01, assume=mg.Assumptions(curvature="exact"), report=mg.ReportOptions(k=2))
    assert former.record() == now.record()
    with pytest.raises(ValueError, match=r"an option of certify must be one of.*Did you mean 'curvature'"):
        mg.certify(method, x, 0, curvatur="exact")
    with pytest.raises(TypeError, match=r"assume must be mg.Assumptions\(...\), got 3"):
        mg.certify(method, x, 0, assume=3)


def test_former_attributes_are_read_from_their_groups():
    method = mg.SparseMoreauGrad(tanh_network(), eta=0.02, rho=0.2, smoothing=None)
    (found,) = certify(method, points(1), 0, 0.01, curvature="exact")
    for name, value in found.record().items():
        if hasattr(type(found), name) or name in vars(found):
            assert getattr(found, name) == value
            continue
        with pytest.warns(DeprecationWarning, match=rf"certificate\.{name} is now certificate\.\w+\.{name}"):
            assert getattr(found, name) == value
    with pytest.raises(AttributeError, match="no attribute 'budgets'"):
        _ = found.budgets
